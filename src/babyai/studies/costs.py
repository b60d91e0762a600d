"""What runs cost: the frames that a run needs, and the seconds that these take on this machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from babyai.evaluation import paper
from babyai.studies.cells import CELLS, PAPER_STUDIES, STUDIES, Cell
from babyai.training.options import ImitationOptions, PPOOptions

# An H200 (results/training.json): frames per second of one run of bow_endpool_res alone, and of several together; for
# imitation learning, what one makes, unless a slice of a study was faster (`total_speeds`).
H200_ALONE = {"ppo": 85_000.0, "imitation": 650_000.0, "imitation big": 311_000.0}
H200_SHARED = {"ppo": 228_000.0, "imitation": 650_000.0, "imitation big": 311_000.0}
# Two cores without a GPU.
CPU_ALONE = {"ppo": 1_200.0, "imitation": 3_000.0, "imitation big": 300.0}
# Seconds until a run learns: in a new process, which imports and compiles, and in one that has run others.
STARTUP_SECONDS = 30.0
NEXT_STARTUP_SECONDS = 10.0
TEST_SECONDS = 8.0
# Seconds to play a validation, several runs at once.
VALIDATION_SECONDS = 0.4
# Seconds to time PPO on one level, and to collect 100,000 demonstrations of one step each on one core.
SPEED_SECONDS = 12.0
DEMO_SECONDS_PER_STEP = 0.5
# PPO's episodes are this many times as long as the expert's, on average until 99 %.
PPO_LENGTH_FACTOR = 3.0
# Half a window of log rows, before which the centered figure cannot be known: 50 rows of ten updates.
HALF_WINDOW_FRAMES = 1_280_000
# If the paper has no figure.
UNKNOWN_EPISODES = 1_500_000
UNKNOWN_LENGTH = 50.0


@dataclass(frozen=True)
class Machine:
    """What estimates depend on."""

    gpu: str | None
    cores: int
    at_once: int = 1
    """Runs that share the machine."""


def demo_length(level: str) -> float:
    """The mean length of demonstrations, by Table 4."""
    return paper.BASELINES[level].demo_length if level in paper.BASELINES else UNKNOWN_LENGTH


def estimate_frames(cell: Cell) -> float:
    """The number of frames that a run trains on, estimated from the paper's figures."""
    length = demo_length(cell.level)
    options = cell.options(cell.seeds[0]) if cell.kind not in ("speed", "demo-lengths") else None
    if isinstance(options, ImitationOptions):
        return options.total * length
    if isinstance(options, PPOOptions):
        episodes = 1000 * cell.paper.mean if cell.paper else UNKNOWN_EPISODES
        window = HALF_WINDOW_FRAMES if cell.level != "GoToRedBallGrey" else HALF_WINDOW_FRAMES // 10
        return min(options.frames, PPO_LENGTH_FACTOR * length * episodes + window)
    return 0.0


def estimate_seconds(
    cell: Cell, machine: Machine, rows: Iterable[Mapping[str, Any]] = (), startup: float = STARTUP_SECONDS
) -> float:
    """The duration of a run while `machine.at_once` of them share the machine.

    Args:
        cell: The run's cell.
        machine: The machine.
        rows: Measured runs. Those on the same GPU with as many at once correct the estimate.
        startup: Seconds until the run learns.
    """
    if cell.kind == "speed":
        return SPEED_SECONDS
    if cell.kind == "demo-lengths":
        return (cell.demos or 0) / 100_000 * DEMO_SECONDS_PER_STEP * demo_length(cell.level) / machine.cores
    return startup + TEST_SECONDS + estimate_training(cell, machine) * _correction(cell, machine, rows)


def estimate_training(cell: Cell, machine: Machine) -> float:
    """The seconds of training and validation."""
    options = cell.options(cell.seeds[0])
    validations = options.epochs if isinstance(options, ImitationOptions) else 0
    return estimate_frames(cell) / frames_per_second(cell, machine) + VALIDATION_SECONDS * validations


def _correction(cell: Cell, machine: Machine, rows: Iterable[Mapping[str, Any]]) -> float:
    """By what factor runs of this cell or, if there are none, of its kind and size took longer than estimated."""
    same: list[float] = []
    alike: list[float] = []
    for row in rows:
        other = CELLS.get(row["cell"])
        if other is None or row["at_once"] != machine.at_once or row["origin"]["gpu"] != machine.gpu:
            continue
        if (other.kind, other.size) == (cell.kind, cell.size):
            ratio = row["seconds"] / estimate_training(other, machine)
            (same if other.name == cell.name else alike).append(ratio)
    return median(same or alike or [1.0])


