"""Studies as data: every cell of every table of the paper, and a few comparisons of our own.

A cell is one or more runs that differ in their seed only. Cells of different tables that need the same runs have the
same name, and share them.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from babyai.evaluation import paper
from babyai.evaluation.paper import Figure
from babyai.levels.catalog import PAPER_LEVELS, find_level
from babyai.training.options import DaggerOptions, ImitationOptions, PPOOptions, TrainingOptions

Kind = Literal["imitation", "dagger", "ppo", "speed", "demo-lengths"]
"""How a cell is measured."""
Unit = Literal["%", "thousand episodes", "frames/s", "steps"]

ARCHITECTURES = tuple(paper.SPEED)
EASY_LEVELS = tuple(paper.PPO_ARCHITECTURES)
"""The six easiest levels."""
OPTIONS: dict[str, type[TrainingOptions]] = {
    "imitation": ImitationOptions,
    "dagger": DaggerOptions,
    "ppo": PPOOptions,
    "speed": PPOOptions,
}
LEARNING_RATE = 1e-4
LOW_LEARNING_RATE = 5e-5
# The paper does not say how long Table 3 trained. Success is on a plateau long before the last of these epochs, but
# tends to rise after loss spikes: see the study `disagreements`.
EPOCHS = {5: 101, 10: 101, 50: 101, 100: 150, 500: 300}
# Table 4: 20 passes over a million demonstrations, as in the authors' instructions, in epochs of 102,400.
BASELINE_DEMOS = 1_000_000
BASELINE_EPOCHS = 196
LENGTH_DEMOS = 100_000
# PPO stops when it has reached 99 %, or after this many million frames.
MAX_MILLION_FRAMES = {
    "GoToRedBallGrey": 6,
    "GoToRedBall": 20,
    "GoToLocal": 80,
    "PickupLoc": 120,
    "PutNextLocal": 200,
    "GoTo": 200,
}
VALIDATE_EVERY = 250
# What a quick study shortens.
QUICK_SETTINGS: dict[str, dict[str, Any]] = {
    "imitation": {"epochs": 12, "epoch_length": 512, "validation_episodes": 64},
    "dagger": {"epochs": 12, "epoch_length": 200, "validation_episodes": 64},
    "ppo": {"frames": 51_200, "validate_every": 10},
    "speed": {},
    "demo-lengths": {},
}
QUICK_DIVISOR = 50
# What could explain a disagreement with the paper: the authors' code, which differs from the paper's text in two ways
# when it trains a small agent by imitation (docs/training.md); each of the two alone; the device; precision; other
# demonstrations; and time.
EXPLANATIONS: dict[str, dict[str, Any]] = {
    "cpu": {"device": "cpu"},
    "code": {"protocol": "code"},
    "entropy": {"entropy_coef": 0.01},
    "step-norm": {"batch_norm": "step"},
    "float32": {"precision": "float32"},
    "demos-1": {"first_seed": 10_000},
    "demos-2": {"first_seed": 20_000},
    "demos-3": {"first_seed": 30_000},
    "long": {"epochs": 200, "patience": 200},
    "long-300": {"epochs": 300, "patience": 300},
    "long-1562": {"epochs": 1562, "patience": 1562},  # 40 passes over a million, as the authors instruct
    "code-300": {"protocol": "code", "epochs": 300, "patience": 300},
    "code-1562": {"protocol": "code", "epochs": 1562, "patience": 1562},
}
# Success is on a plateau from about the tenth on.
EXPLANATION_EPOCHS = 30
# The architectures that disagree, on GoToRedBall with 10,000 demonstrations.
DISAGREEING = ("original", "original_endpool_res")


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    kind: Kind
    level: str
    architecture: str = ""
    """Empty where no agent is trained."""
    size: Literal["small", "big"] = "small"
    demos: int | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    """Options of `babyai train` that differ from their defaults."""
    variant: str = ""
    """What makes it differ from the paper's protocol, if anything does."""
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    """Whether it is shortened, and so not to be compared with the paper."""
    paper: Figure | None = field(default=None, compare=False)
    """The paper's figure; for demonstration lengths, over demonstrations rather than runs."""

    @property
    def name(self) -> str:
        """Identifies what is run: cells with the same name have the same runs."""
        rate = dict(self.settings).get("learning_rate")
        parts: tuple[Any, ...] = (
            *(self.kind, self.level, self.demos and short_count(self.demos), self.architecture.rpartition(":")[2]),
            *("big" if self.size == "big" else "", rate and f"lr{rate:g}", self.variant, "quick" if self.quick else ""),
        )
        return "/".join(part for part in parts if part)

    @property
    def first_seed(self) -> int:
        """Seed of the first demonstration."""
        return dict(self.settings).get("first_seed", 0)

    def options(self, seed: int) -> TrainingOptions:
        """The options of a run."""
        given: dict[str, Any] = {"levels": self.level, "architecture": self.architecture, "size": self.size}
        if self.demos is not None:
            given["demos"] = self.demos
        given |= {"seed": seed} | dict(self.settings)
        return OPTIONS[self.kind](**given)

    def shortened(self) -> "Cell":
        """The quick form: one seed, and far less of everything."""
        settings = dict(self.settings) | QUICK_SETTINGS[self.kind]
        demos = self.demos and self.demos // QUICK_DIVISOR
        return replace(self, settings=tuple(settings.items()), demos=demos, seeds=self.seeds[:1], quick=True)


