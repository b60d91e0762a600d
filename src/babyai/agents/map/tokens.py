"""What the transformer reads: memory and mission as a packed sequence of tokens for each frame.

A frame has one token for the agent, one for each patch of 3 x 3 cells of which something has been seen, one for each
event of the log, and one for each word of the mission. Frames have different numbers of tokens. They are laid end to
end without padding, because most of the map is unknown most of the time.

The map is turned so that the agent faces up, and moved so that it stands in the middle of its patch.
"""

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor

from babyai.agents.map import codes
from babyai.agents.map.events import unpack_keys
from babyai.agents.map.memory import NUM_LAST_ACTIONS, Memory, place_of
from babyai.agents.map.padding import Capacities, Sizes, round_up
from babyai.world.view import VIEW_SIZE

SIZE = codes.MAP_SIZE
PATCH = 3
CELLS = PATCH * PATCH
# Patches reach 25 cells in each direction, farther than the map.
GRID = 17
REACH = GRID * PATCH // 2
NUM_PATCHES = GRID * GRID
NUM_CELL_PLACES = 1 + codes.FOREIGN
# Where a cell's features are in the number that packs them: contents, places, traces, visits.
SHIFTS = (0, 6, 10, 16)
MASKS = (63, 15, 63, 255)
_, PLACES, TRACES, VISITS = (mask << shift for mask, shift in zip(MASKS, SHIFTS, strict=True))
# Padding is divided into this many sequences, since attention takes time with the square of their length.
PADDING_SEQUENCES = 256
# Which of `Frames.cells` are the visits.
VISITS_PLANE = 3
# The columns of `Frames.pose`.
POSITION = slice(0, 2)
HEADING = 2
EXTENT = slice(3, 7)
WALLS = slice(7, 11)
CARRIED = 11
CARRIED_PLACE = 12
LAST_ACTIONS = slice(13, 13 + NUM_LAST_ACTIONS)


class Frames(NamedTuple):
    """What B frames hold that the network reads: small integers, to be stored by the million."""

    cells: Tensor
    """(B, 4, 24, 24) uint8: contents, places, traces and visits, as in `Memory`."""
    pose: Tensor
    """(B, 16) int8: position, heading, extent, walls, carried content and its place, last actions; see `POSITION`."""
    keys: Tensor
    """(B, 48) int64, the log."""
    times: Tensor
    """(B, 2, 48) int16, first and last times of the log's entries."""
    missions: Tensor
    """(B, 72) uint8 token ids."""


def frames_of(memory: Memory, missions: Tensor) -> Frames:
    """The frames of N lanes; missions: (N, L)."""
    parts = [memory.position, memory.heading[:, None], memory.extent, memory.walls]
    parts += [memory.carried[:, None], memory.carried_place[:, None], memory.last_actions]
    pose = torch.cat([part.to(torch.int8) for part in parts], 1)
    cells = torch.stack([memory.contents, memory.places, memory.traces, memory.visits], 1)
    times = torch.stack([memory.log.first, memory.log.last], 1)
    return Frames(cells, pose, memory.log.keys, times, missions)


def count_own_visits(frames: Frames) -> Tensor:
    """(B,) how often the agent has been in its pose since the map last changed: 1, 2, or 3 for more."""
    pose = frames.pose.long()
    row, column = (pose[:, POSITION] % SIZE).unbind(1)
    lanes = torch.arange(len(pose), device=pose.device)
    return frames.cells[lanes, VISITS_PLANE, row, column].long() >> 2 * pose[:, HEADING] & 3


class Tokens(NamedTuple):
    """The tokens of B frames, T in all, with the features of each sort of token.

    `*_at` are positions in the packed sequence. Padding, if there is any, comes after the last frame.
    """

    ends: Tensor
    """(S + 1,) int32, where sequences end: frame i has the tokens ends[i] to ends[i + 1] - 1, the agent's first."""
    steps: Tensor
    """(longest,) 0, 1, 2, ...; no sequence is longer."""
    carried: Tensor
    """(B,) content."""
    carried_place: Tensor
    """(B,) 1 + place, or FOREIGN; 0 for nothing."""
    last_actions: Tensor
    """(B, 3) 0 for none, else 1 + action."""
    patches: Tensor
    """(P, 4, 9) contents, places, traces and visits of the cells."""
    patch_frame: Tensor
    """(P,) the frame that the patch belongs to; B for padding."""
    patch_index: Tensor
    """(P,) where the patch is in the grid around the agent."""
    patch_at: Tensor
    traced: Tensor
    """Which of the P * 9 cells have traces."""
    visited: Tensor
    """Which of the P * 9 cells have been visited."""
    event_kind: Tensor
    """(E,)"""
    event_class: Tensor
    """(E, 5) classes of the thing and of the four neighbors, 0 for none."""
    event_rank: Tensor
    """(E, 2): how many entries last happened after this one last did, and since this one first did."""
    event_at: Tensor
    neighbors: Tensor
    """Which of the E * 4 neighbors there are."""
    word: Tensor
    """(W,) token ids."""
    word_index: Tensor
    """(W,) their places in the mission."""
    word_at: Tensor


