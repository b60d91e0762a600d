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

from babyai.agents.compilation import compilable_dynamic
from babyai.agents.map import codes
from babyai.agents.map.events import unpack_keys
from babyai.agents.map.memory import NUM_LAST_ACTIONS, Memory, place_of
from babyai.agents.map.padding import PADDING_SEQUENCES, Sizes
from babyai.world.codes import NUM_ACTIONS
from babyai.world.view import VIEW_SIZE

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
BEHIND_AND_LEFT = slice(5, 7)
WALLS = slice(7, 11)
CARRIED = 11
CARRIED_PLACE = 12
LAST_ACTIONS = slice(13, 13 + NUM_LAST_ACTIONS)
ACTION_COUNTS = slice(LAST_ACTIONS.stop, LAST_ACTIONS.stop + NUM_ACTIONS)


class Frames(NamedTuple):
    """What B frames hold that the network reads: small integers, to be stored by the million."""

    cells: Tensor
    """(B, 4, 24, 24) uint8: contents, places, traces and visits, as in `Memory`."""
    pose: Tensor
    """(B, 23) int8: position, heading, extent, walls, carried content and its place, last actions, and how often each
    action was taken in this state; see `POSITION`."""
    keys: Tensor
    """(B, 48) int64, the log."""
    times: Tensor
    """(B, 2, 48) int16, first and last times of the log's entries."""
    missions: Tensor
    """(B, 72) uint8 token ids."""


def frames_of(memory: Memory, missions: Tensor) -> Frames:
    """The frames of N lanes; missions: (N, L)."""
    parts = [memory.position, memory.heading[:, None], memory.extent, memory.walls]
    parts += [memory.carried[:, None], memory.carried_place[:, None], memory.last_actions, memory.history.counts]
    pose = torch.cat([part.to(torch.int8) for part in parts], 1)
    cells = torch.stack([memory.contents, memory.places, memory.traces, memory.visits], 1)
    times = torch.stack([memory.log.first, memory.log.last], 1)
    return Frames(cells, pose, memory.log.keys, times, missions)


def find_revisits(frames: Frames) -> Tensor:
    """(B,) bool, whether the agent has been in the same state before."""
    return (frames.pose[:, ACTION_COUNTS] > 0).any(1)


def hide_frames(frames: Frames, hidden: Tensor) -> Frames:
    """The frames, with no tokens but the agent's where hidden, (B,): for frames whose action is not used."""
    return frames._replace(
        cells=torch.where(hidden[:, None, None, None], 0, frames.cells),
        times=torch.where(hidden[:, None, None], -1, frames.times),
        missions=torch.where(hidden[:, None], 0, frames.missions),
    )


class Tokens(NamedTuple):
    """The tokens of B frames, T in all, with the features of each sort of token.

    `*_at` are positions in the packed sequence. Padding, if there is any, comes after the last frame.
    """

    ends: Tensor
    """(S + 1,) int32, where sequences end: frame i has the tokens ends[i] to ends[i + 1] - 1, the agent's first."""
    longest: int
    """No sequence has more tokens."""
    carried: Tensor
    """(B,) content."""
    carried_place: Tensor
    """(B,) 1 + place, or FOREIGN; 0 for nothing."""
    last_actions: Tensor
    """(B, 3) 0 for none, else 1 + action."""
    action_counts: Tensor
    """(B, 7) how often each action was taken in this state."""
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

    patches: Tensor
    """(B, 289) bool."""
    events: Tensor
    """(B, 48) bool."""
    words: Tensor
    """(B, 72) bool."""

    def tokens(self) -> Tensor:
        """(B, 410) bool: the agent, patches, events, words."""
        return torch.cat([torch.ones_like(self.words[:, :1]), *self], 1)


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
@compilable_dynamic
def count_tokens(frames: Frames, vectors: Tensor, without: Collection[str] = ()) -> Tensor:
    """(7,) the `Sizes` of frames, on their device; what is left out may be counted among cells and neighbors."""
    present = _look(frames, vectors, without)
    is_known, _, is_traced, is_visited = (frames.cells > 0).unbind(1)
    _, classes = _unpack_events(frames.keys)
    counts = [mask.sum() for mask in present]
    counts += [(is_known & is_traced).sum(), (is_known & is_visited).sum()]
    counts += [(present.events[:, :, None] & (classes[:, :, 1:] > 0)).sum(), present.tokens().sum(1).max()]
    return torch.stack(counts)


