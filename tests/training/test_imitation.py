"""Imitation: it learns, its numbers are the paper's, and no interruption changes what comes of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.agents.agent import Agent
from babyai.agents.checkpoint import CheckpointError
from babyai.agents.tensors import read_json
from babyai.demos.collect import collect
from babyai.demos.replay import Replay
from babyai.demos.sources import FileSource
from babyai.training import imitation
from babyai.training.checkpoints import RunError
from babyai.training.imitation import ImitationOptions, open_source, prepare, train
from babyai.training.run import read_rows
from babyai.training.session import Session
from tests.training.same import assert_equal_tensors, assert_same_run, newest, weights
from tests.training.tiny import PATH

ROOT = Path(__file__).parents[2]
Pretend = Callable[[list[float]], list[tuple[str, int]]]


def tiny(out: Path, **changes: Any) -> ImitationOptions:
    """A run of a second or less."""
    settings: dict[str, Any] = {"levels": "GoToObjS4", "demos": 40, "architecture": PATH, "batch": 4, "recurrence": 5}
    settings |= {"epoch_demos": 16, "epochs": 2, "validation_missions": 4, "learning_rate": 1e-2, "device": "cpu"}
    return ImitationOptions(**settings | {"out": str(out), "quiet": True, "threads": 1} | changes)


def paper(out: Path, **changes: Any) -> ImitationOptions:
    """The same with the paper's network, as narrow as it goes."""
    return tiny(out, architecture="bow_endpool_res", memory_dim=16, **changes)


# ------------------------------------------------------------ it learns


def test_the_papers_agent_learns_demonstrations_by_heart(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.0])
    options = paper(tmp_path / "run", levels="GoToRedBallGrey", demos=6, batch=6, recurrence=8, learning_rate=2e-3)
    session = train(replace(options, epoch_demos=90, epochs=4))
    rows = session.run.rows()
    actions = FileSource(session.folder / "demos.parquet").demos.actions
    majority = np.bincount(actions).max() / len(actions)
    assert majority < 0.75
    assert rows[-1]["accuracy"] > 0.97 and rows[-1]["loss"] < 0.25 * rows[0]["loss"]
    # Without entropy in the loss, it is the cross entropy.
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["cross_entropy"])


def test_what_is_learnt_holds_for_missions_never_seen(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run", demos=400, batch=32, epoch_demos=1600, epochs=4, validation_missions=64))
    success = [row["success"] for row in session.run.rows()]
    assert success[-1] > 0.8 and session.best_success == max(success)


