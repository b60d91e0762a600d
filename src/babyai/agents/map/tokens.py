"""What the transformer reads: memory and mission as a packed sequence of tokens for each frame.

A frame has one token for the agent, one for each patch of 3 x 3 cells of which something has been seen, one for each
event of the log, and one for each word of the mission. Frames have different numbers of tokens. They are laid end to
end without padding, because most of the map is unknown most of the time.

The map is turned so that the agent faces up, and moved so that it stands in the middle of its patch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from babyai.agents.map import codes
from babyai.agents.map.events import LOG_SIZE, unpack_keys
from babyai.agents.map.memory import NUM_LAST_ACTIONS, Memory, place_of

SIZE = codes.MAP_SIZE
PATCH = 3
CELLS = PATCH * PATCH
# Patches reach 25 cells in each direction, farther than the map.
GRID = 17
REACH = GRID * PATCH // 2
NUM_PATCHES = GRID * GRID
NUM_CELL_PLACES = 1 + codes.FOREIGN
# Where a cell's features are in the number that packs them.
TRACES = 255 << 16
VISITS = 255 << 24
# Padding is divided into this many sequences, since attention takes time with the square of their length.
PADDING_SEQUENCES = 256
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
    """(E, 2): how many entries happened, at last, after this one at last, and no earlier than this one at first."""
    event_at: Tensor
    neighbors: Tensor
    """Which of the E * 4 neighbors there are."""
    word: Tensor
    """(W,) token ids."""
    word_index: Tensor
    """(W,) their places in the mission."""
    word_at: Tensor


class Capacities:
    """Sizes to which tokens are padded, so that the same few shapes recur, which CUDA graphs need."""

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()

    def fit(self, needed: Sequence[int]) -> tuple[int, ...]:
        """At least the needed sizes: those of the last time, unless they are too small or much too large."""
        pairs = list(zip(needed, self._sizes, strict=False))
        if not pairs or any(size < count or size > 1.25 * count + 4096 for count, size in pairs):
            self._sizes = tuple(_round_up(int(1.06 * count), 1024) for count in needed)
        return self._sizes


@torch.no_grad()
def tokenize_frames(frames: Frames, vectors: Tensor, capacities: Capacities | None = None) -> Tokens:
    """The tokens of frames.

    Args:
        frames: B frames.
        vectors: (4, 2), one step at each heading.
        capacities: Pad to these; default: no padding.
    """
    count = len(frames.pose)
    pose = frames.pose.long()
    grid = _turn_map(frames.cells, pose, vectors)
    is_patch = (grid != 0).any(2)
    is_event = frames.times[:, 1] >= 0
    is_word = frames.missions != 0
    kind, thing, neighbors = unpack_keys(frames.keys)
    present = torch.cat([torch.ones_like(is_word[:, :1]), is_patch, is_event, is_word], 1)
    lengths = present.sum(1)
    # All sizes are read from the device at once, because it has to wait.
    sizes = [is_patch.sum(), is_event.sum(), is_word.sum(), (grid & TRACES != 0).sum(), (grid & VISITS != 0).sum()]
    sizes += [((neighbors > 0) & is_event[:, :, None]).sum(), lengths.max()]
    *used, longest = torch.stack(sizes).tolist()
    room = list(used)
    padding = 0
    if capacities is not None:
        # The last patch and the last event are padding, and what refers to nothing refers to them.
        room = list(capacities.fit([used[0] + 1, used[1] + 1, used[2] + PADDING_SEQUENCES, *used[3:]]))
        padding = sum(room[:3]) - sum(used[:3])
        longest = _round_up(max(longest, -(-padding // PADDING_SEQUENCES)), 64)

    # The position of each token, if it is present; those of the padding come after all others.
    at = present.flatten().cumsum(0).view(present.shape) - 1
    after = count + sum(used[:3])
    patch_frame, patch_index, patch_at = _find(is_patch, at[:, 1:], room[0], used[0], after)
    after += room[0] - used[0]
    event_frame, event_index, event_at = _find(is_event, at[:, 1 + NUM_PATCHES :], room[1], used[1], after)
    after += room[1] - used[1]
    word_frame, word_index, word_at = _find(is_word, at[:, 1 + NUM_PATCHES + LOG_SIZE :], room[2], used[2], after)

    is_real = patch_frame < count
    cells = grid[patch_frame.clamp(max=count - 1), patch_index] * is_real[:, None]
    classes = torch.cat([thing[:, :, None], neighbors], 2)
    real_event = (event_frame.clamp(max=count - 1), event_index)
    event_class = classes[real_event] * (event_frame < count)[:, None]
    return Tokens(
        ends=_end_sequences(lengths, padding),
        steps=torch.arange(longest, device=pose.device),
        carried=pose[:, CARRIED],
        carried_place=pose[:, CARRIED_PLACE],
        last_actions=pose[:, LAST_ACTIONS] + 1,
        patches=torch.stack([cells >> shift & 255 for shift in (0, 8, 16, 24)], 1),
        patch_frame=patch_frame,
        patch_index=patch_index,
        patch_at=patch_at,
        traced=_find_flat(cells & TRACES != 0, room[3]),
        visited=_find_flat(cells & VISITS != 0, room[4]),
        event_kind=kind[real_event],
        event_class=event_class,
        event_rank=_rank_events(frames.times)[real_event],
        event_at=event_at,
        neighbors=_find_flat(event_class[:, 1:] > 0, room[5]),
        word=frames.missions[word_frame.clamp(max=count - 1), word_index].long(),
        word_index=word_index,
        word_at=word_at,
    )


def _find(present: Tensor, at: Tensor, room: int, used: int, after: int) -> tuple[Tensor, Tensor, Tensor]:
    """Frame, index and position of each token that is present; padded, with frame B and positions from `after` on."""
    found = torch.nonzero_static(present, size=room, fill_value=-1)
    number = torch.arange(room, device=at.device)
    is_real = number < used
    frame = torch.where(is_real, found[:, 0], len(present))
    index = found[:, 1].clamp(min=0)
    position = torch.where(is_real, at[found[:, 0], index], after + number - used)
    return frame, index, position


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


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _turn_map(cells: Tensor, pose: Tensor, vectors: Tensor) -> Tensor:
    """The map around the agent: (B, 289, 9) int64, the four features of a cell in one number; 0 where unknown.

    Of a cell, only coordinates modulo 24 are known. Which they are follows from how far the map reaches.
    """
    position = pose[:, POSITION]
    heading = pose[:, HEADING]
    _, _, behind, left = pose[:, EXTENT].unbind(1)
    lowest = -torch.stack([behind, left], 1)  # the smallest coordinates of the map
    index = torch.arange(SIZE, device=cells.device)
    coordinates = lowest[:, :, None] + (index - lowest[:, :, None]) % SIZE  # (B, 2, 24)
    ahead = coordinates[:, 0, :, None].expand(-1, SIZE, SIZE)
    right = coordinates[:, 1, None, :].expand(-1, SIZE, SIZE)
    offset_ahead = ahead - position[:, 0, None, None]
    offset_right = right - position[:, 1, None, None]
    step = vectors[heading][:, :, None, None]
    side = vectors[(heading + 1) % 4][:, :, None, None]
    up = (offset_ahead * step[:, 0] + offset_right * step[:, 1] + REACH).clamp(0, 2 * REACH)
    across = (offset_ahead * side[:, 0] + offset_right * side[:, 1] + REACH).clamp(0, 2 * REACH)
    contents, places, traces, visits = cells.long().unbind(1)
    native = 1 + place_of(torch.stack([ahead, right], -1), pose[:, WALLS])
    places = torch.where(places == codes.NATIVE, native, places)
    turns = 2 * heading[:, None, None]
    visits = (visits >> turns | visits << (8 - turns)) & 255
    packed = torch.where(contents > 0, contents | places << 8 | traces << 16 | visits << 24, 0)
    target = (up // PATCH * GRID + across // PATCH) * CELLS + up % PATCH * PATCH + across % PATCH
    grid = packed.new_zeros(len(cells), NUM_PATCHES * CELLS)
    # Cells fall on the same place only if the views are inconsistent: of a world that does not change any more.
    grid.scatter_reduce_(1, target.flatten(1), packed.flatten(1), "amax")
    return grid.view(-1, NUM_PATCHES, CELLS)


def _rank_events(times: Tensor) -> Tensor:
    """(B, 48, 2): how many entries were last seen after each entry was last seen, and not before it was first seen."""
    first, last = times.unbind(1)
    later = (last[:, None, :] > last[:, :, None]).sum(2)
    since = (last[:, None, :] >= first[:, :, None]).sum(2)
    return torch.stack([later, since], 2)
