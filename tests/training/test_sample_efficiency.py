"""Sample efficiency: both figures, against the whole log at once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babyai.training.ppo import train
from babyai.training.sample_efficiency import SampleEfficiency, default_window
from tests.training.short_runs import ppo_options

FEW: dict[str, Any] = {"validate_every": 0, "worlds": 2, "steps": 2, "recurrence": 2, "frames": 120}


def compute_from_log(updates: list[list[float]], worlds: int, window: int) -> tuple[int | None, int | None]:
    """Both figures from all returns at once (the authors' log, then pandas' centered window)."""
    rates = []
    counts = []
    for number in range(10, len(updates) + 1, 10):
        ended = updates[number - 1]
        returns = [0.0] * worlds + [value for update in updates[:number] for value in update]
        latest = returns[-max(len(ended), worlds) :]
        rates.append(np.mean([value > 0 for value in latest]))
        counts.append(sum(map(len, updates[:number])))
    centered = None
    for center in range(len(rates)):
        low = center - window // 2
        high = low + window
        if low >= 0 and high <= len(rates) and np.mean(rates[low:high]) >= 0.99 - 1e-12:
            centered = counts[center]
            break
    won = [value > 0 for update in updates for value in update]
    trailing = next((end for end in range(1000, len(won) + 1) if sum(won[end - 1000 : end]) >= 990), None)
    return centered, trailing


@pytest.mark.parametrize("window", [1, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_both_figures_are_those_of_the_whole_log(seed: int, window: int) -> None:
    generator = np.random.default_rng(seed)
    worlds = 6
    updates = []
    for number in range(400):
        success = 1.0 if number > 250 else 0.9 + number / 2000
        ended = generator.integers(0, 3 * worlds) if number % 7 else 0
        updates.append((generator.random(ended) < success).astype(float).tolist())
    expected = compute_from_log(updates, worlds, window)
    assert None not in expected
    efficiency = SampleEfficiency(window, worlds)
    known_at = None
    for number, returns in enumerate(updates, start=1):
        efficiency.add(returns, [1] * len(returns))
        if number == 205:
            # Stopped and resumed, in the middle of a row.
            state = json.loads(json.dumps(efficiency.state_dict()))
            efficiency = SampleEfficiency(window, worlds)
            efficiency.load_state_dict(state)
        if number % 10 == 0:
            efficiency.close_row()
            known_at = known_at or (efficiency.known and number)
    assert (efficiency.centered, efficiency.trailing) == expected
    assert efficiency.episodes == sum(map(len, updates)) and known_at


def test_rows_start_with_a_failure_for_each_world() -> None:
    efficiency = SampleEfficiency(10, 64)
    efficiency.add([0.5] * 16, [5] * 16)
    assert efficiency.close_row() == {"success": 16 / 64, "return": 0.5, "length": 5}
    efficiency.add([0.5] * 128, [5] * 128)
    assert efficiency.close_row()["success"] == 1.0
    efficiency.add([0.0] * 32, [5] * 32)
    assert efficiency.close_row()["success"] == 0.5
    assert efficiency.centered is None and not efficiency.known


def test_the_windows_are_the_authors() -> None:
    assert default_window(["GoToRedBallGrey"]) == 10
    assert default_window(["GoToObjS4"]) == default_window(["GoToRedBallGrey", "GoToObjS4"]) == 100


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"levels": "GoToObjS4"}, 100),
        ({"levels": "BabyAI-GoToRedBallGrey-v0"}, 10),
        ({"levels": "GoToRedBallGrey", "window": 7}, 7),
    ],
    ids=["default", "short", "chosen"],
)
def test_a_run_uses_the_window(
    changes: dict[str, Any], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: list[int] = []
    make = SampleEfficiency.__init__

    def note(self: SampleEfficiency, window: int, worlds: int) -> None:
        windows.append(window)
        make(self, window, worlds)

    monkeypatch.setattr(SampleEfficiency, "__init__", note)
    train(ppo_options(tmp_path / "run", **FEW | changes | {"frames": 40}))
    assert windows == [expected]


@pytest.mark.parametrize(("stop", "rows"), [(True, 1), (False, 3)], ids=["stop when solved", "continue"])
def test_a_run_stops_once_both_figures_are_known(
    stop: bool, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_known(self: SampleEfficiency) -> dict[str, float]:
        self.centered = 123
        self.trailing = 456
        return {"success": 1.0}

    monkeypatch.setattr(SampleEfficiency, "close_row", be_known)
    written = train(ppo_options(tmp_path / "run", **FEW, stop_when_solved=stop)).run.rows()
    assert len(written) == rows and written[0]["sample_efficiency"] == {"centered": 123, "trailing": 456}
