"""`benchmarks.map_agent`: steps next to the expert's, and what failures are."""

import json
from pathlib import Path

import numpy as np
import pytest

from babyai.agents import Agent
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer, ExpertPlayer
from babyai.levels.catalog import LEVELS
from babyai.seeds import VALIDATION_SEED
from babyai.world.codes import FORWARD, LEFT
from benchmarks.map_agent import OTHERS, PAPER_ORDER, compare_steps, find_endings, measure, replay_failures


class Repeating:
    """Always plays the same action."""

    def __init__(self, action: int) -> None:
        self.action = action

    def begin(self, engine: Engine) -> None:
        pass

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        return np.full(engine.num_worlds, self.action)


def test_all_levels_are_measured() -> None:
    assert set(PAPER_ORDER) | set(OTHERS) == set(LEVELS) and not set(PAPER_ORDER) & set(OTHERS)


@pytest.mark.long
def test_the_same_action_forever_is_going_around_in_circles() -> None:
    result = evaluate(Repeating(FORWARD), "GoToLocal", missions=40, first_seed=VALIDATION_SEED)
    endings = find_endings(Repeating(FORWARD), "GoToLocal", result.failed_seeds.tolist())
    assert sum(endings.values()) == len(result.failed_seeds) > 20
    assert set(endings) == {"1-state circle, search", "1-state circle, target seen"}
    assert find_endings(Repeating(LEFT), "Unlock", [VALIDATION_SEED]) == {"4-state circle, search": 1}


def test_steps_are_compared_where_both_succeed() -> None:
    expert = evaluate(ExpertPlayer(), "GoToObj", missions=30, first_seed=VALIDATION_SEED)
    assert compare_steps(expert, expert) == 1.0
    nobody = evaluate(Repeating(LEFT), "Unlock", missions=5, first_seed=VALIDATION_SEED)
    assert compare_steps(nobody, evaluate(ExpertPlayer(), "Unlock", missions=5, first_seed=VALIDATION_SEED)) is None


def test_the_shipped_agent_is_measured() -> None:
    player = AgentPlayer(Agent.load("map").model)
    report = measure(player, ["GoToObj"], missions=20, max_failures=5)
    row = report["levels"]["GoToObj"]
    assert report["actions"] == "argmax" and row["missions"] == 20 and row["success_rate"] > 0.9
    assert 0.9 < row["steps_ratio"] < 1.3 and report["missions_per_second"] > 0


def test_failures_are_replayed(tmp_path: Path) -> None:
    stretches = tmp_path / "stretches.jsonl"
    last = {"stretch": 2, "failed_seeds": {"GoToObj": [VALIDATION_SEED, VALIDATION_SEED + 1], "GoToLocal": []}}
    stretches.write_text(json.dumps({"stretch": 1}) + "\n" + json.dumps(last) + "\n")
    report = replay_failures(AgentPlayer(Agent.load("map").model), stretches)
    assert report["stretch"] == 2 and report["endings"] == {"GoToObj": {"solved when replayed": 2}}
