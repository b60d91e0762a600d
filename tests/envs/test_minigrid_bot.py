"""Minigrid's `BabyAIBot` plays our environments with the same actions as Minigrid's, and wins the same missions."""

import contextlib
import io
from typing import Any

import gymnasium as gym
import pytest

import babyai
from tests.twin import MINIGRID_IDS, BoundedBot, level_of, time_limit

pytestmark = pytest.mark.compiled

SEEDS = 20
QUICK_IDS = [f"BabyAI-{name}-v0" for name in ("GoToLocal", "PickupLoc", "PutNextLocal", "UnlockPickup", "BossLevel")]


def play(env: gym.Env, seed: int) -> tuple[list[int], float, str]:
    """The actions of the bot in one mission, its reward, and why it stopped: "" or the type of its error."""
    with contextlib.redirect_stdout(io.StringIO()), time_limit(20):
        env.reset(seed=seed)
    bot = BoundedBot(env)
    actions = []
    try:
        while True:
            action = bot.replan()
            actions.append(int(action))
            _, reward, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                return actions, float(reward), ""
    except Exception as error:
        # On some missions the bot fails an assertion, recurses too deeply, or would not return.
        return actions, 0.0, type(error).__name__


def assert_same_play(minigrid_id: str, seeds: range) -> int:
    ours: Any = gym.make(babyai.LEVELS[level_of(minigrid_id)].id, rules="minigrid")
    theirs = gym.make(minigrid_id, disable_env_checker=True)
    wins = 0
    for seed in seeds:
        played = play(ours, seed)
        assert played == play(theirs, seed), f"seed {seed}"
        wins += played[1] > 0
    return wins


@pytest.mark.parametrize("minigrid_id", QUICK_IDS)
def test_the_bot_plays_as_in_minigrid(minigrid_id: str) -> None:
    assert assert_same_play(minigrid_id, range(3)) == 3


def test_a_bot_that_never_returns_is_stopped() -> None:
    ours = gym.make("babyai/UnlockToUnlock-v0", rules="minigrid")
    theirs = gym.make("BabyAI-UnlockToUnlock-v0", disable_env_checker=True)
    played = play(ours, 4)
    assert played == play(theirs, 4) and played[2] == "StuckError"


@pytest.mark.long
@pytest.mark.parametrize("minigrid_id", MINIGRID_IDS)
def test_the_bot_plays_every_level_as_in_minigrid(minigrid_id: str) -> None:
    assert_same_play(minigrid_id, range(SEEDS))


def test_the_bot_plays_under_the_rules_of_the_paper() -> None:
    env = gym.make("babyai/GoTo-v0")
    assert all(play(env, seed)[1] > 0 for seed in range(3))


def test_the_bot_advises_on_actions_that_are_not_its_own() -> None:
    ours = gym.make("babyai/GoToLocal-v0", rules="minigrid")
    theirs = gym.make("BabyAI-GoToLocal-v0", disable_env_checker=True)
    advice = []
    for env in (ours, theirs):
        env.reset(seed=2)
        bot = BoundedBot(env)
        advice.append([int(bot.replan())])
        for action in (0, 2, 3, 2, 1, 4, 2):
            if env.step(action)[2]:
                break
            advice[-1].append(int(bot.replan(action)))
    assert advice[0] == advice[1] and len(advice[0]) > 3
