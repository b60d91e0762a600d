"""Options of runs that take a second or less."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from babyai.training.options import DaggerOptions, ImitationOptions, PPOOptions
from tests.training.tiny import PATH

# The fixture `pretend`.
Pretend = Callable[[list[float]], list[tuple[str, int]]]

COMMON: dict[str, Any] = {
    "levels": "GoToObjS4",
    "architecture": PATH,
    "validation_episodes": 4,
    "device": "cpu",
    # So that results do not depend on the processor.
    "precision": "float32",
    "quiet": True,
}
IMITATION: dict[str, Any] = {
    "demos": 40,
    "batch_size": 4,
    "recurrence": 5,
    "epoch_length": 16,
    "epochs": 2,
    "learning_rate": 1e-2,
    "threads": 1,
}
PPO: dict[str, Any] = {"worlds": 4, "steps": 8, "recurrence": 4, "epochs": 1, "frames": 960, "validate_every": 10}
# The paper's agent, as narrow as it goes.
PAPER: dict[str, Any] = {"architecture": "bow_endpool_res", "memory_dim": 16}


def imitation_options(out: Path, **changes: Any) -> ImitationOptions:
    chosen: dict[str, Any] = {**COMMON, **IMITATION, "out": str(out), **changes}
    return ImitationOptions(**chosen)


def dagger_options(out: Path, **changes: Any) -> DaggerOptions:
    chosen: dict[str, Any] = {**COMMON, **IMITATION, "out": str(out), **changes}
    return DaggerOptions(**chosen)


def ppo_options(out: Path, **changes: Any) -> PPOOptions:
    chosen: dict[str, Any] = {**COMMON, **PPO, "out": str(out), **changes}
    return PPOOptions(**chosen)
