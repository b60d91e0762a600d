"""One thread each: what these tests compute is so little that threads would only wait for each other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.demos.collect import collect
from babyai.evaluation.evaluate import Evaluation, _summarize
from babyai.training import session as sessions

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty demonstrations of GoToObjS4; not to be changed."""
    path = tmp_path_factory.mktemp("demos") / "small.parquet"
    collect("GoToObjS4", 40, 0, path, threads=1)
    return path


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], list[tuple[str, int]]]:
    """Makes validations come out as told, the last one for ever; gives the level and the first seed of each."""

    def script(outcomes: list[float]) -> list[tuple[str, int]]:
        asked: list[tuple[str, int]] = []

        def evaluate(_: Any, level: str, *, missions: int, first_seed: int, **__: Any) -> Evaluation:
            outcome = outcomes[min(len(asked), len(outcomes) - 1)]
            asked.append((level, first_seed))
            rewards = np.where(np.arange(100) < round(100 * outcome), 0.5, 0.0)
            result = _summarize(level, "paper", first_seed, rewards, np.full(100, 5), 0.1)
            return replace(result, missions=missions)

        monkeypatch.setattr(sessions, "evaluate", evaluate)
        return asked

    return script
