"""`benchmarks.map_agent`: steps next to the expert's, and what failures are."""

from pathlib import Path

import numpy as np
import pytest

from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import ExpertPlayer
from babyai.levels.catalog import LEVELS
from babyai.seeds import TEST_SEED, VALIDATION_SEED
from babyai.world.codes import FORWARD, LEFT
from benchmarks.map_agent import OTHERS, PAPER_ORDER, compare_steps, find_endings, main, read_rows


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


def test_the_shipped_agent_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.jsonl"
    command = ["map_agent", "--missions", "20", "--out", str(out), "--levels"]
    for levels in ("GoToObj", "GoToObj,GoToLocal"):
        monkeypatch.setattr("sys.argv", [*command, levels])
        main()
    # What was measured before is not measured again.
    rows = read_rows(out)
    assert [row["level"] for row in rows] == ["GoToObj", "GoToLocal"]
    for row in rows:
        assert row["actions"] == "argmax" and row["missions"] == 20 and row["first_seed"] == VALIDATION_SEED
        assert row["success_rate"] > 0.9 and len(row["failed_seeds"]) == 20 - row["successes"]
        assert 0.9 < row["steps_ratio"] < 1.3

    for skip in ("0", "20"):
        monkeypatch.setattr("sys.argv", [*command, "GoToObj", "--test", "--skip", skip])
        main()
    assert [(row["level"], row["first_seed"]) for row in read_rows(out)[2:]] == [
        ("GoToObj", TEST_SEED),
        ("GoToObj", TEST_SEED + 20),
    ]
