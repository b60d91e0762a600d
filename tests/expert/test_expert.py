"""The public interface of the expert: one environment, a batch, and actions other than the advice."""

import gymnasium as gym
import numpy as np
import pytest

import babyai
from babyai import Engine, ExpertBatch
from babyai.expert.expert import UnsolvableError
from tests.scale import scaled

STYLES = ("paper", "teacher")


@pytest.mark.parametrize("style", STYLES)
def test_solves_consecutive_episodes_of_an_environment(style: str) -> None:
    env = gym.make("babyai/PutNextLocal-v0")
    expert = None
    for seed in range(3):
        env.reset(seed=seed)
        expert = expert or babyai.Expert(env, style)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(expert.advise())
            done = terminated or truncated
        assert reward > 0


@pytest.mark.parametrize("style", STYLES)
def test_single_and_batched_experts_give_the_same_advice(style: str) -> None:
    count = scaled(16, 2)
    many = babyai.Engine(["GoToLocal", "PickupLoc"], count)
    many.reset(0)
    actions, lengths, rewards = babyai.ExpertBatch(many, style).demonstrate()
    assert (rewards > 0).all() and many.done.all()
    for i in range(count):
        one = babyai.Engine(many.levels[i % 2])
        one.reset([i])
        expert = babyai.Expert(one, style)
        for action in actions[i, : lengths[i]]:
            assert expert.advise() == action
            one.step([action])
        assert one.done[0] and one.rewards[0] == rewards[i]


@pytest.mark.compiled
def test_threads_do_not_change_demonstrations() -> None:
    results = []
    for threads in (1, 2):
        engine = babyai.Engine(["BossLevel", "GoToLocal"], 2048, threads=threads)
        engine.reset(7)
        assert len(engine.shards) == threads
        results.append(babyai.ExpertBatch(engine).demonstrate())
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("style", STYLES)
def test_solves_missions_after_random_actions(style: str) -> None:
    engine = babyai.Engine("GoToLocal")
    engine.reset([3])
    expert = babyai.Expert(engine, style)
    rng = np.random.default_rng(0)
    taken = None
    for step in range(60):
        advice = expert.advise(taken)
        taken = int(rng.integers(3)) if step < 20 else advice
        engine.step([taken])
        if engine.done[0]:
            break
    assert engine.rewards[0] > 0


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("level", "rules", "seed"),
    [
        # The reference picks up a blocker, which fails a strict mission.
        ("PickupDistDebug", "paper", 36),
        # It runs out of time.
        ("SynthS5R2", "minigrid", 84),
        # It finds no key in the grid.
        ("KeyInBox", "paper", 0),
        # It never returns.
        ("UnlockToUnlock", "minigrid", 4),
        # It does not handle an object carried at the start.
        ("PutNextS6N3Carrying", "minigrid", 0),
    ],
)
def test_solves_missions_on_which_the_reference_fails(level: str, rules: str, seed: int) -> None:
    engine = babyai.Engine(level, rules=rules)
    engine.reset([seed])
    expert = babyai.ExpertBatch(engine)
    _, _, rewards = expert.demonstrate()
    assert rewards[0] > 0
    assert expert.experts[0].handed_over


@pytest.mark.parametrize("style", STYLES)
def test_unsolvable_missions_raise_with_a_reason(style: str) -> None:
    drawing = """
        ############
        ##>>..##ro##
        ############
    """
    engine = babyai.Engine("GoToObj")
    engine.reset([0])
    engine.lay_out(0, drawing, "go to the red ball")
    expert = babyai.Expert(engine, style)

    def play() -> None:
        while not engine.done[0]:
            engine.step([expert.advise()])

    with pytest.raises(UnsolvableError, match="missing or destroyed"):
        play()
    assert engine.worlds[0].step_count < 20


def test_resets_with_each_episode_and_after_restoring_a_snapshot() -> None:
    engine = babyai.Engine("GoToLocal")
    engine.reset([0])
    expert = babyai.Expert(engine)
    start = engine.snapshot(0)
    first = expert.advise()
    engine.step([first])
    expert.advise()
    engine.restore(0, start)
    assert expert.advise() == first
    engine.reset([1])
    fresh = babyai.Expert(engine).advise()
    assert expert.advise() == fresh


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: babyai.Expert(babyai.Engine("GoTo"), "student"),
            ValueError,
            "'student'; expected 'paper' or 'teacher'",
        ),
        (lambda: babyai.Expert(babyai.Engine("GoTo", 2)), TypeError, "ExpertBatch"),
        (lambda: babyai.Expert(gym.make("CartPole-v1")), TypeError, "BabyAI environment, got .*CartPole"),
    ],
)
def test_invalid_arguments_raise(make, error, message) -> None:
    with pytest.raises(error, match=message):
        make()


# ---------------------------------------------------------------- what comes from outside


def test_demonstrating_worlds_that_were_not_reset_is_an_error() -> None:
    expert = ExpertBatch(Engine("GoToLocal", 3))
    with pytest.raises(RuntimeError, match="world 0 has not been reset"):
        expert.demonstrate()


def test_an_episode_whose_limit_was_lowered_is_demonstrated_within_bounds() -> None:
    engine = Engine("GoToLocal", 2)
    engine.reset(0)
    engine.worlds.step_count = 50
    engine.worlds.max_steps = 10
    _, lengths, _ = ExpertBatch(engine).demonstrate()
    assert (lengths <= 1).all()


def test_arguments_have_one_element_per_world() -> None:
    engine = Engine("GoToLocal", 3)
    engine.reset(0)
    expert = ExpertBatch(engine)
    for call in (lambda: expert.advise(np.zeros(2)), lambda: expert.reset(np.ones(9, dtype=bool))):
        with pytest.raises(ValueError, match=r"\(3,\)"):
            call()


@pytest.mark.parametrize(
    ("field", "value"), [("depth", 97), ("depth", -1), ("kinds", 6), ("values", 820), ("targets", 5), ("failure", 99)]
)
def test_damaged_records_are_refused(field: str, value: int) -> None:
    engine = Engine("BossLevel", 3)
    engine.reset(0)
    expert = ExpertBatch(engine)
    expert.advise()
    expert.load_records(expert.experts.copy())
    damaged = expert.experts.copy()
    damaged[field] = value
    with pytest.raises(ValueError, match="expert is damaged"):
        expert.load_records(damaged)


@pytest.mark.parametrize("style", STYLES)
def test_worlds_that_were_never_reset_have_no_advice(style: str) -> None:
    engine = babyai.Engine("GoToObj", 3)
    experts = babyai.ExpertBatch(engine, style)
    engine.reset(0, np.array([True, False, True]))
    for ask in (experts.advise, experts.demonstrate):
        with pytest.raises(RuntimeError, match=r"world 1 has not been reset.*reset\(\)"):
            ask()
    env = gym.make("babyai/GoToObj-v0")
    expert = babyai.Expert(env, style)
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        expert.advise()
    env.reset(seed=0)
    expert.advise()
