"""Writes the pages of the site that follow from the code: one per level, the commands, the API.

Called by `conf.py` when the site is built. The pages are not kept in the repository.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tables import markdown_table, read_map_results

from babyai import cli
from babyai.engine import Engine
from babyai.envs.registration import NOT_IN_MINIGRID, minigrid_id
from babyai.evaluation.paper import BASELINES
from babyai.levels.catalog import LEVELS, PAPER_LEVELS, Level
from babyai.render.film import draw_scene
from babyai.render.picture import save_png
from babyai.render.scene import take_scene
from babyai.studies.markdown import format_cell, format_ours
from babyai.studies.store import read_rows
from babyai.studies.tables import Grid, make_grids
from babyai.world.codes import GO_TO, OPEN, PICK_UP, PUT_NEXT
from babyai.world.language import Clause, Mission

RESULTS = Path(__file__).parents[1] / "results"
# Missions from which a page's examples and ranges are taken.
SAMPLED = 512
EXAMPLES = 6
# Columns of a help text: what fits next to the navigation.
HELP_COLUMNS = 92
VERBS = {GO_TO: "go to", PICK_UP: "pick up", OPEN: "open", PUT_NEXT: "put next to"}

# The modules of each page of the API.
API = {
    "worlds": ("Worlds, levels, missions", ["engine", "levels.catalog", "world.language", "world.codes"]),
    "environments": (
        "Environments",
        ["envs.single", "envs.vector", "envs.adapters", "envs.registration", "envs.custom_levels"],
    ),
    "expert": ("The expert", ["expert.expert", "expert.plan"]),
    "demonstrations": (
        "Demonstrations",
        [*("demos.collect", "demos.store", "demos.sources", "demos.replay", "demos.verify"), "demos.export", "batch"],
    ),
    "agents": ("Agents", ["agents.agent", "agents.config", "agents.policy", "agents.custom"]),
    "training": (
        "Training",
        ["training.options", "training.imitation", "training.dagger", "training.ppo", "training.fit", "training.run"],
    ),
    "evaluation": ("Evaluation", ["evaluation.evaluate", "evaluation.players", "evaluation.statistics"]),
    "rendering": ("Rendering", ["render.frame", "render.text", "render.scene", "render.film", "evaluation.watch"]),
}
REFERENCE = ["reference/cli", *(f"reference/{name}" for name in API)]


def write_all(docs: Path) -> None:
    """Writes all generated pages, each only if it has changed, so that Sphinx need not read it again."""
    for folder in ("levels", "reference"):
        (docs / folder).mkdir(exist_ok=True)
    grids = make_grids(read_rows(RESULTS / "studies").chosen())
    for level in LEVELS.values():
        write(docs / "levels" / f"{level.name}.md", level_page(level, grids, docs / "levels"))
    write(docs / "reference" / "cli.md", cli_page())
    for name, (title, modules) in API.items():
        write(docs / "reference" / f"{name}.md", api_page(f"API: {title[0].lower()}{title[1:]}", modules))


def write(path: Path, text: str) -> None:
    """Writes a page unless it is the same."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


# ------------------------------------------------------------ levels


def level_page(level: Level, grids: list[Grid], folder: Path) -> str:
    """A level: picture, missions, limits, results; the picture is written next to the page."""
    engine = Engine(level, SAMPLED)
    engine.reset(0)
    save_png(draw_scene(take_scene(engine)), folder / f"{level.name}.png")
    missions = [Mission.read(world) for world in engine.worlds]
    limits = engine.worlds.max_steps
    parts = [
        f"# {level.name}",
        f"{level.task[0].upper()}{level.task[1:]}.",
        f"![A world of {level.name}: {missions[0]}]({level.name}.png)",
        "The agent is the white triangle, and sees the bright cells.",
        "## Missions",
        "\n".join(f"* *{text}*" for text in list(dict.fromkeys(map(str, missions)))[:EXAMPLES]),
        "## Limits",
        markdown_table(["", ""], list(facts(level, missions, int(limits.min()), int(limits.max())))),
        f"Measured on the {SAMPLED} missions of the seeds 0 to {SAMPLED - 1}, under the paper's rules. "
        "[How to read the sizes](../levels.md); [the two rule sets](../rules.md).",
        "## Try it",
        f"```text\nbabyai play --level {level.name}\nbabyai watch expert --level {level.name}\n```",
        f'```python\nimport gymnasium as gym\n\nimport babyai\n\nenv = gym.make("{level.id}")\n```',
        "## Results",
        *results(level, grids),
    ]
    return "\n\n".join(parts) + "\n"


