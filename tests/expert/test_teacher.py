"""The teacher: it wins whatever can be won, from anywhere, and its advice depends on nothing that it should not."""

import numpy as np
import pytest

from babyai import LEVELS, Engine
from babyai.expert.expert import ExpertBatch
from babyai.expert.state import NO_ADVICE
from babyai.expert.teacher import LOCKED_OUT, NOTHING_LEFT, TROUBLE
from babyai.world.codes import BALL, DONE, EMPTY, KIND_MASK, NUM_ACTIONS, WALL
from babyai.world.state import MAX_SIZE, ORIGIN, STRIDE, index_of, position_of
from tests.expert.solvable import why_lost
from tests.scale import COMPILER_OFF, scaled

RULES = ("paper", "minigrid")
CROWDED = ("PutNextLocalS5N3", "UnblockPickup", "MiniBossLevel", "SynthS5R2", "TestLotsOfBlockers")
# Without the compiler, only levels that are small and each in a way of its own.
SMALL = (
    "PutNextLocalS5N3",
    "PutNextS5N2Carrying",
    "MiniBossLevel",
    "PickupDistDebug",
    "OpenRedDoor",
    "BlockedUnlockPickup",
)
CHOSEN = SMALL if COMPILER_OFF else tuple(LEVELS)


def begin(level: str, rules: str, count: int, **options) -> tuple[Engine, ExpertBatch]:
    engine = Engine(level, count, rules=rules, **options)
    engine.reset(0)
    return engine, ExpertBatch(engine, "teacher")


def stir(engine: Engine, teacher: ExpertBatch) -> None:
    """A third of the time goes by with random actions, while the teacher looks on."""
    rng = np.random.default_rng(0)
    limits = engine.worlds.max_steps // 3
    for step in range(int(limits.max())):
        teacher.advise()
        acting = ~engine.done & (step < limits)
        # Only the worlds whose time is not up take part.
        resting = engine.done.copy()
        engine.done[:] = ~acting
        engine.step(rng.integers(NUM_ACTIONS, size=engine.num_worlds), skip_done=True)
        engine.done[:] = resting | (engine.done & acting)


def finish(engine: Engine, teacher: ExpertBatch) -> tuple[np.ndarray, np.ndarray]:
    """Follows the teacher to the end; returns which worlds were won, and which it gave up."""
    won, given_up = np.zeros(engine.num_worlds, dtype=bool), np.zeros(engine.num_worlds, dtype=bool)
    while not (engine.done | given_up).all():
        advice = teacher.advise()
        given_up |= (advice == NO_ADVICE) & ~engine.done
        engine.done |= given_up
        engine.step(np.where(advice == NO_ADVICE, DONE, advice), skip_done=True)
        won |= engine.rewards > 0
    return won, given_up


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("level", CHOSEN)
def test_it_wins_every_mission_that_can_be_won(level, rules):
    count = scaled(300 if level in CROWDED else 60, least=2)
    engine, teacher = begin(level, rules, count)
    before = engine.worlds.copy()
    won, _ = finish(engine, teacher)
    for seed in np.flatnonzero(~won):
        assert why_lost(before[seed]), f"{level} seed {seed} was not won"


@pytest.mark.parametrize("level", CHOSEN)
def test_it_goes_on_from_wherever_it_is_asked(level):
    engine, teacher = begin(level, "paper", scaled(60, least=1))
    stir(engine, teacher)
    before, early = engine.worlds.copy(), engine.done.copy()
    won, _ = finish(engine, teacher)
    for seed in np.flatnonzero(~won & ~early):
        assert why_lost(before[seed]), f"{level} seed {seed} was not won after random actions"


