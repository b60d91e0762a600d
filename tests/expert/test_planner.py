"""The paper's expert against the reference: golden action strings, and advice given side by side."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from minigrid.utils.baby_ai_bot import BabyAIBot

import babyai
from babyai.world.actions import front_of
from babyai.world.codes import BOX, DOOR, KIND_MASK, OPAQUE, TOGGLE
from tests.scale import SCALE
from tests.twin import BOT_IDS, StuckError, Twin, level_of, time_limit

GOLDEN = Path(__file__).parents[1] / "golden" / "bot_minigrid320.jsonl.gz"


def golden_episodes() -> list[dict]:
    with gzip.open(GOLDEN, "rt") as lines:
        return [json.loads(line) for line in lines]


def play(engine: babyai.Engine, style: str = "paper") -> str:
    """Lets the expert play an episode; returns what it did."""
    expert, actions = babyai.Expert(engine, style), []
    while not engine.done[0]:
        actions.append(expert.advise())
        engine.step([actions[-1]])
    return "".join(map(str, actions))


@pytest.mark.compiled
def test_does_what_the_reference_does_wherever_that_succeeds() -> None:
    won = [episode for episode in golden_episodes() if episode["error"] is None and episode["reward"] > 0]
    different = []
    for episode in won:
        engine = babyai.Engine(level_of(episode["id"]), rules="minigrid")
        engine.reset([episode["seed"]])
        if play(engine) != episode["actions"] or engine.rewards[0] != episode["reward"]:
            different.append((episode["id"], episode["seed"]))
    assert len(won) == 902
    assert different == []


def may_deviate(twin: Twin, action: int) -> bool:
    """The reference cannot recover from an opened box or a closed door."""
    front = int(twin.world.cells[front_of(twin.world)])
    is_open_door = front & (OPAQUE | KIND_MASK) == DOOR
    return not (action == TOGGLE and (is_open_door or front & KIND_MASK == BOX))


def advise_side_by_side(minigrid_id: str, seed: int, deviating: float, rng: np.random.Generator) -> int:
    """Asks both experts for advice at each step of an episode, mostly taking it; returns how many were compared."""
    twin = Twin(minigrid_id)
    twin.reset(seed)
    theirs, ours, taken = BabyAIBot(twin.env), babyai.Expert(twin.engine), None
    for step in range(150):
        try:
            with time_limit(2):
                wanted = int(theirs.replan(taken))
        except (AssertionError, TypeError, IndexError, StuckError):
            return step
        got = ours.advise(taken)
        assert got == wanted, f"{minigrid_id}, seed {seed}: advice {got}, the reference {wanted}, after {twin.history}"
        taken = wanted
        if rng.random() < deviating:
            other = int(rng.integers(6))
            taken = other if may_deviate(twin, other) else wanted
        twin.step(taken)
        if twin.done:
            return step + 1
    return 150


@pytest.mark.compiled
@pytest.mark.parametrize("minigrid_id", BOT_IDS[:: 1 if SCALE >= 1 else 4])
def test_advises_as_the_reference_does(minigrid_id: str) -> None:
    rng = np.random.default_rng(BOT_IDS.index(minigrid_id))
    assert advise_side_by_side(minigrid_id, int(rng.integers(10**6)), 0.0, rng) > 0


@pytest.mark.compiled
@pytest.mark.long
@pytest.mark.parametrize("minigrid_id", BOT_IDS)
def test_advises_strangers_as_the_reference_does(minigrid_id: str) -> None:
    rng = np.random.default_rng(BOT_IDS.index(minigrid_id))
    for _ in range(10):
        advise_side_by_side(minigrid_id, int(rng.integers(10**6)), 0.15, rng)
