"""The map agent's memory: a map drawn from its own views and actions, without gradients.

The agent knows its pose by dead reckoning: turns are its own actions, and *forward* moves it if the cell in front was
free or an open door, which it always sees. It uses only what the paper's agents get (the view and the mission) and its
own actions; the frame of reference is its pose at the start of the episode.

Besides the map, it remembers an ordered log of its own events (`babyai.agents.map.events`), where things were at the
start (a thing that is carried takes its place along), and the walls of the room in which it started. Together they
determine what has been achieved of any mission; whether that is so is tested against the judge. And it remembers in
which states it did what (`babyai.agents.map.history`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from babyai.agents.compilation import compilable
from babyai.agents.map import codes
from babyai.agents.map.events import LOG_SIZE, EventLog, new_log, record
from babyai.agents.map.history import History, extend_history, hash_parts, make_coefficients, new_history
from babyai.world.codes import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from babyai.world.view import VIEW_SIZE

SIZE = codes.MAP_SIZE
AGENT_ROW = VIEW_SIZE - 1
AGENT_COLUMN = VIEW_SIZE // 2
# A wall of the start room that has not been seen yet.
FAR = 99
NUM_LAST_ACTIONS = 3


class Memory(NamedTuple):
    """The memory of N episodes.

    Cells are at `map[:, ahead % 24, right % 24]`.
    """

    contents: Tensor
    """(N, 24, 24) uint8, what was last seen in a cell."""
    places: Tensor
    """(N, 24, 24) uint8, where the content came from, or what left a trace here: NATIVE, 1 + place, or FOREIGN."""
    traces: Tensor
    """(N, 24, 24) uint8, the thing that was last here, until the next `drop`: to instructions, it still is."""
    visits: Tensor
    """(N, 24, 24) uint8, how often the agent was here since the map last changed, two bits for each heading."""
    position: Tensor
    """(N, 2) int64, ahead and right of the start."""
    heading: Tensor
    """(N,) int64, quarter turns to the right since the start."""
    extent: Tensor
    """(N, 4) int64, how far the map reaches in each of the four directions."""
    room: Tensor
    """(N, 2) int64, how many rooms ahead and right of the start room, doubled: odd numbers are doorways."""
    walls: Tensor
    """(N, 4) int64, the distance of the start room's walls in the four directions, FAR if unknown."""
    carried: Tensor
    """(N,) uint8, the content that is carried, or 0."""
    carried_place: Tensor
    """(N,) uint8, where it came from: 1 + place, or FOREIGN."""
    last_actions: Tensor
    """(N, 3) int8, newest first; -1 before the start."""
    time: Tensor
    """(N,) int64, steps since the start."""
    history: History
    """In which states it did what."""
    log: EventLog
    """What the agent did."""