def speed_key(cell: Cell) -> str:
    """The key of a cell's speed in the tables above."""
    return "ppo" if cell.kind == "ppo" else "imitation big" if cell.size == "big" else "imitation"


def frames_per_second(cell: Cell, machine: Machine) -> float:
    """The estimated speed of one of the runs that share the machine."""
    kind = speed_key(cell)
    bow = paper.SPEED["bow_endpool_res"]
    relative = paper.SPEED.get(cell.architecture, bow).mean / bow.mean
    if machine.gpu is None:
        return relative * CPU_ALONE[kind] * min(1.0, machine.cores / 2 / machine.at_once)
    alone = H200_ALONE[kind]
    # More runs help up to about eight.
    together = alone + (H200_SHARED[kind] - alone) * min(1.0, (machine.at_once - 1) / 7)
    return relative * min(alone, together / machine.at_once)


# ------------------------------------------------------------ the whole paper


@dataclass(frozen=True)
class Cost:
    """What a table costs."""

    title: str
    runs: int
    frames: float
    ours_hours: float
    """On one H200 with several runs at once."""
    paper_hours: float
    """At the paper's frame rate."""


def total_speeds(slices: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Frames per second of all runs together on an H200: of the fastest slice of a study, or as known without one."""
    speeds = dict(H200_SHARED)
    for each in slices:
        if each["gpu"] == "NVIDIA H200" and len(each["kinds"]) == 1 and each["kinds"][0] in speeds:
            (kind,) = each["kinds"]
            speeds[kind] = max(speeds[kind], each["frames"] / each["seconds"])
    return speeds


def paper_costs(
    chosen: Mapping[str, Mapping[int, Mapping[str, Any]]], totals: Mapping[str, float] = H200_SHARED
) -> list[Cost]:
    """The cost of all runs of the paper's tables; runs that two tables share count once.

    Args:
        chosen: Measured rows; where there are any of a cell, their mean number of frames counts.
        totals: Frames per second of all runs together.
    """
    relative = _relative_speeds(chosen)
    counted: set[str] = set()
    costs = []
    for name in PAPER_STUDIES:
        study = STUDIES[name]
        cells = [cell for cell in study.cells if cell.kind in ("imitation", "ppo") and cell.name not in counted]
        counted |= {cell.name for cell in cells}
        cost = Cost(f"{study.table}: {study.title[0].lower()}{study.title[1:]}", 0, 0.0, 0.0, 0.0)
        for cell in cells:
            frames = len(cell.seeds) * measured_frames(cell, chosen)
            speed = totals[speed_key(cell)] * relative[cell.architecture]
            cost = Cost(
                *(cost.title, cost.runs + len(cell.seeds), cost.frames + frames),
                cost.ours_hours + frames / speed / 3600,
                cost.paper_hours + frames / paper.SPEED[cell.architecture].mean / 3600,
            )
        if cost.runs:
            costs.append(cost)
    return costs


def measured_frames(cell: Cell, chosen: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> float:
    """The frames of a run: measured, or estimated."""
    rows = chosen.get(cell.name, {}).values()
    frames = [row["curve"]["frames"][-1] for row in rows if row["complete"]]
    return sum(frames) / len(frames) if frames else estimate_frames(cell)


def _relative_speeds(chosen: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, float]:
    """The speed of each architecture relative to bow_endpool_res: measured on a GPU, or the paper's."""
    speeds: dict[str, float] = {}
    for architecture in paper.SPEED:
        rows = [row for cell in STUDIES["speed"].cells for row in chosen.get(cell.name, {}).values()]
        rates = [
            row["figures"]["frames_per_second"]
            for row in rows
            if row["architecture"] == architecture and row["origin"]["gpu"]
        ]
        if not rates:
            return {name: figure.mean / paper.SPEED["bow_endpool_res"].mean for name, figure in paper.SPEED.items()}
        speeds[architecture] = sum(rates) / len(rates)
    return {name: speed / speeds["bow_endpool_res"] for name, speed in speeds.items()}
