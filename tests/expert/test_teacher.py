"""The teacher: wins from every state that can be won, and its advice depends only on what it should."""

import numpy as np
import pytest

from babyai import LEVELS, Engine
from babyai.expert.expert import ExpertBatch
from babyai.expert.state import NO_ADVICE
from babyai.expert.teacher import FAILURE_MESSAGES, LOCKED_OUT, NOTHING_LEFT
from babyai.expert.teacher_path import NO_CELL, REACH, WINDOW
from babyai.world.codes import BALL, DONE, EMPTY, KIND_MASK, LEFT, NUM_ACTIONS, RIGHT, WALL
from babyai.world.state import MAX_SIZE, ORIGIN, STRIDE, index_of, position_of
from tests.expert.solvable import why_lost
from tests.scale import COMPILER_OFF, scaled

RULES = ("paper", "minigrid")
CROWDED = ("PutNextLocalS5N3", "UnblockPickup", "MiniBossLevel", "SynthS5R2", "TestLotsOfBlockers")
# Without the compiler, only some small levels that differ from each other.
SMALL = (
    "PutNextLocalS5N3",
    "PutNextS5N2Carrying",
    "MiniBossLevel",
    "PickupDistDebug",
    "OpenRedDoor",
    "BlockedUnlockPickup",
)
CHOSEN = SMALL if COMPILER_OFF else tuple(LEVELS)


def start(level: str, rules: str, count: int, **options) -> tuple[Engine, ExpertBatch]:
    engine = Engine(level, count, rules=rules, **options)
    engine.reset(0)
    return engine, ExpertBatch(engine, "teacher")


def play_random_actions(engine: Engine, teacher: ExpertBatch) -> None:
    """Plays random actions for a third of the time limit, while the teacher watches."""
    rng = np.random.default_rng(0)
    limits = engine.worlds.max_steps // 3
    for step in range(int(limits.max())):
        teacher.advise()
        acting = ~engine.done & (step < limits)
        # Worlds past a third of their time limit are skipped.
        was_done = engine.done.copy()
        engine.done[:] = ~acting
        engine.step(rng.integers(NUM_ACTIONS, size=engine.num_worlds), skip_done=True)
        engine.done[:] = was_done | (engine.done & acting)


def follow_to_end(engine: Engine, teacher: ExpertBatch) -> tuple[np.ndarray, np.ndarray]:
    """Follows the teacher to the end of all episodes; returns which worlds were won and which were given up."""
    won = np.zeros(engine.num_worlds, dtype=bool)
    given_up = np.zeros(engine.num_worlds, dtype=bool)
    while not (engine.done | given_up).all():
        advice = teacher.advise()
        given_up |= (advice == NO_ADVICE) & ~engine.done
        engine.done |= given_up
        engine.step(np.where(advice == NO_ADVICE, DONE, advice), skip_done=True)
        won |= engine.rewards > 0
    return won, given_up


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("level", CHOSEN)
def test_wins_every_mission_that_can_be_won(level, rules):
    count = scaled(300 if level in CROWDED else 60, least=2)
    engine, teacher = start(level, rules, count)
    before = engine.worlds.copy()
    won, _ = follow_to_end(engine, teacher)
    for seed in np.flatnonzero(~won):
        assert why_lost(before[seed]), f"{level} seed {seed} was not won"


@pytest.mark.parametrize("level", CHOSEN)
def test_wins_from_any_state_that_can_be_won(level):
    engine, teacher = start(level, "paper", scaled(60, least=1))
    play_random_actions(engine, teacher)
    before = engine.worlds.copy()
    already_done = engine.done.copy()
    won, _ = follow_to_end(engine, teacher)
    for seed in np.flatnonzero(~won & ~already_done):
        assert why_lost(before[seed]), f"{level} seed {seed} was not won after random actions"


def rotated(world: np.record) -> np.record:
    """Returns the world rotated by 90 degrees, including the agent."""
    result = world.copy()
    height = int(world.height)
    result.width = world.height
    result.height = world.width
    result.room_width = world.room_height
    result.room_height = world.room_width
    result.cells[:] = world.cells[0]
    result.tracks[:] = 0
    for y in range(height):
        for x in range(world.width):
            p = index_of(x, y)
            q = index_of(height - 1 - y, x)
            result.cells[q] = world.cells[p]
            result.tracks[q - ORIGIN] = world.tracks[p - ORIGIN]
    x, y = position_of(world.agent)
    result.agent = index_of(height - 1 - y, x)
    result.agent_dir = (world.agent_dir + 1) % 4
    return result