def new_memory(n: int, device: torch.device | str = "cpu") -> Memory:
    """The memory of n episodes before their first observation."""

    def zeros(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        return torch.zeros((n, *shape), dtype=dtype, device=device)

    return Memory(
        contents=zeros(SIZE, SIZE),
        places=zeros(SIZE, SIZE),
        traces=zeros(SIZE, SIZE),
        visits=zeros(SIZE, SIZE),
        position=zeros(2, dtype=torch.long),
        heading=zeros(dtype=torch.long),
        extent=zeros(4, dtype=torch.long),
        room=zeros(2, dtype=torch.long),
        walls=zeros(4, dtype=torch.long) + FAR,
        carried=zeros(),
        carried_place=zeros(),
        last_actions=zeros(NUM_LAST_ACTIONS, dtype=torch.int8) - 1,
        time=zeros(dtype=torch.long) - 1,
        history=new_history(n, device),
        log=new_log(n, device),
    )


class MapTables(NamedTuple):
    """Constant tensors on the memory's device."""

    contents: Tensor
    """(11, 6, 3) content by type, color and state."""
    open_doors: Tensor
    """(39,) bool."""
    vectors: Tensor
    """(4, 2) one step at each heading."""
    offsets: Tensor
    """(48, 2) steps ahead and right of the cells in view, but for the agent's own."""
    tiles: Tensor
    """(48,) their index in the flattened view."""
    hashing: Tensor
    """(628,) coefficients of the hash of a state."""


def make_tables(device: torch.device | str = "cpu") -> MapTables:
    """The constants."""
    cells = [
        (AGENT_ROW - row, column - AGENT_COLUMN, column * VIEW_SIZE + row)
        for column in range(VIEW_SIZE)
        for row in range(VIEW_SIZE)
        if (row, column) != (AGENT_ROW, AGENT_COLUMN)
    ]
    table = torch.tensor(cells, device=device)
    return MapTables(
        contents=torch.as_tensor(codes.CONTENTS, device=device),
        open_doors=torch.as_tensor(codes.IS_OPEN_DOOR, device=device),
        vectors=torch.tensor(codes.FORWARD_VECTORS, device=device),
        offsets=table[:, :2],
        tiles=table[:, 2],
        hashing=make_coefficients(SIZE * SIZE + LOG_SIZE + 4).to(device),
    )


@torch.no_grad()
@compilable
def update_memory(memory: Memory, image: Tensor, action: Tensor, tables: MapTables) -> Memory:
    """The memory after an observation.

    Args:
        memory: Before it.
        image: (N, 7, 7, 3) uint8, the view.
        action: (N,) the action that led to it; -1 at the start of an episode.
        tables: Constants.
    """
    lanes = torch.arange(len(image), device=image.device)
    action = action.long()
    view = _read_view(image, tables)
    heading, position, room = _move(memory, action, tables, lanes)
    in_hand = view[:, AGENT_COLUMN * VIEW_SIZE + AGENT_ROW]
    carried = torch.where(in_hand >= codes.FIRST_THING, in_hand, 0)
    walls = _find_walls(memory.walls, view, position, heading, room)
    front = position + tables.vectors[heading]
    before = memory.contents.flatten(1)[lanes, _flat(front)]
    deed = Deed(
        picked_up=(action == PICKUP) & (memory.carried == 0) & (carried > 0),
        dropped=(action == DROP) & (memory.carried > 0) & (carried == 0),
        opened_box=(action == TOGGLE) & (before >= codes.FIRST_BOX),
        toggled_door=(action == TOGGLE) & _is_door(before),
    )
    place = _place_at(memory.places.flatten(1)[lanes, _flat(front)], front, walls)
    carried_place = torch.where(deed.picked_up, place, memory.carried_place)
    # Something carried from the start on has no place of its own.
    carried_place = torch.where((action < 0) & (carried > 0), 1 + codes.OUTSIDE, carried_place)

    contents, extent, changed = _draw_view(memory, view, position, heading, tables)
    traces = torch.where((action == DROP)[:, None], 0, memory.traces.flatten(1))
    leaves_trace = (deed.picked_up | deed.opened_box) & (place != codes.FOREIGN)
    traces[lanes, _flat(front)] = torch.where(leaves_trace, before, traces[lanes, _flat(front)])
    places = _update_places(memory, contents, traces, _flat(front), deed, lanes)
    changed = changed | deed.dropped | deed.picked_up
    after = Memory(
        contents=contents.view(-1, SIZE, SIZE),
        places=places.view(-1, SIZE, SIZE),
        traces=traces.view(-1, SIZE, SIZE),
        visits=_count_visit(memory.visits.flatten(1), _flat(position), heading, changed, lanes).view(-1, SIZE, SIZE),
        position=position,
        heading=heading,
        extent=extent,
        room=room,
        walls=walls,
        carried=carried,
        carried_place=torch.where(carried > 0, carried_place, 0),
        last_actions=torch.cat([action[:, None].to(torch.int8), memory.last_actions[:, :-1]], 1),
        time=memory.time + 1,
        history=memory.history,
        log=memory.log,
    )
    log = _record_events(memory, after, action, front, deed, tables)
    parts = [contents, log.keys, position, heading[:, None], carried[:, None]]
    history = extend_history(memory.history, after.time, action, hash_parts(parts, tables.hashing))
    # Not `_replace`, which torch 2.11 cannot compile.
    return Memory(*after[:-2], history=history, log=log)


class Deed(NamedTuple):
    """What the last action did, (N,) bool each."""

    picked_up: Tensor
    dropped: Tensor
    opened_box: Tensor
    toggled_door: Tensor


def _read_view(image: Tensor, tables: MapTables) -> Tensor:
    """(N, 49) the contents of the cells in view, column by column."""
    kind, color, state = image.long().unbind(3)
    last = tables.contents.shape
    known = tables.contents[kind.clamp(max=last[0] - 1), color.clamp(max=last[1] - 1), state.clamp(max=last[2] - 1)]
    return known.flatten(1)


def _draw_view(
    memory: Memory, view: Tensor, position: Tensor, heading: Tensor, tables: MapTables
) -> tuple[Tensor, Tensor, Tensor]:
    """The contents (N, 576) with what is in view, how far the map reaches, and (N,) whether a cell has changed."""
    contents = memory.contents.flatten(1).clone()
    seen = view[:, tables.tiles]
    ahead = tables.vectors[heading][:, None] * tables.offsets[None, :, :1]
    right = tables.vectors[(heading + 1) % 4][:, None] * tables.offsets[None, :, 1:]
    cells = position[:, None] + ahead + right  # (N, 48, 2)
    index = _flat(cells)
    old = contents.gather(1, index)
    drawn = torch.where(seen > 0, seen, old)
    contents.scatter_(1, index, drawn)
    here = _flat(position)[:, None]
    contents.scatter_(1, here, contents.gather(1, here).clamp(min=codes.FREE))
    return contents, _extend(memory.extent, cells, seen > 0), (drawn != old).any(1)


def _update_places(
    memory: Memory, contents: Tensor, traces: Tensor, front: Tensor, deed: Deed, lanes: Tensor
) -> Tensor:
    """The flattened places, (N, 576): kept for things and for traces of things, and set for what was put in front."""
    places = torch.where((contents >= codes.FIRST_THING) | (traces > 0), memory.places.flatten(1), codes.NATIVE)
    comes_out = deed.opened_box & (contents[lanes, front] >= codes.FIRST_THING)
    place = torch.where(deed.dropped, memory.carried_place, places[lanes, front])
    places[lanes, front] = torch.where(comes_out, codes.FOREIGN, place)
    return places


def _record_events(
    before: Memory, after: Memory, action: Tensor, front: Tensor, deed: Deed, tables: MapTables
) -> EventLog:
    """The log with what the agent did, and then with what it faces."""
    facing = class_at(after, front)
    content = after.contents.flatten(1).gather(1, _flat(front)[:, None])[:, 0]
    opened_door = deed.toggled_door & tables.open_doors[content.long()]
    thing = torch.where(deed.dropped, class_of(before.carried, before.carried_place), 0)
    thing = torch.where(deed.picked_up, class_of(after.carried, after.carried_place), thing)
    thing = torch.where(opened_door, facing, thing)
    kind = deed.picked_up * codes.PICKED_UP + opened_door * codes.OPENED + deed.dropped * codes.DROPPED
    around = front[:, None] + tables.vectors  # (N, 4, 2)
    neighbors = torch.stack([class_at(after, around[:, side]) for side in range(4)], 1)
    neighbors = torch.where(deed.dropped[:, None], neighbors.sort(1, descending=True).values, 0)
    log = record(before.log, after.time, kind, thing, neighbors)
    # The judge looks at what is faced after each action, so not at the start.
    faced = torch.where(action < 0, 0, facing)
    return record(log, after.time, torch.full_like(kind, codes.FACED), faced, torch.zeros_like(neighbors))


def _move(memory: Memory, action: Tensor, tables: MapTables, lanes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heading, position and room after an action."""
    contents = memory.contents.flatten(1)
    step = tables.vectors[memory.heading]
    here = contents[lanes, _flat(memory.position)].long()
    front = contents[lanes, _flat(memory.position + step)].long()
    moves = (action == FORWARD) & ((front == codes.FREE) | tables.open_doors[front])
    position = memory.position + step * moves[:, None]
    turn = (action == RIGHT).long() - (action == LEFT).long()
    # A doorway is half way to the next room.
    halves = (_is_door(here).long() + _is_door(front).long()) * moves
    return (memory.heading + turn) % 4, position, memory.room + step * halves[:, None]


def _is_door(content: Tensor) -> Tensor:
    return (content >= codes.FIRST_DOOR) & (content < codes.FIRST_THING)


def _flat(cells: Tensor) -> Tensor:
    """The index of cells (..., 2) in the flattened map."""
    wrapped = cells % SIZE
    return wrapped[..., 0] * SIZE + wrapped[..., 1]


def along(vectors: Tensor, direction: Tensor) -> Tensor:
    """The components of vectors (..., 2) in directions (...): ahead, right, behind, left of the start."""
    component = torch.where(direction % 2 == 0, vectors[..., 0], vectors[..., 1])
    return torch.where(direction < 2, component, -component)


def _find_walls(walls: Tensor, view: Tensor, position: Tensor, heading: Tensor, room: Tensor) -> Tensor:
    """The distances of the start room's walls, where the view shows them.

    Rooms are rectangles, so the first wall or door straight ahead, left or right of the agent is a wall of its room.
    The agent knows in which room it is, because it can only leave one through a door.
    """
    view = view.view(-1, VIEW_SIZE, VIEW_SIZE)
    rays = {
        0: view[:, AGENT_COLUMN, :AGENT_ROW].flip(1),
        1: view[:, AGENT_COLUMN + 1 :, AGENT_ROW],
        3: view[:, :AGENT_COLUMN, AGENT_ROW].flip(1),
    }
    for turn, ray in rays.items():
        direction = (heading + turn) % 4
        hits = (ray == codes.BLOCKED) | _is_door(ray)
        distance = along(position, direction) + 1 + hits.int().argmax(1)
        mine = along(room, direction)
        # The walls are numbered like the doorways in them.
        number = mine + 1 + mine % 2
        in_doorway_across = along(room, (direction + 1) % 4) % 2 != 0
        valid = hits.any(1) & ~in_doorway_across
        for expected, facing, value in ((1, direction, distance), (-1, (direction + 2) % 4, -distance)):
            is_ours = (valid & (number == expected))[:, None] & (
                torch.arange(4, device=walls.device) == facing[:, None]
            )
            walls = torch.where(is_ours, value[:, None], walls)
    return walls


def _place_at(stored: Tensor, cells: Tensor, walls: Tensor) -> Tensor:
    """The place of a cell's content, 1 + place or FOREIGN: as stored, or that of the cell itself."""
    return torch.where(stored == codes.NATIVE, 1 + place_of(cells, walls), stored).to(torch.uint8)


def place_of(cells: Tensor, walls: Tensor) -> Tensor:
    """Places of cells (N, ..., 2) relative to the start; walls: (N, 4)."""
    walls = walls.view(len(walls), *[1] * (cells.ndim - 2), 4)
    ahead = cells[..., 0]
    right = cells[..., 1]
    inside = (ahead <= walls[..., 0]) & (right <= walls[..., 1]) & (-ahead <= walls[..., 2]) & (-right <= walls[..., 3])
    return torch.where(inside, 1 + 3 * (ahead.sign() + 1) + right.sign() + 1, codes.OUTSIDE)


def class_of(content: Tensor, place: Tensor) -> Tensor:
    """The class of a content with its place (1 + place, or FOREIGN); 0 where instructions do not refer to it."""
    content = content.long()
    is_door = _is_door(content)
    plain = torch.where(is_door, content - (content - codes.FIRST_DOOR) % 3, content)
    named = (content >= codes.FIRST_DOOR) & (place != codes.FOREIGN)
    return torch.where(named, plain * codes.NUM_PLACES + place.long() - 1, 0)


def class_at(memory: Memory, cells: Tensor) -> Tensor:
    """The class of what instructions see at cells (N, 2): a trace counts as the thing that left it."""
    lanes = torch.arange(len(cells), device=cells.device)
    index = _flat(cells)
    stored = memory.places.flatten(1)[lanes, index]
    trace = memory.traces.flatten(1)[lanes, index]
    content = memory.contents.flatten(1)[lanes, index]
    # What came out of a box lies on the box's trace; boxes are seldom moved before they are opened.
    stored = torch.where((trace > 0) & (stored == codes.FOREIGN), codes.NATIVE, stored)
    place = _place_at(stored, cells, memory.walls)
    return class_of(torch.where(trace > 0, trace, content), place)


def _extend(extent: Tensor, cells: Tensor, seen: Tensor) -> Tensor:
    """How far the map reaches, with newly seen cells (N, 48, 2)."""
    reach = torch.cat([cells, -cells], 2)  # ahead, right, behind, left
    return torch.maximum(extent, torch.where(seen[..., None], reach, 0).amax(1))


def _count_visit(visits: Tensor, here: Tensor, heading: Tensor, changed: Tensor, lanes: Tensor) -> Tensor:
    """Counts up to three visits of each pose since the map last changed."""
    visits = torch.where(changed[:, None], 0, visits)
    byte = visits[lanes, here].long()
    shift = 2 * heading
    count = torch.clamp((byte >> shift & 3) + 1, max=3)
    visits[lanes, here] = (byte & ~(3 << shift) | count << shift).to(torch.uint8)
    return visits
