"""Compiled loops over a batch of worlds: reset and step. `babyai.engine` is their interface."""

import functools

import numba

from babyai._jit import entry, njit
from babyai.levels.build import MAX_ATTEMPTS, accept, begin_attempt, begin_episode, take_in_hand
from babyai.levels.dispatch import follow_recipe
from babyai.levels.draft import MAX_THINGS
from babyai.world.actions import act
from babyai.world.codes import KIND_MASK, NUM_ACTIONS, PUT_NEXT, WALL
from babyai.world.judge import ONGOING, SUCCESS, begin_tracking, can_be_put, judge
from babyai.world.mission import write_mission
from babyai.world.random import seed_generator
from babyai.world.state import ENDED, MAX_CLAUSES, NOT_RESET, ORIGIN, STRIDE
from babyai.world.validation import VALID, find_fault, find_recipe_fault
from babyai.world.view import VIEW_SIZE, write_view, write_view_of_size

NO_SEED = -1
OK = -1
# What resets return for world i if its recipe built an invalid world: REFUSED - i.
REFUSED = -2


@njit
def observe(s, size, views, i):
    """Writes world i's view into the flat buffer."""
    if size == VIEW_SIZE:
        write_view(s, views, i * size * size * 3)
    else:
        write_view_of_size(s, size, views, i * size * size * 3)


@njit
def _finish_reset(s, d, level, size, views, directions, missions, i):
    """Starts the episode of a newly generated world, and writes its observation."""
    begin_episode(s, level)
    write_mission(s, missions[i])
    if level.carrying and not level.minigrid:
        take_in_hand(s, d)
    observe(s, size, views, i)
    directions[i] = s.agent_dir
    if level.carrying and level.minigrid:
        # Minigrid hands the object over after the first observation.
        take_in_hand(s, d)


@entry
def reset_batch(worlds, chosen, seeds, levels, draft, size, views, directions, missions, first, last):
    """Starts an episode in each chosen world of [first, last); returns a world that could not be generated, or OK.

    With a seed of NO_SEED the world's generator continues. `draft` must not be shared with another thread.
    """
    d = draft[0]
    for i in range(first, last):
        if not chosen[i]:
            continue
        s = worlds[i]
        level = levels[int(s.level)]
        if seeds[i] != NO_SEED:
            seed_generator(s, seeds[i])
        for _ in range(MAX_ATTEMPTS):
            begin_attempt(s, d, level)
            if follow_recipe(s, d, level) and accept(s, d):
                break
        else:
            s.status = NOT_RESET
            return i
        _finish_reset(s, d, level, size, views, directions, missions, i)
    return OK


@functools.cache
def compile_reset(recipe):
    """`reset_batch` for worlds of one level with a custom recipe; compiled for this process only.

    Unlike built-in recipes, which are tested, a custom one is checked: kernels would trust whatever world it builds.
    The loop is repeated here because Numba cannot cache a function that is passed another one.
    """
    follow = njit(recipe)

    @numba.njit(nogil=True)
    def reset_own_batch(worlds, chosen, seeds, levels, draft, size, views, directions, missions, first, last):
        d = draft[0]
        for i in range(first, last):
            if not chosen[i]:
                continue
            s = worlds[i]
            level = levels[int(s.level)]
            if seeds[i] != NO_SEED:
                seed_generator(s, seeds[i])
            for _ in range(MAX_ATTEMPTS):
                begin_attempt(s, d, level)
                if not follow(s, d, level):
                    continue
                if find_recipe_fault(s) != VALID:
                    s.status = NOT_RESET
                    return REFUSED - i
                if accept(s, d):
                    break
            else:
                s.status = NOT_RESET
                return i
            _finish_reset(s, d, level, size, views, directions, missions, i)
        return OK

    return reset_own_batch


@entry
def find_world_fault(worlds, i, has_begun):
    """What is wrong with world i: an index in `FAULT_MESSAGES`, or VALID. `has_begun`: its episode has been started."""
    return find_fault(worlds[i]) if has_begun else find_recipe_fault(worlds[i])


@entry
def instruct_world(worlds, i, levels, draft, definite, own_limit):
    """Starts an episode with the mission that is already in the record, in the world as it is.

    Returns a bit for each descriptor that matches nothing and, from bit 8 on, for each put clause that is impossible;
    0 if there are none. With `own_limit`, the level's fixed time limit applies.
    """
    s, d = worlds[i], draft[0]
    d.count = 0
    for x in range(int(s.width)):
        for y in range(int(s.height)):
            p = ORIGIN + y * STRIDE + x
            if s.cells[p] & KIND_MASK > WALL and d.count < MAX_THINGS:
                d.things[d.count] = p
                d.count += 1
    faults = begin_tracking(s, d.things, d.count)
    s.definite = definite
    for clause in range(MAX_CLAUSES):
        if s.verbs[clause] == PUT_NEXT and not can_be_put(s, d.things, d.count, clause):
            faults |= 256 << clause
    limit = begin_episode(s, levels[int(s.level)])
    if not own_limit:
        s.max_steps = limit
    return faults


@entry
def observe_batch(worlds, chosen, size, views, directions, missions, first, last):
    """Writes the observations of the chosen worlds of [first, last)."""
    for i in range(first, last):
        if chosen[i]:
            s = worlds[i]
            write_mission(s, missions[i])
            observe(s, size, views, i)
            directions[i] = s.agent_dir


@entry
def find_invalid_step(actions, done, skip_done, first, last):
    """The first world whose action is out of range, or whose episode has ended without `skip_done`; or OK."""
    for i in range(first, last):
        if actions[i] < 0 or actions[i] >= NUM_ACTIONS or (done[i] and not skip_done):
            return i
    return OK


@njit
def step_world(s, action):
    """One step of one world: its reward, terminated, truncated, and whether its view must be drawn again."""
    held = int(s.carrying)
    held_tracks = int(s.carried_tracks)
    changed = act(s, action)
    s.step_count += 1
    verdict = judge(s, action, held, held_tracks)
    reward = 1.0 - 0.9 * (s.step_count / s.max_steps) if verdict == SUCCESS else 0.0
    # Under Minigrid's rules the first view of a Carrying level is out of date as soon as it is shown.
    return reward, verdict != ONGOING, s.step_count >= s.max_steps, changed or s.step_count == 1


@entry
def step_batch(worlds, actions, done, skip_done, size, views, directions, rewards, terminated, truncated, first, last):
    """One action in each world of [first, last) whose episode has not ended; returns a world it is invalid for, or OK.

    Nothing is changed if there is one. Worlds whose episode ends now are marked in `done`.
    """
    invalid = find_invalid_step(actions, done, skip_done, first, last)
    if invalid != OK:
        return invalid
    for i in range(first, last):
        rewards[i] = 0.0
        terminated[i] = False
        truncated[i] = False
        if done[i]:
            continue
        s = worlds[i]
        rewards[i], terminated[i], truncated[i], changed = step_world(s, actions[i])
        if terminated[i] or truncated[i]:
            s.status = ENDED
            done[i] = True
        # Where nothing changed, the view of the step before still stands in the buffer.
        if changed:
            observe(s, size, views, i)
            directions[i] = s.agent_dir
    return OK