@pytest.mark.parametrize("level", ["GoTo", "PutNextLocal", "MiniBossLevel", "Unlock", "KeyInBox", "TestLotsOfBlockers"])
def test_advice_is_invariant_under_rotation(level):
    count = scaled(20, least=1)
    engine, teacher = start(level, "paper", count)
    other, other_teacher = start(level, "paper", count)
    for i in range(count):
        other.worlds[i] = rotated(engine.worlds[i])
    for _ in range(150):
        advice = teacher.advise()
        assert (other_teacher.advise()[~engine.done] == advice[~engine.done]).all()
        if engine.done.all():
            break
        engine.step(advice, skip_done=True)
        other.step(advice, skip_done=True)


@pytest.mark.parametrize("level", ["GoToObjMaze", "PutNext", "UnblockPickup", "BossLevel"])
def test_advice_does_not_depend_on_unseen_cells(level):
    count = scaled(20, least=1)
    engine, teacher = start(level, "paper", count)
    for _ in range(100):
        advice = teacher.advise()
        truth = engine.worlds.copy()
        for world, expert in zip(engine.worlds, teacher.experts, strict=True):
            hidden = (expert.seen == 0) & (world.cells & KIND_MASK != WALL)
            world.cells[hidden] = np.where(world.cells[hidden] == EMPTY, BALL, EMPTY)
            world.tracks[expert.seen[ORIGIN : ORIGIN + STRIDE * MAX_SIZE] == 0] = 0
        # Compare only worlds in which no further cells are seen, so that the knowledge is the same.
        seen = teacher.experts.seen.copy()
        altered_advice = teacher.advise()
        same = (teacher.experts.seen == seen).all(axis=1)
        assert (altered_advice == advice)[same & ~engine.done].all()
        assert same.mean() > 0.9
        engine.worlds[:] = truth
        engine.step(advice, skip_done=True)
        if engine.done.all():
            break


def test_advice_has_no_memory():
    engine, teacher = start("BossLevel", "paper", scaled(50, least=1))
    for _ in range(120):
        advice = teacher.advise()
        fresh = ExpertBatch(engine, "teacher")
        fresh.experts.seen[:] = teacher.experts.seen
        assert (fresh.advise() == advice)[~engine.done].all()
        engine.step(advice, skip_done=True)


def test_paths_lead_where_the_advice_does():
    """With random actions in between, a path is connected and starts in the direction of the advice."""
    center = np.array([REACH, REACH])
    turns = {(0, -1): LEFT, (0, 1): RIGHT}
    for level in ("BossLevel", "UnblockPickup", "GoToImpUnlock"):
        engine, teacher = start(level, "paper", scaled(40, least=1))
        silent = ExpertBatch(engine, "teacher")
        rng = np.random.default_rng(0)
        lengths = []
        for _ in range(60):
            advice, paths = teacher.advise_and_trace()
            np.testing.assert_array_equal(advice, silent.advise())
            for world in np.flatnonzero(~engine.done & (advice >= 0)):
                cells = np.stack(np.divmod(paths[world, 1:], WINDOW), 1)[paths[world, 1:] != NO_CELL]
                steps = np.diff(np.vstack([center, cells]), axis=0)
                assert (np.abs(steps).sum(1) == 1).all()
                lengths.append(len(cells))
                if len(cells) and tuple(steps[0]) in turns:
                    assert advice[world] == turns[tuple(steps[0])]
            random = rng.random(engine.num_worlds) < 0.2
            engine.step(np.where(random | (advice < 0), rng.integers(0, 6, engine.num_worlds), advice), skip_done=True)
        assert np.mean(lengths) > 2


def test_only_the_teacher_has_paths():
    engine, _ = start("GoToObj", "paper", 1)
    with pytest.raises(ValueError, match="teacher"):
        ExpertBatch(engine, "paper").advise_and_trace()


def test_plays_done_with_done_actions():
    engine, teacher = start("BossLevel", "paper", scaled(100, least=1), done_actions=True)
    won, _ = follow_to_end(engine, teacher)
    assert won.all()


def test_gives_up_if_the_target_is_gone():
    engine, teacher = start("GoToObj", "paper", 1)
    engine.lay_out(0, "########\n##>>..##\n##ro..##\n########", "pick up the red ball")
    engine.worlds[0].cells[index_of(1, 2)] = EMPTY
    assert_gives_up(engine, teacher, NOTHING_LEFT)


def test_gives_up_if_the_key_is_locked_in():
    engine, teacher = start("GoToObj", "paper", 1)
    engine.lay_out(0, "##########\n##>>rlrk##\n##########", "open the red door")
    assert_gives_up(engine, teacher, LOCKED_OUT)


def assert_gives_up(engine: Engine, teacher: ExpertBatch, reason: int) -> None:
    teacher.reset()
    while (advice := teacher.advise())[0] != NO_ADVICE:
        engine.step(advice)
    assert engine.worlds[0].step_count < 10
    assert teacher.failure(0) == FAILURE_MESSAGES[reason]