@torch.no_grad()
def tokenize_frames(
    frames: Frames, vectors: Tensor, room: Sizes | None = None, without: Collection[str] = ()
) -> Tokens:
    """The tokens of frames.

    Args:
        frames: B frames.
        vectors: (4, 2), one step at each heading.
        room: Pad to these sizes, for which `Capacities` leave enough room; default: no padding.
        without: What to leave out, of `config.MAP_PARTS`.
    """
    present = _look(frames, vectors, without)
    tokens = present.tokens()
    lengths = tokens.sum(1)
    patches, events, words = _find_tokens(present, tokens, room)
    cells = _read_patches(frames, vectors, patches, without)
    kinds, classes = _unpack_events(frames.keys[events.frame, events.slot])
    classes = classes * events.is_real[:, None]
    carried_place = frames.pose[:, CARRIED_PLACE].int()
    if "places" in without:
        classes = classes - classes % codes.NUM_PLACES + (classes > 0) * codes.OUTSIDE
        carried_place = carried_place.clamp(max=1 + codes.OUTSIDE)
    action_counts = frames.pose[:, ACTION_COUNTS]
    if "history" in without:
        action_counts = torch.zeros_like(action_counts)
    _, _, traces, visits = (cells > 0).unbind(1)
    traced, visited, neighbors = (None,) * 3 if room is None else (room.traced, room.visited, room.neighbors)
    return Tokens(
        ends=_end_sequences(lengths, room),
        longest=int(lengths.max()) if room is None else room.longest,
        carried=frames.pose[:, CARRIED].int(),
        carried_place=carried_place,
        last_actions=frames.pose[:, LAST_ACTIONS].int() + 1,
        action_counts=action_counts,
        patches=cells,
        patch_frame=torch.where(patches.is_real, patches.frame, len(lengths)),
        patch_index=patches.slot,
        patch_at=patches.at,
        traced=_find_flat(traces, traced),
        visited=_find_flat(visits, visited),
        event_kind=kinds,
        event_class=classes,
        event_rank=_rank_events(frames.times)[events.frame, events.slot],
        event_at=events.at,
        neighbors=_find_flat(classes[:, 1:] > 0, neighbors),
        word=frames.missions[words.frame, words.slot].int(),
        word_index=words.slot,
        word_at=words.at,
    )


@compilable_dynamic
def _look(frames: Frames, vectors: Tensor, without: Collection[str]) -> Present:
    patch = torch.arange(NUM_PATCHES, dtype=torch.int32, device=vectors.device)
    ahead, right, on_map = _locate_cells(frames.pose.int()[:, None], vectors, patch, without)
    index = _flat_index(ahead, right)
    contents = frames.cells[:, 0].flatten(1).gather(1, index.flatten(1)).view_as(index)
    events = frames.times[:, 1] >= 0
    if "events" in without:
        events = torch.zeros_like(events)
    return Present(((contents > 0) & on_map).any(2), events, frames.missions != 0)


