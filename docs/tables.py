"""Generates the tables in these pages from the code: `python docs/tables.py`.

A table is between two comments, `<!-- name: begin -->` and `<!-- name: end -->`. `tests/test_docs.py` checks that the
tables are up to date.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from babyai.evaluation.paper import BASELINES
from babyai.evaluation.statistics import wilson_interval
from babyai.levels.catalog import LEVELS, PAPER_LEVELS, Level
from babyai.seeds import TEST_SEED
from babyai.studies.cells import STUDIES
from babyai.studies.statistics import CellResult, study_results
from babyai.studies.store import read_rows
from babyai.studies.tables import format_figure, format_result
from babyai.text.actions import ACTION_MEANINGS, ACTION_NAMES
from babyai.world.codes import VOCABULARY, Action
from babyai.world.state import WORLD

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def _describe_level(level: Level) -> str:
    """Returns the task of a level and, for randomly generated levels, the settings that the task does not name."""
    if level.recipe != "random_level":
        return level.task
    settings = [f"{level.objects} objects"]
    if level.locked_room:
        settings.append(f"locked room with probability {level.locked_room:g}")
    return f"{level.task} ({', '.join(settings)})"


def levels_table() -> str:
    """Returns the table of all levels, with the levels of the paper in bold."""
    rows = []
    for level in LEVELS.values():
        per_trip = level.room_size**2 * level.rows * level.columns
        name = f"**{level.name}**" if level.name in PAPER_LEVELS else level.name
        rooms = f"{level.rows}×{level.columns} of {level.room_size}"
        limit = str(level.max_steps) if level.max_steps else f"{per_trip} per trip"
        rows.append([name, rooms, f"{level.width}×{level.height}", limit, _describe_level(level)])
    return markdown_table(["level", "rooms", "cells", "steps", "task"], rows)


def vocabulary_table() -> str:
    """Returns the table of all words with their token ids."""
    words = [f"{token} {word or '(padding)'}" for token, word in enumerate(VOCABULARY)]
    return markdown_table([""] * 11, [words[k : k + 11] for k in range(0, len(words), 11)])


def record_table() -> str:
    """Returns the table of the fields of the world record."""
    rows = []
    for name in WORLD.names or ():
        dtype, offset = (WORLD.fields or {})[name][:2]
        kind = dtype.base.name + (f"[{dtype.shape[0]}]" if dtype.shape else "")
        rows.append([str(offset), f"`{name}`", kind, FIELDS[name]])
    return markdown_table(["byte", "field", "type", "meaning"], rows)


def results_table() -> str:
    """Returns, for the README, the paper's 1.1 agent next to ours: each level with the most demonstrations, and PPO."""
    chosen = read_rows(ROOT / "results/studies").chosen()
    studies = [STUDIES["imitation"], STUDIES["ppo-representations"]]
    results = [result for study in studies for result in study_results(study, chosen) if result.summary is not None]
    ours = [result for result in results if result.cell.architecture == "bow_endpool_res"]
    # Cells are in the order of the paper, so the last one of a level has the most demonstrations.
    rows = {(result.cell.kind, result.cell.level): _results_row(result) for result in ours}
    tested = [result.agrees for result in results if result.agrees is not None]
    note = (
        "In parentheses: the number of runs. With two runs or more, a cell of the paper's table can be tested: "
        f"{sum(tested)} of {len(tested)} agree (Tables 1b and 3, all architectures; Welch's test, p ≥ 0.01)."
    )
    return f"{markdown_table(['level', 'training', 'figure', 'paper', 'ours'], list(rows.values()))}\n\n{note}"


def _results_row(result: CellResult) -> list[str]:
    """A row of the README's table."""
    cell = result.cell
    if cell.kind == "imitation":
        training = f"imitation, {cell.demos:,} demonstrations"
        unit, figure = "%", "success, %"
    else:
        training = "PPO"
        unit, figure = "thousand episodes", "thousand episodes until 99 %"
    return [cell.level, training, figure, format_figure(cell.paper, unit), f"**{format_result(result, unit)}**"]


