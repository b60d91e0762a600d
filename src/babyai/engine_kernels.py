"""The compiled loops over a batch of worlds: reset and step. `engine` is what people call."""

import functools

import numba

from babyai._jit import entry, njit
from babyai.levels.build import MAX_ATTEMPTS, accept, begin_attempt, begin_episode, take_in_hand
from babyai.levels.dispatch import follow_recipe
from babyai.levels.draft import MAX_THINGS
from babyai.world.actions import act
from babyai.world.codes import KIND_MASK, NUM_ACTIONS, PUT_NEXT, WALL
from babyai.world.judge import GOES_ON, SUCCESS, begin_tracking, can_be_put, judge
from babyai.world.mission import write_mission
from babyai.world.random import seed_generator
from babyai.world.state import ENDED, MAX_CLAUSES, NOT_RESET, ORIGIN, STRIDE
from babyai.world.view import VIEW_SIZE, write_view, write_view_of_size

NO_SEED = -1
FINE = -1


@njit
def observe(s, size, views, i):
    """Writes world i's view into the flat buffer."""
    if size == VIEW_SIZE:
        write_view(s, views, i * size * size * 3)
    else:
        write_view_of_size(s, size, views, i * size * size * 3)


@njit
def _finish_reset(s, d, level, size, views, directions, missions, i):
    """Begins the episode of a world just generated, and shows it."""
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
    """Begins a new episode in each chosen world of [first, last); returns a world that could not be made, or FINE.

    A seed of NO_SEED lets the world's generator go on. `draft` must not be shared with another thread.
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
    return FINE


@functools.cache
def compile_reset(recipe):
    """`reset_batch` for worlds of one level whose recipe comes from outside; compiled for this process only.

    The loop stands here a second time because Numba cannot keep one on disk that is handed a function.
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
                if follow(s, d, level) and accept(s, d):
                    break
            else:
                s.status = NOT_RESET
                return i
            _finish_reset(s, d, level, size, views, directions, missions, i)
        return FINE

    return reset_own_batch


@entry
def instruct_world(worlds, i, levels, draft, definite, own_limit):
    """Begins an episode with the mission already in the record, in the world as it stands.

    Returns the bits of the descriptors that name nothing here and, from bit 8 on, of the put clauses that cannot be
    carried out; 0 if all is well. `own_limit` lets the level's fixed time limit stand.
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
    """Shows the chosen worlds of [first, last) as they stand."""
    for i in range(first, last):
        if chosen[i]:
            s = worlds[i]
            write_mission(s, missions[i])
            observe(s, size, views, i)
            directions[i] = s.agent_dir


@entry
def find_misfit(actions, done, skip_done, first, last):
    """The first world whose action is out of range, or whose episode has ended without `skip_done`; or FINE."""
    for i in range(first, last):
        if actions[i] < 0 or actions[i] >= NUM_ACTIONS or (done[i] and not skip_done):
            return i
    return FINE


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
    return reward, verdict != GOES_ON, s.step_count >= s.max_steps, changed or s.step_count == 1


@entry
def step_batch(worlds, actions, done, skip_done, size, views, directions, rewards, terminated, truncated, first, last):
    """One action in each world of [first, last) whose episode is not over; returns a world that misfits, or FINE.

    Nothing has been changed if there is a misfit. Worlds whose episode ends now are marked in `done`.
    """
    misfit = find_misfit(actions, done, skip_done, first, last)
    if misfit != FINE:
        return misfit
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
    return FINE