def _locate_cells(
    pose: Tensor, vectors: Tensor, patch: Tensor, without: Collection[str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the cells of patches are, ahead and right of the start, and whether the map reaches them.

    Of a cell on the map, only coordinates modulo 24 are known. Which they are follows from how far the map reaches.

    Args:
        pose: (..., 23), see `Frames`.
        vectors: (4, 2), one step at each heading.
        patch: (...) where the patches are in the grid around the agent.
        without: What to leave out.
    """
    cell = torch.arange(CELLS, dtype=torch.int32, device=pose.device)
    up = (patch // GRID * PATCH - REACH)[..., None] + cell // PATCH
    across = (patch % GRID * PATCH - REACH)[..., None] + cell % PATCH
    heading = pose[..., HEADING]
    step = vectors.int()[heading][..., None]
    side = vectors.int()[(heading + 1) % 4][..., None]
    agent_ahead, agent_right = pose[..., POSITION, None].unbind(-2)
    # Not as pairs, for which compiled code would need memory.
    ahead = agent_ahead + up * step[..., 0, :] + across * side[..., 0, :]
    right = agent_right + up * step[..., 1, :] + across * side[..., 1, :]
    behind, left = pose[..., BEHIND_AND_LEFT, None].unbind(-2)
    on_map = (ahead >= -behind) & (ahead < SIZE - behind) & (right >= -left) & (right < SIZE - left)
    if "map" in without:
        on_map = on_map & (up >= 0) & (up < VIEW_SIZE) & (across.abs() <= VIEW_SIZE // 2)
    return ahead, right, on_map


def _flat_index(ahead: Tensor, right: Tensor) -> Tensor:
    """The index of cells in the flattened map."""
    return (ahead % SIZE * SIZE + right % SIZE).long()


@compilable_dynamic
def _read_patches(frames: Frames, vectors: Tensor, patches: Found, without: Collection[str]) -> Tensor:
    """(P, 4, 9) int32: contents, places, traces and visits of the cells of patches, 0 where nothing is known."""
    pose = frames.pose[patches.frame].int()
    ahead, right, on_map = _locate_cells(pose, vectors, patches.slot.int(), without)
    planes = torch.arange(4, device=pose.device)[:, None] * SIZE * SIZE
    start = patches.frame[:, None, None] * 4 * SIZE * SIZE
    index = start + planes + _flat_index(ahead, right)[:, None]
    contents, places, traces, visits = frames.cells.flatten()[index].int().unbind(1)
    is_known = on_map & (contents > 0) & patches.is_real[:, None]
    places = torch.where(places == codes.NATIVE, 1 + place_of(torch.stack([ahead, right], -1), pose[:, WALLS]), places)
    if "places" in without:
        places = torch.full_like(places, 1 + codes.OUTSIDE)
    turns = 2 * pose[:, HEADING, None]
    visits = (visits >> turns | visits << (8 - turns)) & 255
    if "visits" in without:
        visits = torch.zeros_like(visits)
    return torch.where(is_known[:, None], torch.stack([contents, places, traces, visits], 1), 0)


def _unpack_events(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Kinds (...), and classes of things and their four neighbors (..., 5)."""
    kinds, things, neighbors = unpack_keys(keys)
    return kinds, torch.cat([things[..., None], neighbors], -1)


def _find_tokens(present: Present, tokens: Tensor, room: Sizes | None) -> list[Found]:
    """The patches, events and words; padding has the last positions."""
    positions = tokens.flatten().cumsum(0).view(tokens.shape) - 1
    first = 1
    padding_at = positions[-1, -1] + 1
    sorts = []
    for mask, size in zip(present, room[:3] if room else (None,) * 3, strict=True):
        frame, slot = _find(mask, size).unbind(1)
        number = torch.arange(len(frame), device=mask.device)
        count = mask.sum()
        is_real = number < count
        at = torch.where(is_real, positions[frame, first + slot], padding_at + number - count)
        sorts.append(Found(is_real, frame, slot, at))
        first += mask.shape[1]
        padding_at = padding_at + len(frame) - count
    return sorts


def _find(mask: Tensor, room: int | None, fill: int = 0) -> Tensor:
    """Where a mask is true, (n, dims); padded to `room` rows, without asking the device how many there are."""
    return mask.nonzero() if room is None else torch.nonzero_static(mask, size=room, fill_value=fill)


def _find_flat(mask: Tensor, room: int | None) -> Tensor:
    """(n,) where a flattened mask is true; padded with its last index."""
    return _find(mask.flatten(), room, mask.numel() - 1)[:, 0]


def _end_sequences(lengths: Tensor, room: Sizes | None) -> Tensor:
    """Where frames end and then, if there is padding, sequences that it is divided into."""
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    if room is not None:
        padding = len(lengths) + room.tokens - ends[-1]
        shares = torch.arange(1, PADDING_SEQUENCES + 1, device=ends.device) * padding // PADDING_SEQUENCES
        ends = torch.cat([ends, ends[-1] + shares])
    return ends.int()


@compilable_dynamic
def _rank_events(times: Tensor) -> Tensor:
    """(B, 48, 2): how many entries were last seen after each entry was last seen, and not before it was first seen."""
    first, last = times.unbind(1)
    later = (last[:, None, :] > last[:, :, None]).sum(2)
    since = (last[:, None, :] >= first[:, :, None]).sum(2)
    return torch.stack([later, since], 2)
