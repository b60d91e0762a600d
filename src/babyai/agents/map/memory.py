"""The map agent's memory: a map drawn from its own views and actions, without gradients.

The agent knows its pose by dead reckoning: turns are its own actions, and *forward* moves it if the cell in front was
free or an open door, which it always sees. It uses only what the paper's agents get (the view and the mission) and its
own actions; the frame of reference is its pose at the start of the episode.

Besides the map, it remembers an ordered log of its own events (`babyai.agents.map.events`), where things were at the
start (a thing that is carried takes its place along), and the walls of the room in which it started. Together they
determine what has been achieved of any mission; whether that is so is tested against the judge.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from babyai.agents.map import codes
from babyai.agents.map.events import EventLog, new_log, record
from babyai.world.codes import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from babyai.world.view import VIEW_SIZE

SIZE = codes.MAP_SIZE
AGENT_ROW = VIEW_SIZE - 1
AGENT_COLUMN = VIEW_SIZE // 2
# A wall of the start room that has not been seen yet.
FAR = 99
NUM_LAST_ACTIONS = 4


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
    """(N, 4) int8, newest first; -1 before the start."""
    time: Tensor
    """(N,) int64, steps since the start."""
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
    )


@torch.no_grad()
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
    image = image.long()
    view = tables.contents[
        image[..., 0].clamp(max=codes.NUM_TYPES - 1),
        image[..., 1].clamp(max=5),
        image[..., 2].clamp(max=codes.NUM_STATES - 1),
    ].flatten(1)
    heading, position, room = _move(memory, action, tables, lanes)
    step = tables.vectors[heading]
    front = _flat(position + step)
    seen = view[:, tables.tiles]
    now = view[:, AGENT_COLUMN * VIEW_SIZE + AGENT_ROW]
    carried = torch.where(now >= codes.FIRST_THING, now, 0)

    contents = memory.contents.flatten(1).clone()
    places = memory.places.flatten(1).clone()
    traces = memory.traces.flatten(1).clone()
    before = contents[lanes, front]
    walls = _find_walls(memory.walls, view, position, heading, room)

    # ---------------------------------------------------------- what the action did to the cell in front
    picked_up = (action == PICKUP) & (memory.carried == 0) & (carried > 0)
    dropped = (action == DROP) & (memory.carried > 0) & (carried == 0)
    opened_box = (action == TOGGLE) & (before >= codes.FIRST_BOX)
    place = _place_at(places[lanes, front], position + step, walls)
    is_tracked = place != codes.FOREIGN
    carried_place = torch.where(picked_up, place, memory.carried_place)
    # Something carried from the start on has no place of its own.
    carried_place = torch.where((action < 0) & (carried > 0), 1 + codes.OUTSIDE, carried_place)

    traces = torch.where((action == DROP)[:, None], 0, traces)
    leaves_trace = (picked_up | opened_box) & is_tracked
    traces[lanes, front] = torch.where(leaves_trace, before, traces[lanes, front])

    # ---------------------------------------------------------- the view
    ahead = tables.vectors[heading][:, None] * tables.offsets[None, :, :1]
    right = tables.vectors[(heading + 1) % 4][:, None] * tables.offsets[None, :, 1:]
    cells = position[:, None] + ahead + right  # (N, 48, 2)
    index = _flat(cells)
    old = contents.gather(1, index)
    drawn = torch.where(seen > 0, seen, old)
    changed = (drawn != old).any(1)
    contents.scatter_(1, index, drawn)
    here = _flat(position)
    contents[lanes, here] = contents[lanes, here].clamp(min=codes.FREE)

    # ---------------------------------------------------------- where things came from
    # A place is kept for a thing or for the trace of one.
    is_thing = contents >= codes.FIRST_THING
    places = torch.where(is_thing | (traces > 0), places, codes.NATIVE)
    comes_out = opened_box & (contents[lanes, front] >= codes.FIRST_THING)
    new_place = torch.where(dropped, memory.carried_place, places[lanes, front])
    new_place = torch.where(comes_out, codes.FOREIGN, new_place)
    places[lanes, front] = new_place

    extent = _extend(memory.extent, cells, seen > 0)
    visits = _count_visit(memory.visits.flatten(1), here, heading, changed | dropped | picked_up, lanes)
    time = memory.time + 1
    after = Memory(
        contents=contents.view(-1, SIZE, SIZE),
        places=places.view(-1, SIZE, SIZE),
        traces=traces.view(-1, SIZE, SIZE),
        visits=visits.view(-1, SIZE, SIZE),
        position=position,
        heading=heading,
        extent=extent,
        room=room,
        walls=walls,
        carried=carried,
        carried_place=torch.where(carried > 0, carried_place, 0),
        last_actions=torch.cat([action[:, None].to(torch.int8), memory.last_actions[:, :-1]], 1),
        time=time,
        log=memory.log,
    )

    # ---------------------------------------------------------- events
    content = contents[lanes, front]
    opened_door = (action == TOGGLE) & (before >= codes.FIRST_DOOR) & tables.open_doors[content.long()]
    thing = class_of(carried, carried_place)
    thing = torch.where(dropped, class_of(memory.carried, memory.carried_place), thing)
    facing = class_at(after, position + step)
    thing = torch.where(opened_door, facing, thing)
    kind = picked_up * codes.PICKED_UP + opened_door * codes.OPENED + dropped * codes.DROPPED
    around = (position + step)[:, None] + tables.vectors  # (N, 4, 2)
    neighbors = torch.stack([class_at(after, around[:, side]) for side in range(4)], 1)
    neighbors = torch.where(dropped[:, None], neighbors.sort(1, descending=True).values, 0)
    log = record(memory.log, time, kind, torch.where(kind > 0, thing, 0), neighbors)
    is_first = action < 0
    faced = torch.where(is_first, 0, facing)
    log = record(log, time, torch.full_like(kind, codes.FACED), faced, torch.zeros_like(neighbors))
    return after._replace(log=log)


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