def short_count(count: int) -> str:
    """5000 as `5k`."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)


@dataclass(frozen=True)
class Run:
    """One run of a cell."""

    cell: Cell
    seed: int

    @property
    def key(self) -> str:
        """Identifies the run; also the name of its folder."""
        return f"{self.cell.name.replace('/', '-')}-{self.seed}"


@dataclass(frozen=True)
class Study:
    """A table: its cells, row by row."""

    name: str
    title: str
    table: str | None
    """Its number in the paper; None for a comparison of our own."""
    unit: Unit
    cells: tuple[Cell, ...]
    higher_is_better: bool = True

    def shortened(self) -> "Study":
        """The quick form."""
        title = f"{self.title} (quick form, not comparable with the paper)"
        return replace(self, title=title, cells=tuple(cell.shortened() for cell in self.cells))


# ------------------------------------------------------------ the paper's tables


def _ppo_cells(table: paper.Table, learning_rate: float) -> Iterator[Cell]:
    for level, figures in table.items():
        settings: dict[str, Any] = {"frames": 1_000_000 * MAX_MILLION_FRAMES[level], "validate_every": VALIDATE_EVERY}
        if learning_rate != LEARNING_RATE:
            settings["learning_rate"] = learning_rate
        for architecture, figure in figures.items():
            yield Cell("ppo", level, architecture, settings=_pairs(settings), seeds=PPO_SEEDS, paper=figure)


def _imitation_cells() -> Iterator[Cell]:
    for row, figures in paper.IMITATION.items():
        level, thousands = row.split()
        size = "big" if level == "GoTo" else "small"
        settings = _pairs({"epochs": EPOCHS[int(thousands)]})
        demos = 1000 * int(thousands)
        for architecture, figure in figures.items():
            yield Cell("imitation", level, architecture, size, demos, settings, seeds=TEN_SEEDS, paper=figure)


def _speed_cells() -> Iterator[Cell]:
    for level in EASY_LEVELS:
        for architecture, figure in paper.SPEED.items():
            yield Cell("speed", level, architecture, paper=figure)


def _baseline_cells() -> Iterator[Cell]:
    settings = _pairs({"epochs": BASELINE_EPOCHS})
    for level in PAPER_LEVELS:
        figure = Figure(paper.BASELINES[level].success_11)
        yield Cell("imitation", level, "bow_endpool_res", "big", BASELINE_DEMOS, settings, paper=figure)


def _length_cells() -> Iterator[Cell]:
    for level in PAPER_LEVELS:
        figure = Figure(paper.BASELINES[level].demo_length, paper.BASELINES[level].demo_length_std)
        yield Cell("demo-lengths", level, demos=LENGTH_DEMOS, paper=figure)


# ------------------------------------------------------------ comparisons of our own


def _precision_cells() -> Iterator[Cell]:
    # float32 is slow, so the two are compared over its 40 epochs.
    few = _pairs({"epochs": 101})
    slow = _pairs({"epochs": 40, "precision": "float32"})
    yield Cell("imitation", "GoToLocal", "bow_endpool_res", "small", 5000, few, seeds=TEN_SEEDS[:3])
    yield Cell("imitation", "GoToLocal", "bow_endpool_res", "small", 5000, slow, "float32", TEN_SEEDS[:3])
    (cell,) = find_cells("ppo-representations", ["GoToRedBallGrey"], ["bow_endpool_res"])
    exact = (*cell.settings, ("precision", "float32"))
    yield replace(cell, paper=None)
    yield replace(cell, settings=exact, variant="float32", seeds=PPO_SEEDS[:3], paper=None)
    yield replace(cell, settings=(*exact, ("device", "cpu")), variant="cpu", seeds=PPO_SEEDS[:3], paper=None)


def _dagger_cells() -> Iterator[Cell]:
    shape: dict[str, Any] = {"endless": True, "batch_size": 20, "epoch_length": 4000, "epochs": 25, "threads": 2}
    greedy = _pairs(shape | {"greedy": True})
    plain = _pairs(shape)
    small = ("GoToObjMaze", "bow_endpool_res", "small", None)
    yield Cell("imitation", *small, plain, "endless", TEN_SEEDS[:3])
    yield Cell("dagger", *small, plain, "endless", TEN_SEEDS[:3])
    yield Cell("dagger", *small, greedy, "endless-greedy", TEN_SEEDS[:3])


def _pixel_cells() -> Iterator[Cell]:
    yield Cell("imitation", "GoToRedBallGrey", "pixels_endpool_res", "small", 5000, _pairs({"epochs": 101}))


def _disagreement_cells() -> Iterator[Cell]:
    for architecture in DISAGREEING:
        (cell,) = find_cells("imitation", ["GoToRedBall"], [architecture], [10_000])
        yield replace(cell, seeds=TEN_SEEDS[:3])
        for variant, settings in EXPLANATIONS.items():
            pairs = _pairs({"epochs": EXPLANATION_EPOCHS} | settings)
            seeds = TEN_SEEDS[:1] if "first_seed" in settings else TEN_SEEDS[:3]
            yield replace(cell, settings=pairs, variant=variant, seeds=seeds)


def _pairs(settings: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(settings.items())


TEN_SEEDS = tuple(range(10))
PPO_SEEDS = tuple(range(1, 11))
STUDIES: dict[str, Study] = {}


def _declare(name: str, title: str, table: str | None, unit: Unit, cells: Iterator[Cell], higher: bool = True) -> None:
    STUDIES[name] = Study(name, title, table, unit, tuple(cells), higher)


_declare("speed", "Frames per second of PPO", "2", "frames/s", _speed_cells())
_declare("demo-lengths", "Lengths of demonstrations", "4", "steps", _length_cells())
_declare("imitation", "Success of imitation learning", "3", "%", _imitation_cells())
_declare(
    *("ppo-architectures", "Sample efficiency of PPO, architectures", "1a", "thousand episodes"),
    _ppo_cells(paper.PPO_ARCHITECTURES, LEARNING_RATE),
    higher=False,
)
_declare(
    *("ppo-representations", "Sample efficiency of PPO, visual representations", "1b", "thousand episodes"),
    _ppo_cells(paper.PPO_REPRESENTATIONS, LEARNING_RATE),
    higher=False,
)
_declare(
    *("ppo-low-lr", "Sample efficiency of PPO, half the learning rate", "1c", "thousand episodes"),
    _ppo_cells(paper.PPO_LOW_LEARNING_RATE, LOW_LEARNING_RATE),
    higher=False,
)
_declare("baseline", "Success of big agents, a million demonstrations", "4", "%", _baseline_cells())
PAPER_STUDIES = tuple(STUDIES)
# Names for several tables.
GROUPS: dict[str, tuple[str, ...]] = {
    "ppo": ("ppo-architectures", "ppo-representations"),
    "all": PAPER_STUDIES,
}


# ------------------------------------------------------------ choosing


def find_studies(name: str, quick: bool = False) -> list[Study]:
    """The study of that name, or the studies of a group."""
    if name not in GROUPS and name not in STUDIES:
        known = [*STUDIES, *GROUPS]
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown table {name!r}; {hint}there are {', '.join(known)}")
    studies = [STUDIES[each] for each in GROUPS.get(name, (name,))]
    return [study.shortened() for study in studies] if quick else studies


def find_cells(
    name: str,
    levels: Sequence[str] = (),
    architectures: Sequence[str] = (),
    demos: Sequence[int] = (),
    quick: bool = False,
    variants: Sequence[str] = (),
) -> list[Cell]:
    """The cells of a study or group, restricted to some levels, architectures, numbers of demonstrations and variants.

    Raises:
        ValueError: There is no such table, level, architecture, number of demonstrations or variant, or no cell has all
            of them.
    """
    names = [find_level(level).name for level in levels]
    cells = {cell.name: cell for study in find_studies(name) for cell in study.cells}
    found = list(cells.values())
    for title, wanted, value in (
        ("level", names, lambda cell: cell.level),
        ("architecture", architectures, lambda cell: cell.architecture),
        ("number of demonstrations", demos, lambda cell: cell.demos),
        ("variant", variants, lambda cell: cell.variant),
    ):
        available = list(dict.fromkeys(value(cell) for cell in cells.values()))
        for each in wanted:
            if each not in available:
                known = ", ".join(map(str, filter(None, available))) or "none"
                raise ValueError(f"{name} has no cell with {title} {each!r}; it has {known}")
        found = [cell for cell in found if not wanted or value(cell) in wanted]
    if not found:
        raise ValueError(f"{name} has no cell with all of these levels, architectures, demonstrations and variants")
    return [cell.shortened() for cell in found] if quick else found


def list_runs(cells: Sequence[Cell], seeds: int | None = None, shard: str | None = None) -> list[Run]:
    """The runs of the cells.

    Args:
        cells: Cells.
        seeds: Number of seeds per cell; default: all of the cell's.
        shard: `i/n` for the i-th of n equal parts, i from 1 on; default: all runs.
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    runs = [Run(cell, seed) for cell in cells for seed in cell.seeds[:seeds]]
    if shard is None:
        return runs
    number, slash, count = shard.partition("/")
    if not slash or not (number.isdecimal() and count.isdecimal()) or not 1 <= int(number) <= int(count):
        raise ValueError(f"a shard is i/n with i from 1 to n, such as 1/4, not {shard!r}")
    return runs[int(number) - 1 :: int(count)]


_declare("precision", "bf16 and float32", None, "%", _precision_cells())
_declare("dagger", "DAgger and imitation learning", None, "%", _dagger_cells())
_declare("disagreements", "Where imitation learning disagrees with the paper", None, "%", _disagreement_cells())
_declare("pixels", "An agent that sees pixels", None, "%", _pixel_cells())
CELLS = {cell.name: cell for study in reversed(STUDIES.values()) for cell in study.cells}
"""All cells by name; of those with the same name, the first."""
