"""The expert's plan in words."""

import gymnasium as gym
import pytest

import babyai
from babyai.expert.expert import Expert

ROOMS = """
    ##################
    ##>>....##......##
    ##..rk..rl..bo..##
    ##......##......##
    ##################
"""


def play(mission: str, style: str = "paper") -> list[list[str]]:
    """The plans of an episode, without repetitions."""
    env = gym.make("babyai/GoToLocal-v0")
    env.reset(seed=0, options={"layout": ROOMS, "mission": mission})
    expert = Expert(env, style)  # pyright: ignore[reportArgumentType]
    plans: list[list[str]] = []
    terminated = False
    while not terminated:
        action = expert.advise()
        if not plans or expert.plan() != plans[-1]:
            plans.append(expert.plan())
        _, _, terminated, truncated, _ = env.step(action)
        assert not truncated
    return plans


def test_a_locked_door_needs_its_key() -> None:
    plans = play("open the red door")
    assert plans[0][-2:] == ["go to the red door to open it", "open the door"]
    assert any(plan[0] == "go to the red key" for plan in plans)
    assert any(plan[0] == "pick it up" for plan in plans) and plans[-1][0].startswith("open the door")


def test_words_of_the_mission_are_those_of_the_plan() -> None:
    plans = play("put the red key next to the red door")
    assert plans[0] == [
        "go to the red key",
        "pick it up",
        "go to the red door to put something next to it",
        "drop it",
    ]


def test_the_teacher_has_no_stack() -> None:
    assert play("go to the red key", "teacher") == [[]]


@pytest.mark.compiled
@pytest.mark.parametrize("level", ["BossLevel", "UnblockPickup", "KeyInBox"])
def test_every_plan_can_be_said(level: str) -> None:
    env = gym.make(f"babyai/{level}-v0")
    for seed in range(20):
        env.reset(seed=seed)
        expert = babyai.Expert(env)
        ended = False
        while not ended:
            action = expert.advise()
            assert all(expert.plan())
            *_, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
