"""The paper's expert against the reference: golden action strings and live comparison of advice."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import babyai
from babyai.world.actions import front_of
from babyai.world.codes import BOX, DOOR, KIND_MASK, OPAQUE, TOGGLE
from tests.scale import SCALE
from tests.twin import BOT_IDS, BoundedBot, StuckError, Twin, level_of

GOLDEN = Path(__file__).parents[1] / "golden" / "bot_minigrid320.jsonl.gz"


def golden_episodes() -> list[dict]:
    with gzip.open(GOLDEN, "rt") as lines:
        return [json.loads(line) for line in lines]


def play(engine: babyai.Engine, style: str = "paper") -> str:
    """Plays an episode with the expert; returns its actions."""
    expert = babyai.Expert(engine, style)
    actions = []
    while not engine.done[0]:
        actions.append(expert.advise())
        engine.step([actions[-1]])
    return "".join(map(str, actions))


@pytest.mark.compiled
def test_golden_episodes_of_the_reference_are_reproduced() -> None:
    won = [episode for episode in golden_episodes() if episode["error"] is None and episode["reward"] > 0]
    different = []
    for episode in won:
        engine = babyai.Engine(level_of(episode["id"]), rules="minigrid")
        engine.reset([episode["seed"]])
        if play(engine) != episode["actions"] or engine.rewards[0] != episode["reward"]:
            different.append((episode["id"], episode["seed"]))
    assert len(won) == 902
    assert different == []


def can_recover_from(twin: Twin, action: int) -> bool:
    """Returns whether the reference can recover from the action; it cannot from opening a box or closing a door."""
    front = int(twin.world.cells[front_of(twin.world)])
    is_open_door = front & (OPAQUE | KIND_MASK) == DOOR
    return not (action == TOGGLE and (is_open_door or front & KIND_MASK == BOX))


def compare_advice(minigrid_id: str, seed: int, deviation: float, rng: np.random.Generator) -> int:
    """Compares the advice of both experts at each step of an episode; returns the number of comparisons.

    The advice is followed, except for random actions with probability `deviation`.
    """
    twin = Twin(minigrid_id)
    twin.reset(seed)
    theirs = BoundedBot(twin.env)
    ours = babyai.Expert(twin.engine)
    taken = None
    for step in range(150):
        try:
            expected = int(theirs.replan(taken))
        except (AssertionError, TypeError, IndexError, StuckError):
            return step
        advice = ours.advise(taken)
        message = f"{minigrid_id}, seed {seed}: advice {advice}, reference {expected}, after {twin.history}"
        assert advice == expected, message
        taken = expected
        if rng.random() < deviation:
            other = int(rng.integers(6))
            taken = other if can_recover_from(twin, other) else expected
        twin.step(taken)
        if twin.done:
            return step + 1
    return 150


@pytest.mark.compiled
@pytest.mark.parametrize("minigrid_id", BOT_IDS[:: 1 if SCALE >= 1 else 4])
def test_advice_matches_the_reference(minigrid_id: str) -> None:
    rng = np.random.default_rng(BOT_IDS.index(minigrid_id))
    assert compare_advice(minigrid_id, int(rng.integers(10**6)), 0.0, rng) > 0


@pytest.mark.compiled
@pytest.mark.long
@pytest.mark.parametrize("minigrid_id", BOT_IDS)
def test_advice_after_other_actions_matches_the_reference(minigrid_id: str) -> None:
    rng = np.random.default_rng(BOT_IDS.index(minigrid_id))
    for _ in range(10):
        compare_advice(minigrid_id, int(rng.integers(10**6)), 0.15, rng)
