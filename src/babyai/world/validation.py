"""What makes a world record valid. Kernels trust records, so everything from outside is checked here first.

Snapshots, run folders and recipes that users wrote can contain any bytes. The kernels step without bounds checks: a
heading of 7, an agent outside the grid or a border without wall would read and write beyond the record.
"""

import numpy as np

from babyai._jit import njit
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    BEHIND,
    BOX,
    COLORS,
    DOOR,
    DOOR_LOCKED,
    EMPTY,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    MINIGRID_TYPES,
    NO_CLAUSE,
    NUM_ACTIONS,
    OPAQUE,
    PUT_NEXT,
    SINGLE,
    WALL_CELL,
)
from babyai.world.state import MAX_CLAUSES, MAX_DESCRIPTORS, MAX_SIZE, MIN_SIZE, NUM_CELLS, ORIGIN, STRIDE

NUM_COLORS = len(COLORS)
ONE = np.uint64(1)
(
    VALID,
    BAD_SIZE,
    BAD_BORDER,
    BAD_CELL,
    BAD_AGENT,
    BAD_CARRIED,
    BAD_TRACKS,
    BAD_CLOCK,
    BAD_FLAGS,
    BAD_INSTRUCTION,
    BAD_GENERATOR,
) = range(11)
FAULT_MESSAGES = (
    "",
    f"its grid or rooms have an impossible size (a grid has {MIN_SIZE} to {MAX_SIZE} cells per side)",
    "its border is not wall",
    "it has a cell that is no wall, door or object",
    "its agent is not on an empty cell or an open door, or has no heading in 0..3",
    "its agent carries something that cannot be carried",
    "it tracks objects outside the grid",
    "its step count or time limit is negative, or zero",
    "it has flags that do not exist",
    "it has no instruction, or an incomplete one",
    "its random generator is in an impossible state",
)


@njit
def is_object(cell):
    """Returns whether a byte is a key, ball or box."""
    return cell & KIND_MASK >= KEY and (cell >> 4) & 7 < NUM_COLORS and cell & OPAQUE == 0


@njit
def _is_cell(cell):
    """Returns whether a byte may be inside the grid."""
    kind = cell & KIND_MASK
    if cell == EMPTY or cell == WALL_CELL or is_object(cell):
        return True
    if (cell >> 4) & 7 >= NUM_COLORS or cell & MARKED:
        return False
    return kind == DOOR or (kind == LOCKED_DOOR and cell & OPAQUE != 0)


@njit
def _check_sizes(s):
    width = int(s.width)
    height = int(s.height)
    room_width = int(s.room_width)
    room_height = int(s.room_height)
    if width < MIN_SIZE or width > MAX_SIZE or height < MIN_SIZE or height > MAX_SIZE:
        return False
    if room_width < MIN_SIZE or room_height < MIN_SIZE:
        return False
    return (width - 1) % (room_width - 1) == 0 and (height - 1) % (room_height - 1) == 0


@njit
def _find_cell_fault(s):
    """Checks every cell and its tracks: wall on and beyond the border, something that exists inside."""
    box_filled = is_object(int(s.hidden)) and s.hidden & MARKED == 0
    if s.hidden and not box_filled:
        return BAD_CELL
    for p in range(NUM_CELLS):
        y, x = divmod(p - ORIGIN, STRIDE)
        cell = int(s.cells[p])
        if x < 1 or y < 1 or x >= int(s.width) - 1 or y >= int(s.height) - 1:
            if cell != WALL_CELL:
                return BAD_BORDER
            if p >= ORIGIN and p - ORIGIN < len(s.tracks) and s.tracks[p - ORIGIN]:
                return BAD_TRACKS
        elif not _is_cell(cell) or (cell & KIND_MASK == BOX and cell & MARKED and not box_filled):
            return BAD_CELL
    return VALID


@njit
def _check_agent(s):
    """Returns whether the agent is inside the grid, where it can stand."""
    y, x = divmod(int(s.agent) - ORIGIN, STRIDE)
    if s.agent_dir > 3 or x < 1 or y < 1 or x >= int(s.width) - 1 or y >= int(s.height) - 1:
        return False
    cell = int(s.cells[int(s.agent)])
    return cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR


@njit
def _check_carried(s):
    held = int(s.carrying)
    if not held:
        return s.carried_tracks == 0
    is_empty_marked_box = held & KIND_MASK == BOX and held & MARKED and not s.hidden
    return is_object(held) and not is_empty_marked_box


@njit
def _check_flags(s):
    bits = int(s.clauses_done) | int(s.clauses_checked) | int(s.clauses_matched) | int(s.strict)
    return bits < 1 << MAX_CLAUSES and s.options < 4 and s.stale < 2 and s.first_side_done < 2


@njit
def _check_instruction(s):
    """Returns whether the clauses make a whole instruction, one side or two sides in order, of words that exist."""
    for k in range(MAX_CLAUSES):
        if s.verbs[k] > PUT_NEXT:
            return False
    for k in range(MAX_DESCRIPTORS):
        noun = int(s.nouns[k])
        if noun > BOX or (0 < noun < DOOR) or s.colors[k] > ANY_COLOR or s.places[k] > BEHIND:
            return False
    if s.verbs[0] == NO_CLAUSE or (s.verbs[3] != NO_CLAUSE and s.verbs[2] == NO_CLAUSE):
        return False
    return s.order <= AFTER and (s.order == SINGLE) == (s.verbs[2] == NO_CLAUSE)


@njit
def _check_generator(s):
    """Returns whether the generator was seeded, which makes the increment odd, or is blank."""
    if s.rng_has_spare > 1 or s.seed < 0:
        return False
    blank = s.rng_high == 0 and s.rng_low == 0 and s.rng_inc_high == 0 and s.rng_inc_low == 0 and s.rng_has_spare == 0
    return blank or int(s.rng_inc_low & ONE) == 1


@njit
def find_recipe_fault(s):
    """Returns what is wrong with a world that a recipe has just built, as `find_fault` does."""
    if not _check_sizes(s):
        return BAD_SIZE
    fault = _find_cell_fault(s)
    if fault != VALID:
        return fault
    if not _check_agent(s):
        return BAD_AGENT
    if not _check_carried(s):
        return BAD_CARRIED
    return VALID if _check_instruction(s) else BAD_INSTRUCTION


@njit
def find_fault(s):
    """Returns what is wrong with a world that has been reset, as an index in FAULT_MESSAGES; VALID if nothing is."""
    fault = find_recipe_fault(s)
    if fault != VALID:
        return fault
    if s.step_count < 0 or s.max_steps < 1:
        return BAD_CLOCK
    if not _check_flags(s):
        return BAD_FLAGS
    return VALID if _check_generator(s) else BAD_GENERATOR


def check_images(images: np.ndarray) -> np.ndarray:
    """Symbolic views from outside, (..., 3) uint8, after checking that their symbols exist.

    Raises:
        ValueError: They do not; networks look symbols up in tables.
    """
    if (images >= np.array([len(MINIGRID_TYPES), NUM_COLORS, DOOR_LOCKED + 1])).any():
        raise ValueError("the saved images are damaged: they have symbols that do not exist")
    return images


def check_last_actions(actions: np.ndarray) -> np.ndarray:
    """Last actions from outside, -1 where an episode starts, after checking that they exist.

    Raises:
        ValueError: They do not.
    """
    if (actions < -1).any() or (actions >= NUM_ACTIONS).any():
        raise ValueError("the saved actions are damaged: they have actions that do not exist")
    return actions