def facts(level: Level, missions: list[Mission], shortest: int, longest: int) -> Iterator[tuple[str, str]]:
    """The sizes and limits of a level, and what its missions are made of."""
    clauses = [mission.first + mission.second for mission in missions]
    verbs = {clause.verb for each in clauses for clause in each}
    words = [len(str(mission).split()) for mission in missions]
    yield "Gymnasium id", f"`{level.id}`"
    yield "Minigrid's id", "none" if level.name in NOT_IN_MINIGRID else f"`{minigrid_id(level)}`"
    yield "rooms", f"{level.rows} × {level.columns}, of {level.room_size} × {level.room_size} cells with walls"
    yield "cells", f"{level.width} × {level.height}"
    yield "time limit", f"{span(shortest, longest)} steps{', depending on the mission' if shortest < longest else ''}"
    yield "verbs", ", ".join(name for verb, name in VERBS.items() if verb in verbs)
    yield "clauses in a mission", span(min(map(len, clauses)), max(map(len, clauses)))
    yield "words in a mission", span(min(words), max(words))
    yield "different missions", f"{len(set(map(str, missions)))} of {len(missions)}"
    yield "objects by place, such as *on your left*", "yes" if any(map(has_place, sum(clauses, ()))) else "no"
    yield "in the paper", "yes" if level.name in PAPER_LEVELS else "no"


def span(low: int, high: int) -> str:
    """A range of numbers."""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def has_place(clause: Clause) -> bool:
    """Whether a clause describes an object by its place."""
    return bool(clause.object.place or (clause.target and clause.target.place))


def results(level: Level, grids: list[Grid]) -> Iterator[str]:
    """What was measured on a level, next to the paper's figures."""
    if level.name not in PAPER_LEVELS:
        yield "This level is not in the paper's tables."
        yield map_result(level)
        return
    paper = BASELINES[level.name]
    yield (
        "The paper's big agent, trained on a million demonstrations: success "
        f"{paper.success_10:g} % (BabyAI 1.0) and {paper.success_11:g} % (1.1)."
    )
    yield map_result(level)
    for grid in grids:
        yield from grid_table(level, grid)
    yield "[All results](../results.md), with intervals, tests and machines."


def map_result(level: Level) -> str:
    """The test result of the agent that draws a map."""
    result = read_map_results().get(level.name)
    if result is None:
        return ""
    return (
        f"[The agent that draws a map](../map-agent.md), one agent for all levels: {result} % of {result.missions:,} "
        "test missions."
    )


def grid_table(level: Level, grid: Grid) -> Iterator[str]:
    """The rows of a table of the paper that are about this level."""
    rows = [(row, cells) for row, cells in grid.rows if row.partition(",")[0] == level.name]
    if not rows:
        return
    yield f"**{grid.study.title}**, in {grid.study.unit} (paper, Table {grid.study.table}):"
    if len(grid.columns) == 1:
        yield markdown_table(["paper", "ours"], [(cells[0].paper, format_ours(cells[0])) for _, cells in rows])
    else:
        lines = [(row.partition(", ")[2], *map(format_cell, cells)) for row, cells in rows]
        titles = ["demonstrations" if lines[0][0] else "", *grid.columns]
        yield "In each cell: the paper's figure, then ours with the number of runs.\n\n" + markdown_table(titles, lines)


# ------------------------------------------------------------ commands


def cli_page() -> str:
    """The help of every command, as the parser prints it."""
    parts = ["# Commands", "What `--help` prints, for every command."]
    for words in iter_commands():
        parts += [
            f"{'#' * (2 + (len(words) > 1))} babyai {' '.join(words)}".rstrip(),
            f"```text\n{help_of(words)}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def iter_commands(words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """A command and its subcommands, as words."""
    yield words
    usage = help_of(words).partition("\n\n")[0]
    for names in re.findall(r"\{([a-z,-]+)\}$", usage):
        for name in names.split(","):
            yield from iter_commands((*words, name))


def help_of(words: tuple[str, ...]) -> str:
    """The help text of a command."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(HELP_COLUMNS)
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            cli.make_app().cli(args=[*words, "--help"], prog="babyai", description=cli.DESCRIPTION)
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue()).strip()


# ------------------------------------------------------------ the API


def api_page(title: str, modules: list[str]) -> str:
    """The docstrings of some modules."""
    parts = [f"# {title}"]
    for module in modules:
        name = f"babyai.{module}"
        directive = f".. automodule:: {name}\n   :members:\n   :show-inheritance:"
        parts += [f"## {name}", f"```{{eval-rst}}\n{directive}\n```"]
    return "\n\n".join(parts) + "\n"