def engine_table() -> str:
    """Returns, for the README, some rows and columns of the table of speeds."""
    lines = (DOCS / "speed.md").read_text(encoding="utf-8").split("<!-- speed: begin -->")[1].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    chosen = [row for row in rows if row[0] in ("GoToLocal", "GoTo", "BossLevel")]
    titles = ["level", "million steps", "times Minigrid 3.2.0", "times EnvPool 1.2.5"]
    return markdown_table(titles, [row[:4] for row in chosen])


@dataclass(frozen=True)
class MapResult:
    """The test missions of the map agent on a level, and the expert's success on them."""

    missions: int
    successes: int
    expert_success_rate: float

    def __str__(self) -> str:
        """The success rate in percent with its 95 % interval."""
        low, high = wilson_interval(self.successes, self.missions)
        return f"**{100 * self.successes / self.missions:.2f}** ({100 * low:.2f} to {100 * high:.2f})"


def read_map_results() -> dict[str, MapResult]:
    """Returns the test results of the map agent that comes with the package, by level."""
    weights = hashlib.sha256((ROOT / "models/map/model.safetensors").read_bytes()).hexdigest()[:12]
    rows = [json.loads(line) for line in (ROOT / "results/map/test.jsonl").read_text(encoding="utf-8").splitlines()]
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["first_seed"]):
        if row["weights"] == weights and row["actions"] == "argmax" and row["first_seed"] >= TEST_SEED:
            parts.setdefault(row["level"], []).append(row)
    return {level: _add_up(level, rows) for level, rows in parts.items()}


def _add_up(level: str, rows: Sequence[dict[str, Any]]) -> MapResult:
    """The results of all missions of a level; rows are sorted by their seeds."""
    for one, other in pairwise(rows):
        if one["first_seed"] + one["missions"] > other["first_seed"]:
            raise ValueError(f"{level}: missions from seed {other['first_seed']} on occur twice")
    missions = sum(row["missions"] for row in rows)
    solved_by_expert = sum(row["expert_success_rate"] * row["missions"] for row in rows)
    return MapResult(missions, sum(row["successes"] for row in rows), solved_by_expert / missions)


def map_table() -> str:
    """Returns the map agent's test results on the paper's levels, next to the paper's."""
    results = read_map_results()
    rows = []
    for name in PAPER_LEVELS:
        theirs = BASELINES[name]
        ours = results[name]
        rows.append([name, f"{theirs.success_10:g}", f"{theirs.success_11:g}", str(ours), f"{ours.missions:,}"])
    return markdown_table(["level", "paper, 1.0", "paper, 1.1", "map agent", "missions"], rows)


def map_others_table() -> str:
    """Returns the map agent's test results on levels that it was not trained on, worst first."""
    results = {name: result for name, result in read_map_results().items() if name not in PAPER_LEVELS}
    solved = sorted(name for name, result in results.items() if result.successes == result.missions)
    others = sorted(results.keys() - set(solved), key=lambda name: (results[name].successes, name))
    rows = [[name, str(results[name]), f"{100 * results[name].expert_success_rate:g}"] for name in others]
    (missions,) = {result.missions for result in results.values()}
    table = markdown_table(["level", f"map agent, {missions:,} missions", "expert"], rows)
    return f"{table}\n\nAll {missions:,} missions of {len(solved)} levels are solved: {', '.join(solved)}."


def map_ablations_table() -> str:
    """Returns small agents on four levels: with everything, without a part, and the paper's agent."""
    lines = (ROOT / "results/map/trained-without.jsonl").read_text(encoding="utf-8").splitlines()
    runs: dict[str, dict[str, dict[str, Any]]] = {}
    for row in map(json.loads, lines):
        runs.setdefault(row["run"], {})[row["level"]] = row
    levels = list(next(iter(runs.values())))
    rows = []
    for by_level in runs.values():
        about = by_level[levels[0]]
        rates = [by_level[level]["success_rate"] for level in levels]
        percent = [f"{100 * rate:.1f}" for rate in (about["label_accuracy"], *rates)]
        rows.append([_describe_run(about), f"{about['frames'] / 1e6:.1f}", *percent])
    return markdown_table(["agent", "frames, million", "label accuracy, %", *levels], rows)