def turned(world: np.record) -> np.record:
    """The same world, seen from the side: everything is turned by a quarter, the agent included."""
    result, height = world.copy(), int(world.height)
    result.width, result.height = world.height, world.width
    result.room_width, result.room_height = world.room_height, world.room_width
    result.cells[:] = world.cells[0]
    result.tracks[:] = 0
    for y in range(height):
        for x in range(world.width):
            p, q = index_of(x, y), index_of(height - 1 - y, x)
            result.cells[q] = world.cells[p]
            result.tracks[q - ORIGIN] = world.tracks[p - ORIGIN]
    x, y = position_of(world.agent)
    result.agent, result.agent_dir = index_of(height - 1 - y, x), (world.agent_dir + 1) % 4
    return result


@pytest.mark.parametrize("level", ["GoTo", "PutNextLocal", "MiniBossLevel", "Unlock", "KeyInBox", "TestLotsOfBlockers"])
def test_the_compass_does_not_matter(level):
    count = scaled(20, least=1)
    engine, teacher = begin(level, "paper", count)
    other, same_teacher = begin(level, "paper", count)
    for i in range(count):
        other.worlds[i] = turned(engine.worlds[i])
    for _ in range(150):
        advice = teacher.advise()
        assert (same_teacher.advise()[~engine.done] == advice[~engine.done]).all()
        if engine.done.all():
            break
        engine.step(advice, skip_done=True)
        other.step(advice, skip_done=True)


@pytest.mark.parametrize("level", ["GoToObjMaze", "PutNext", "UnblockPickup", "BossLevel"])
def test_it_does_not_look_at_what_has_not_been_seen(level):
    count = scaled(20, least=1)
    engine, teacher = begin(level, "paper", count)
    for _ in range(100):
        advice = teacher.advise()
        truth = engine.worlds.copy()
        for world, expert in zip(engine.worlds, teacher.experts, strict=True):
            hidden = (expert.seen == 0) & (world.cells & KIND_MASK != WALL)
            world.cells[hidden] = np.where(world.cells[hidden] == EMPTY, BALL, EMPTY)
            world.tracks[expert.seen[ORIGIN : ORIGIN + STRIDE * MAX_SIZE] == 0] = 0
        # Nothing is looked at anew: what is asked is only what the same knowledge leads to.
        seen = teacher.experts.seen.copy()
        blindfolded = teacher.advise()
        same = (teacher.experts.seen == seen).all(axis=1)
        assert (blindfolded == advice)[same & ~engine.done].all()
        assert same.mean() > 0.9
        engine.worlds[:] = truth
        engine.step(advice, skip_done=True)
        if engine.done.all():
            break


def test_its_advice_has_no_memory():
    engine, teacher = begin("BossLevel", "paper", scaled(50, least=1))
    for _ in range(120):
        advice = teacher.advise()
        stranger = ExpertBatch(engine, "teacher")
        stranger.experts.seen[:] = teacher.experts.seen
        assert (stranger.advise() == advice)[~engine.done].all()
        engine.step(advice, skip_done=True)


def test_it_says_done_where_that_word_counts():
    engine, teacher = begin("BossLevel", "paper", scaled(100, least=1), done_actions=True)
    won, _ = finish(engine, teacher)
    assert won.all()


def test_it_says_that_the_target_is_gone():
    engine, teacher = begin("GoToObj", "paper", 1)
    engine.lay_out(0, "########\n##>>..##\n##ro..##\n########", "pick up the red ball")
    engine.worlds[0].cells[index_of(1, 2)] = EMPTY
    assert_gives_up(engine, teacher, NOTHING_LEFT)


def test_it_says_that_the_key_is_locked_in():
    engine, teacher = begin("GoToObj", "paper", 1)
    engine.lay_out(0, "##########\n##>>rlrk##\n##########", "open the red door")
    assert_gives_up(engine, teacher, LOCKED_OUT)


def assert_gives_up(engine: Engine, teacher: ExpertBatch, reason: int) -> None:
    teacher.begin()
    while (advice := teacher.advise())[0] != NO_ADVICE:
        engine.step(advice)
    assert engine.worlds[0].step_count < 10
    assert teacher.trouble(0) == TROUBLE[reason]
