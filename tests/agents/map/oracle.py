"""Rebuilds the judge's state from a map agent's memory and the mission: what is only possible if nothing is missing."""

import numpy as np
import torch

from babyai.agents.map import codes
from babyai.agents.map.events import unpack_keys
from babyai.agents.map.memory import Memory, class_at
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANY_NOUN,
    ANYWHERE,
    BALL,
    BEHIND,
    BOX,
    DOOR,
    GO_TO,
    IN_FRONT,
    KEY,
    NO_CLAUSE,
    ON_LEFT,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
)
from babyai.world.state import MAX_DESCRIPTORS

EVENT_OF_VERB = {GO_TO: codes.FACED, PICK_UP: codes.PICKED_UP, OPEN: codes.OPENED, PUT_NEXT: codes.DROPPED}
NEVER = 1 << 20


def _describe_class(number: int) -> tuple[int, int, int, int]:
    """Noun, color, and the signs of ahead and right (2: outside the start room) of a class."""
    content, place = divmod(number, codes.NUM_PLACES)
    if content < codes.FIRST_DOOR or content >= codes.NUM_CONTENTS:
        return -1, -1, 2, 2
    if content < codes.FIRST_THING:
        noun = DOOR
        color = (content - codes.FIRST_DOOR) // 3
    else:
        kind, color = divmod(content - codes.FIRST_THING, 6)
        noun = (KEY, BALL, BOX)[kind]
    if place == codes.OUTSIDE:
        return noun, color, 2, 2
    return noun, color, (place - 1) // 3 - 1, (place - 1) % 3 - 1


CLASSES = np.array([_describe_class(number) for number in range(codes.NUM_CLASSES)])


def matches_table(worlds: np.ndarray) -> np.ndarray:
    """(N, 8, classes) bool: which classes each descriptor of each world's mission refers to."""
    noun, color, ahead, right = CLASSES.T
    nouns = worlds["nouns"][..., None]
    colors = worlds["colors"][..., None]
    places = worlds["places"][..., None]
    fits = ((nouns == ANY_NOUN) | (nouns == noun)) & ((colors == ANY_COLOR) | (colors == color)) & (noun >= 0)
    side = np.select(
        [places == IN_FRONT, places == BEHIND, places == ON_LEFT], [ahead == 1, ahead == -1, right == -1], right == 1
    )
    verbs = np.repeat(worlds["verbs"], 2, axis=1)
    used = (verbs == PUT_NEXT) | ((verbs != NO_CLAUSE) & (np.arange(MAX_DESCRIPTORS) % 2 == 0))
    return fits & ((places == ANYWHERE) | side) & used[..., None]


def rebuild_tracks(memory: Memory, table: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Track bits of cells, and of what is carried.

    Args:
        memory: Of N lanes.
        table: See `matches_table`.
        index: (N, K, 2) cells, ahead and right of the start.
    """
    lanes, cells, _ = index.shape
    flat = Memory(*(part.repeat_interleave(cells, 0) if torch.is_tensor(part) else part for part in memory))
    classes = class_at(flat, torch.from_numpy(index.reshape(-1, 2))).reshape(lanes, cells).numpy()
    weights = 1 << np.arange(MAX_DESCRIPTORS)
    rows = np.arange(lanes)
    bits = np.zeros((lanes, cells), dtype=np.int64)
    carried_bits = np.zeros(lanes, dtype=np.int64)
    carried = (memory.carried.long() * codes.NUM_PLACES + memory.carried_place.long() - 1).numpy()
    is_carried = (memory.carried.numpy() > 0) & (memory.carried_place.numpy() != codes.FOREIGN)
    for k in range(MAX_DESCRIPTORS):
        bits += weights[k] * (table[rows[:, None], k, classes] & (classes > 0))
        carried_bits += weights[k] * (is_carried & table[rows, k, np.where(is_carried, carried, 0)])
    return bits, carried_bits


def rebuild_progress(memory: Memory, worlds: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`first_side_done` and `clauses_done`."""
    kinds, things, neighbors = (part.numpy() for part in unpack_keys(memory.log.keys))
    used = memory.log.last.numpy() >= 0
    rows = np.arange(len(worlds))[:, None]
    first = np.full((len(worlds), 4), NEVER)
    last = np.full((len(worlds), 4), -1)
    for k in range(4):
        verb = worlds["verbs"][:, k]
        wanted = np.select([verb == each for each in EVENT_OF_VERB], list(EVENT_OF_VERB.values()), 0)
        hit = used & (kinds == wanted[:, None]) & (things > 0) & table[rows, 2 * k, things]
        near = (table[rows[..., None], 2 * k + 1, neighbors] & (neighbors > 0)).any(-1)
        hit &= (verb != PUT_NEXT)[:, None] | near
        first[:, k] = np.where(hit, memory.log.first.long().numpy(), NEVER).min(1)
        last[:, k] = np.where(hit, memory.log.last.numpy(), -1).max(1)
    has = worlds["verbs"] != NO_CLAUSE
    order = worlds["order"]
    early = np.where((order == AFTER)[:, None], [False, False, True, True], [True, True, False, False])
    end = np.where(early & has, first, -1).max(1)
    is_put = worlds["verbs"] == PUT_NEXT
    later = np.where(is_put, last > end[:, None], last >= end[:, None])
    done = has & np.where(early, first < NEVER, later & (end < NEVER)[:, None])
    paired = np.repeat(has[:, 1::2], 2, axis=1)
    clauses = ((done & paired) << np.arange(4)).sum(1)
    return (order != SINGLE) & (end < NEVER), clauses