def _describe_run(row: dict[str, Any]) -> str:
    """What is special about a run of `benchmarks.map_ablations`."""
    if row["architecture"] != "map":
        return f"`{row['architecture']}`, {row['size']}, learning rate {row['learning_rate'] * 1e4:g}e-4"
    without = [setting.removeprefix("without=") for setting in row["settings"]]
    return f"without `{without[0]}`" if without else f"everything, seed {row['seed']}"


def actions_table() -> str:
    """Returns the table of all actions with their names and meanings for language models."""
    rows = [[str(action.value), ACTION_NAMES[action], ACTION_MEANINGS[action]] for action in Action]
    return markdown_table(["number", "name", "meaning"], rows)


FIELDS = {
    "rng_high": "PCG64 state, upper half",
    "rng_low": "PCG64 state, lower half",
    "rng_inc_high": "PCG64 increment, upper half",
    "rng_inc_low": "PCG64 increment, lower half",
    "seed": "the last seed of this world",
    "rng_spare": "the buffered 32-bit half of the last output",
    "step_count": "steps taken in this episode",
    "max_steps": "the time limit of this episode",
    "level": "index in the engine's list of levels",
    "rng_has_spare": "whether `rng_spare` is valid",
    "status": "0 not reset, 1 running, 2 ended",
    "options": "bit 0: lenient (the paper's rules); bit 1: done actions",
    "agent_dir": "0 right, 1 down, 2 left, 3 up",
    "agent": "flat index of the agent's cell",
    "carrying": "cell byte of the carried object, or 0",
    "carried_tracks": "track bits of the carried object",
    "width": "width of the grid in cells",
    "height": "height of the grid in cells",
    "room_width": "width of a room in cells, walls included",
    "room_height": "height of a room in cells, walls included",
    "hidden": "cell byte of the content of the marked box",
    "stale": "whether tracks may contain cells that objects have left",
    "first_side_done": "whether the side to be carried out first is done",
    "clauses_done": "one bit per clause: done (for clauses joined by *and*)",
    "clauses_checked": "one bit per clause: checked at least once in this episode",
    "clauses_matched": "one bit per clause: fulfilled on the last step (done actions)",
    "order": "0 one side, 1 *then*, 2 *after you*",
    "strict": "one bit per clause: a wrong toggle or pickup fails the mission",
    "definite": "one bit per descriptor: *the* rather than *a*",
    "verbs": "per clause: 0 none, 1 go to, 2 pick up, 3 open, 4 put next",
    "nouns": "per descriptor: the kind, 0 for *object*",
    "colors": "per descriptor: the color, 6 for any",
    "places": "per descriptor: 0 anywhere, 1 left, 2 right, 3 front, 4 behind",
    "tracks": "per cell: one bit per descriptor that tracks an object there",
    "cells": "the grid and its margin of wall",
    "unused": "padding to whole words",
}


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table; short rows are padded."""
    lines = [titles, ["---"] * len(titles), *([*row, *[""] * (len(titles) - len(row))] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "levels": ("levels.md", levels_table),
    "vocabulary": ("language.md", vocabulary_table),
    "record": ("architecture.md", record_table),
    "map": ("map-agent.md", map_table),
    "map-others": ("map-agent.md", map_others_table),
    "map-ablations": ("map-agent.md", map_ablations_table),
    "map-agent": ("../README.md", map_table),
    "actions": ("text-agents.md", actions_table),
    "results": ("../README.md", results_table),
    "engine": ("../README.md", engine_table),
}


def with_table(page: str, name: str, table: str) -> str:
    """Returns the page with the table between its two comments replaced."""
    begin = f"<!-- {name}: begin -->"
    end = f"<!-- {name}: end -->"
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"


if __name__ == "__main__":
    for name, (file, make) in TABLES.items():
        path = DOCS / file
        path.write_text(with_table(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")
