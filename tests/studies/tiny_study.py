"""A study whose runs take a second each, as a program: `python tiny_study.py STATE [minutes]`."""

import sys
from pathlib import Path

from babyai.studies.cells import Cell, Run
from babyai.studies.recorder import Summary
from babyai.studies.scheduler import Plan, run_study
from babyai.studies.store import State
from tests.training.short_runs import IMITATION, PPO
from tests.training.tiny import PATH

LEVEL = "GoToObjS4"
# Checkpoints all the time, so that there is something to resume from wherever a run is killed.
FAST = {"validation_episodes": 4, "checkpoint_seconds": 0.0}


def make_runs(seeds: int = 2, epochs: int = 12) -> list[Run]:
    """Imitation learning and PPO, `seeds` runs each."""
    settings = (
        {name: value for name, value in IMITATION.items() if name != "demos"}
        | FAST
        | {"epochs": epochs, "patience": epochs}
    )
    numbers = tuple(range(seeds))
    imitation = Cell("imitation", LEVEL, PATH, demos=40, settings=tuple(settings.items()), quick=True, seeds=numbers)
    settings = PPO | FAST
    ppo = Cell("ppo", LEVEL, PATH, settings=tuple(settings.items()), quick=True, seeds=numbers)
    return [Run(cell, seed) for cell in (imitation, ppo) for seed in numbers]


def run_tiny(
    state: Path,
    minutes: float | None = None,
    seeds: int = 2,
    epochs: int = 12,
    at_once: int = 1,
    cluster: str | None = None,
) -> Summary:
    """Runs the study, or a slice of it."""
    kept = State(state, state.with_name(f"{state.name}.work"))
    return run_study(make_runs(seeds, epochs), kept, Plan("cpu", at_once, minutes, cluster=cluster), print)


if __name__ == "__main__":
    print(run_tiny(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else None))
