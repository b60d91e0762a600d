"""The expert as people use it: beside an environment, over a batch, told what others did."""

import gymnasium as gym
import numpy as np
import pytest

import babyai
from babyai.expert.expert import UnsolvableError
from tests.scale import scaled

STYLES = ("paper", "teacher")


@pytest.mark.parametrize("style", STYLES)
def test_carries_out_missions_of_an_environment_one_after_another(style: str) -> None:
    env = gym.make("babyai/PutNextLocal-v0")
    expert = None
    for seed in range(3):
        env.reset(seed=seed)
        expert = expert or babyai.Expert(env, style)
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(expert.advise())
            over = terminated or truncated
        assert reward > 0


@pytest.mark.parametrize("style", STYLES)
def test_one_and_many_give_the_same_advice(style: str) -> None:
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
def test_finishes_what_a_stranger_began(style: str) -> None:
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
        # The reference picks up what is in the way, which fails a strict mission.
        ("PickupDistDebug", "paper", 36),
        # It runs out of time; it finds no key in the grid; it never returns; it cannot think of what is in hand.
        ("SynthS5R2", "minigrid", 84),
        ("KeyInBox", "paper", 0),
        ("UnlockToUnlock", "minigrid", 4),
        ("PutNextS6N3Carrying", "minigrid", 0),
    ],
)
def test_goes_on_where_the_reference_fails(level: str, rules: str, seed: int) -> None:
    engine = babyai.Engine(level, rules=rules)
    engine.reset([seed])
    expert = babyai.ExpertBatch(engine)
    _, _, rewards = expert.demonstrate()
    assert rewards[0] > 0
    assert expert.experts[0].handed_over


@pytest.mark.parametrize("style", STYLES)
def test_says_why_a_mission_cannot_be_carried_out(style: str) -> None:
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

    with pytest.raises(UnsolvableError, match=r"\w+ \w+"):
        play()
    assert engine.worlds[0].step_count < 20


def test_begins_anew_with_each_episode_and_after_a_step_back() -> None:
    engine = babyai.Engine("GoToLocal")
    engine.reset([0])
    expert = babyai.Expert(engine)
    start, first = engine.snapshot(0), expert.advise()
    engine.step([first])
    expert.advise()
    engine.restore(0, start)
    assert expert.advise() == first
    engine.reset([1])
    fresh = babyai.Expert(engine).advise()
    assert expert.advise() == fresh


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: babyai.Expert(babyai.Engine("GoTo"), "student"), ValueError, "unknown style 'student'"),
        (lambda: babyai.Expert(babyai.Engine("GoTo", 2)), TypeError, "for many, use ExpertBatch"),
        (lambda: babyai.Expert(gym.make("CartPole-v1")), TypeError, "one BabyAI environment"),
    ],
)
def test_refuses_what_it_cannot_advise_on(make, error, words) -> None:
    with pytest.raises(error, match=words):
        make()
