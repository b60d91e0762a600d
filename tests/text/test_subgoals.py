"""The checker of subgoals: what a decomposition of the mission achieves."""

import gymnasium as gym
import pytest

from babyai.text.plan import check_plan
from babyai.text.subgoals import check_subgoals
from babyai.world.language import MissionError

UNLOCK = ["pick up the green key", "open the green door", "pick up the purple box"]


@pytest.fixture
def env() -> gym.Env:
    env = gym.make("babyai/UnlockPickup-v0")
    env.reset(seed=0)
    return env


def test_a_whole_decomposition(env: gym.Env) -> None:
    found = check_subgoals(env, [*UNLOCK[:2], "go to the purple box", UNLOCK[2]])
    # The hands are full: the expert has to put the key down before it picks up the box.
    assert found.success and found.reached == 4 and found.problem is None and found.steps_left == 0
    assert check_plan(env, found.result.plan) == found.result


def test_what_is_left_after_some_of_the_subgoals(env: gym.Env) -> None:
    nothing = check_subgoals(env, [])
    first = check_subgoals(env, UNLOCK[:1])
    second = check_subgoals(env, UNLOCK[:2])
    assert not nothing.success and nothing.reached == 0 and nothing.result.steps == 0
    assert first.result.carrying == "a green key" and first.reached == 1
    assert nothing.steps_left is not None and first.steps_left is not None and second.steps_left is not None
    assert nothing.steps_left > first.steps_left > second.steps_left > 0


def test_a_mission_may_be_over_before_its_subgoals(env: gym.Env) -> None:
    found = check_subgoals(env, [*UNLOCK, "go to the green door"])
    assert found.success and found.reached == 3 and found.problem is None


def test_subgoals_that_do_not_fit_are_explained(env: gym.Env) -> None:
    found = check_subgoals(env, [UNLOCK[0], "go to the red ball", UNLOCK[1]])
    assert found.reached == 1 and found.problem is not None and "red ball" in found.problem
    assert found.steps_left is not None and found.result.carrying == "a green key"


@pytest.mark.parametrize("subgoals", [["pick up the key", "jump"], ["open the ball"]])
def test_subgoals_must_be_in_the_baby_language(env: gym.Env, subgoals: list[str]) -> None:
    with pytest.raises(MissionError):
        check_subgoals(env, subgoals)


def test_one_text_is_refused(env: gym.Env) -> None:
    with pytest.raises(ValueError, match=r"list of subgoals.*'go to the ball'"):
        check_subgoals(env, "go to the ball")