class Present(NamedTuple):
    """What there is in B frames."""

    grid: Tensor
    """(B, 289, 9) the map, see `_turn_map`."""
    patches: Tensor
    """(B, 289) bool."""
    events: Tensor
    """(B, 48) bool."""
    words: Tensor
    """(B, 72) bool."""
    kinds: Tensor
    """(B, 48) kinds of events."""
    classes: Tensor
    """(B, 48, 5) classes of events and their neighbors; 0 where there is no event."""

    def tokens(self) -> Tensor:
        """(B, 410) bool: the agent, patches, events, words."""
        return torch.cat([torch.ones_like(self.words[:, :1]), self.patches, self.events, self.words], 1)


class Found(NamedTuple):
    """The tokens of a sort, of all frames, with padding at the end."""

    is_real: Tensor
    """(n,) False for padding."""
    frame: Tensor
    """(n,) the frame; any for padding."""
    slot: Tensor
    """(n,) which of the frame's; any for padding."""
    at: Tensor
    """(n,) the position in the packed sequence."""


@torch.no_grad()
def tokenize_frames(
    frames: Frames, vectors: Tensor, capacities: Capacities | None = None, without: Collection[str] = ()
) -> Tokens:
    """The tokens of frames.

    Args:
        frames: B frames.
        vectors: (4, 2), one step at each heading.
        capacities: Pad to these; default: no padding.
        without: What to leave out, of `config.MAP_PARTS`.
    """
    pose = frames.pose.long()
    present = _leave_out(_look(frames, vectors), without)
    carried_place = pose[:, CARRIED_PLACE]
    used, longest = _count(present)
    room = used if capacities is None else _make_room(used, capacities)
    padding = room.tokens - used.tokens
    if padding:
        longest = round_up(max(longest, -(-padding // PADDING_SEQUENCES)), 64)
    patches, events, words = _find_tokens(present, used, room)
    cells = present.grid[patches.frame, patches.slot] * patches.is_real[:, None]
    classes = present.classes[events.frame, events.slot] * events.is_real[:, None]
    return Tokens(
        ends=_end_sequences(present.tokens().sum(1), padding),
        steps=torch.arange(longest, device=pose.device),
        carried=pose[:, CARRIED],
        carried_place=carried_place.clamp(max=1 + codes.OUTSIDE) if "places" in without else carried_place,
        last_actions=pose[:, LAST_ACTIONS] + 1,
        patches=torch.stack([cells >> shift & mask for shift, mask in zip(SHIFTS, MASKS, strict=True)], 1),
        patch_frame=torch.where(patches.is_real, patches.frame, len(pose)),
        patch_index=patches.slot,
        patch_at=patches.at,
        traced=_find_flat(cells & TRACES != 0, room.traced),
        visited=_find_flat(cells & VISITS != 0, room.visited),
        event_kind=present.kinds[events.frame, events.slot],
        event_class=classes,
        event_rank=_rank_events(frames.times)[events.frame, events.slot],
        event_at=events.at,
        neighbors=_find_flat(classes[:, 1:] > 0, room.neighbors),
        word=frames.missions[words.frame, words.slot].long(),
        word_index=words.slot,
        word_at=words.at,
    )


def _look(frames: Frames, vectors: Tensor) -> Present:
    grid = _turn_map(frames.cells, frames.pose.long(), vectors)
    events = frames.times[:, 1] >= 0
    kinds, things, neighbors = unpack_keys(frames.keys)
    classes = torch.cat([things[:, :, None], neighbors], 2) * events[:, :, None]
    return Present(grid, (grid != 0).any(2), events, frames.missions != 0, kinds, classes)


def _leave_out(present: Present, without: Collection[str]) -> Present:
    """For ablations: without the log, places, visits, or the map but for the 7 x 7 cells in front of the agent.

    Of these, cells that are hidden now but have been seen before are kept.
    """
    grid, classes, events = present.grid, present.classes, present.events
    if "map" in without:
        grid = grid * _in_view(grid.device)
    if "visits" in without:
        grid = grid & ~VISITS
    if "places" in without:
        grid = grid & ~PLACES | (grid != 0) * (1 + codes.OUTSIDE << SHIFTS[1])
        classes = classes - classes % codes.NUM_PLACES + (classes > 0) * codes.OUTSIDE
    if "events" in without:
        events = torch.zeros_like(events)
        classes = torch.zeros_like(classes)
    return present._replace(grid=grid, patches=(grid != 0).any(2), events=events, classes=classes)


def _in_view(device: torch.device) -> Tensor:
    """(289, 9) whether a cell of the map around the agent is among the 7 x 7 in front of it."""
    slot = torch.arange(NUM_PATCHES, device=device)[:, None]
    cell = torch.arange(CELLS, device=device)
    ahead = slot // GRID * PATCH + cell // PATCH - REACH
    right = slot % GRID * PATCH + cell % PATCH - REACH
    return (ahead >= 0) & (ahead < VIEW_SIZE) & (right.abs() <= VIEW_SIZE // 2)


def _count(present: Present) -> tuple[Sizes, int]:
    """How many of each sort there are, and the largest number of tokens of a frame."""
    counts = [present.patches.sum(), present.events.sum(), present.words.sum()]
    counts += [(present.grid & bits != 0).sum() for bits in (TRACES, VISITS)]
    counts += [(present.classes[:, :, 1:] > 0).sum(), present.tokens().sum(1).max()]
    # All at once, because the host waits for the device here.
    *used, longest = torch.stack(counts).tolist()
    return Sizes(*used), longest


def _make_room(used: Sizes, capacities: Capacities) -> Sizes:
    """Room with padding. The last patch and the last event are padding, so that padded cells can belong to them."""
    least = used._replace(patches=used.patches + 1, events=used.events + 1, words=used.words + PADDING_SEQUENCES)
    return capacities.fit(least)


def _find_tokens(present: Present, used: Sizes, room: Sizes) -> list[Found]:
    """The patches, events and words; padding has the last positions."""
    tokens = present.tokens()
    positions = tokens.flatten().cumsum(0).view(tokens.shape) - 1
    first = 1
    padding_at = len(tokens) + used.tokens
    sorts = []
    for mask, count, size in zip((present.patches, present.events, present.words), used, room, strict=False):
        found = torch.nonzero_static(mask, size=size, fill_value=0)
        frame, slot = found.unbind(1)
        number = torch.arange(size, device=mask.device)
        is_real = number < count
        at = torch.where(is_real, positions[frame, first + slot], padding_at + number - count)
        sorts.append(Found(is_real, frame, slot, at))
        first += mask.shape[1]
        padding_at += size - count
    return sorts


def _find_flat(present: Tensor, room: int) -> Tensor:
    """Where a flattened mask is true; padded with its last index."""
    return torch.nonzero_static(present.flatten(), size=room, fill_value=present.numel() - 1)[:, 0]


def _end_sequences(lengths: Tensor, padding: int) -> Tensor:
    """Where frames end and then, if there is padding, sequences that it is divided into."""
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    if padding:
        shares = torch.arange(1, PADDING_SEQUENCES + 1, device=ends.device) * padding // PADDING_SEQUENCES
        ends = torch.cat([ends, ends[-1] + shares])
    return ends.int()


def _turn_map(cells: Tensor, pose: Tensor, vectors: Tensor) -> Tensor:
    """The map around the agent: (B, 289, 9) int32, the four features of a cell in one number; 0 where unknown.

    Of a cell, only coordinates modulo 24 are known. Which they are follows from how far the map reaches.
    """
    pose = pose.int()  # half as many bytes as int64
    vectors = vectors.int()
    position = pose[:, POSITION]
    heading = pose[:, HEADING]
    _, _, behind, left = pose[:, EXTENT].unbind(1)
    lowest = -torch.stack([behind, left], 1)  # the smallest coordinates of the map
    index = torch.arange(SIZE, dtype=torch.int32, device=cells.device)
    coordinates = lowest[:, :, None] + (index - lowest[:, :, None]) % SIZE  # (B, 2, 24)
    ahead = coordinates[:, 0, :, None].expand(-1, SIZE, SIZE)
    right = coordinates[:, 1, None, :].expand(-1, SIZE, SIZE)
    offset_ahead = ahead - position[:, 0, None, None]
    offset_right = right - position[:, 1, None, None]
    step = vectors[heading][:, :, None, None]
    side = vectors[(heading + 1) % 4][:, :, None, None]
    up = (offset_ahead * step[:, 0] + offset_right * step[:, 1] + REACH).clamp(0, 2 * REACH)
    across = (offset_ahead * side[:, 0] + offset_right * side[:, 1] + REACH).clamp(0, 2 * REACH)
    contents, places, traces, visits = cells.int().unbind(1)
    native = 1 + place_of(torch.stack([ahead, right], -1), pose[:, WALLS])
    places = torch.where(places == codes.NATIVE, native, places)
    turns = 2 * heading[:, None, None]
    visits = (visits >> turns | visits << (8 - turns)) & 255
    features = zip((contents, places, traces, visits), SHIFTS, strict=True)
    packed = torch.where(contents > 0, sum(feature << shift for feature, shift in features), 0)
    target = (up // PATCH * GRID + across // PATCH) * CELLS + up % PATCH * PATCH + across % PATCH
    grid = packed.new_zeros(len(cells), NUM_PATCHES * CELLS)
    # Cells fall on the same place only if the views are inconsistent: of a world that does not change any more.
    grid.scatter_reduce_(1, target.flatten(1).long(), packed.flatten(1), "amax")
    return grid.view(-1, NUM_PATCHES, CELLS)


def _rank_events(times: Tensor) -> Tensor:
    """(B, 48, 2): how many entries were last seen after each entry was last seen, and not before it was first seen."""
    first, last = times.unbind(1)
    later = (last[:, None, :] > last[:, :, None]).sum(2)
    since = (last[:, None, :] >= first[:, :, None]).sum(2)
    return torch.stack([later, since], 2)
