"""What the transformer reads: memory and mission as a packed sequence of tokens for each frame.

A frame has one token for the agent, one for each patch of 3 x 3 cells of which something has been seen, one for each
event of the log, and one for each word of the mission. Frames have different numbers of tokens. They are laid end to
end without padding, because most of the map is unknown most of the time.

The map is turned so that the agent faces up, and moved so that it stands in the middle of its patch.
"""

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

    `*_at` are the tokens' positions in the packed sequence.
    """

    ends: Tensor
    """(B + 1,) int32, where frames end: frame i has the tokens ends[i] to ends[i + 1] - 1, the agent's first."""
    longest: int
    """The largest number of tokens of a frame."""
    carried: Tensor
    """(B,) content."""
    carried_place: Tensor
    """(B,) 1 + place, or FOREIGN; 0 for nothing."""
    last_actions: Tensor
    """(B, 3) 0 for none, else 1 + action."""
    patches: Tensor
    """(P, 4, 9) contents, places, traces and visits of the cells."""
    patch_frame: Tensor
    """(P,) the frame that the patch belongs to."""
    patch_index: Tensor
    """(P,) where the patch is in the grid around the agent."""
    patch_at: Tensor
    event_kind: Tensor
    """(E,)"""
    event_class: Tensor
    """(E, 5) classes of the thing and of the four neighbors, 0 for none."""
    event_rank: Tensor
    """(E, 2): how many entries happened, at last, after this one at last, and no earlier than this one at first."""
    event_at: Tensor
    word: Tensor
    """(W,) token ids."""
    word_index: Tensor
    """(W,) their places in the mission."""
    word_at: Tensor


@torch.no_grad()
def tokenize_frames(frames: Frames, vectors: Tensor) -> Tokens:
    """The tokens of frames; vectors: (4, 2), one step at each heading."""
    pose = frames.pose.long()
    grid = _turn_map(frames.cells, pose, vectors)
    seen_patches = (grid != 0).any(2)
    used_events = frames.times[:, 1] >= 0
    words = frames.missions != 0
    present = torch.cat([torch.ones_like(words[:, :1]), seen_patches, used_events, words], 1)
    lengths = present.sum(1)
    # The position of each token, if it is present.
    at = present.flatten().cumsum(0).view(present.shape) - 1
    first_event = 1 + NUM_PATCHES
    first_word = first_event + LOG_SIZE
    patch_frame, patch_index = seen_patches.nonzero(as_tuple=True)
    event_frame, event_index = used_events.nonzero(as_tuple=True)
    word_frame, word_index = words.nonzero(as_tuple=True)
    kind, thing, neighbors = unpack_keys(frames.keys[event_frame, event_index])
    cells = grid[patch_frame, patch_index]
    return Tokens(
        ends=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int(),
        longest=int(lengths.max()),
        carried=pose[:, CARRIED],
        carried_place=pose[:, CARRIED_PLACE],
        last_actions=pose[:, LAST_ACTIONS] + 1,
        patches=torch.stack([cells >> shift & 255 for shift in (0, 8, 16, 24)], 1),
        patch_frame=patch_frame,
        patch_index=patch_index,
        patch_at=at[patch_frame, 1 + patch_index],
        event_kind=kind,
        event_class=torch.cat([thing[:, None], neighbors], 1),
        event_rank=_rank_events(frames.times)[event_frame, event_index],
        event_at=at[event_frame, first_event + event_index],
        word=frames.missions[word_frame, word_index].long(),
        word_index=word_index,
        word_at=at[word_frame, first_word + word_index],
    )


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
