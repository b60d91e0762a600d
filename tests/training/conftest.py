"""One torch thread: what these tests compute is so little that threads would only wait for each other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.demos.collect import collect
from babyai.evaluation.evaluate import Evaluation, _summarize
from babyai.training import fit

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty demonstrations of GoToObjS4; read only."""
    path = tmp_path_factory.mktemp("demos") / "small.parquet"
    collect("GoToObjS4", 40, 0, path, threads=1)
    return path


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], list[tuple[str, int]]]:
    """Replaces validation by given success rates, the last one repeated; returns level and first seed of each call."""

    def script(rates: list[float]) -> list[tuple[str, int]]:
        calls: list[tuple[str, int]] = []

        def evaluate(_: Any, level: str, *, missions: int, first_seed: int, **__: Any) -> Evaluation:
            rate = rates[min(len(calls), len(rates) - 1)]
            calls.append((level, first_seed))
            rewards = np.where(np.arange(100) < round(100 * rate), 0.5, 0.0)
            result = _summarize(level, "paper", first_seed, rewards, np.full(100, 5), 0.1)
            return replace(result, missions=missions)

        def evaluate_levels(player: Any, levels: list[str], **settings: Any) -> dict[str, Evaluation]:
            return {level: evaluate(player, level, **settings) for level in levels}

        monkeypatch.setattr(fit, "evaluate_levels", evaluate_levels)
        return calls

    return script
