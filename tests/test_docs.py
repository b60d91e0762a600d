"""The pages for users: their Python runs, their commands exist, their links, tables and pictures are right."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.run_page import ROOT, blocks_of, commands_of

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
# Pages whose blocks train, import torch, or compile recipes.
SLOW_PAGES = (
    *("adding-a-level", "agents", "evaluation", "map-agent", "own-missions", "policies", "studies"),
    *("training", "tutorial", "watch"),
)
every_page_with_blocks = pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.long] * (page.stem in SLOW_PAGES))
        for page in PAGES
        if {block.language for block in blocks_of(page)} & {"python", "console"}
    ],
)


def libraries_of(page: Path) -> set[str]:
    """The other libraries that blocks ```python needs <library> need."""
    notes = [block.note for block in blocks_of(page) if block.language == "python"]
    return {note.removeprefix("needs ") for note in notes if note.startswith("needs ")}


# ---------------------------------------------------------------- Python and babyai's commands


def run_in_fresh_interpreter(page: Path, folder: Path, *options: str) -> None:
    """Runs the blocks of a page in an empty folder, with warnings as errors, as in the other tests."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.run_page", str(page), *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@every_page_with_blocks
@pytest.mark.compiled
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    notes = [block.note for block in blocks_of(page) if block.language == "python"]
    assert all(note == "" or note.startswith(("needs ", "file ")) for note in notes)
    run_in_fresh_interpreter(page, tmp_path)


# Long, because these libraries are slow to import; tests/envs tests the adapters themselves by default.
@pytest.mark.long
@pytest.mark.downstream
@pytest.mark.compiled
@pytest.mark.parametrize("page", [page for page in PAGES if libraries_of(page)], ids=lambda page: page.stem)
def test_python_with_other_libraries_runs(page: Path, tmp_path: Path) -> None:
    for library in libraries_of(page):
        pytest.importorskip(library)
    run_in_fresh_interpreter(page, tmp_path, "--libraries")


# ---------------------------------------------------------------- commands


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(words) <= set(targets), f"make {words}: the Makefile has {targets}"


def check_python(words: list[str]) -> None:
    if words[0] == "-m" and words[1] == "pip":
        check_pip(words[2:])
    elif words[0] == "-m":
        assert find_spec(words[1]) is not None, f"there is no module {words[1]}"
    else:
        assert (ROOT / words[0]).is_file(), f"there is no file {words[0]}"


def check_pip(words: list[str]) -> None:
    assert words[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for wanted in re.findall(r"\[([^\]]*)\]", " ".join(words)):
        assert set(wanted.split(",")) <= set(extras)


@every_page
def test_commands_of_other_programs_exist(page: Path) -> None:
    checks = {"make": check_make, "python": check_python, "pip": check_pip, "babyai": lambda words: None}
    for program, *words in commands_of(page):
        checks[program](words)


# ---------------------------------------------------------------- links, tables, pictures


def anchors_of(page: Path) -> set[str]:
    """The names that links to the headings of a page end with."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for file, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if file.startswith(("http://", "https://")):
            continue
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}, which does not exist"
        assert not anchor or anchor in anchors_of(target), f"{file} has no heading #{anchor}"


def test_index_leads_to_every_page() -> None:
    linked = {file for file, _ in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))}
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"index.md"}


def test_every_picture_is_made_by_a_command() -> None:
    made = {word for page in PAGES for words in commands_of(page) for word in words if word.startswith("docs/images/")}
    # Drawn from what a GPU measured, by `python -m benchmarks.kernels draw`.
    made.add("docs/images/kernels.png")
    # A failure of the agent that comes with the package, by `python -m benchmarks.map_circle`.
    made.add("docs/images/circle.png")
    # The pages in a browser, by `python -m tests.web.picture docs/images`.
    made |= {f"docs/images/{name}.png" for name in ("play", "compare", "runs")}
    assert made == {str(picture.relative_to(ROOT)) for picture in (DOCS / "images").iterdir()}


def test_no_mission_of_the_map_agent_counts_twice() -> None:
    add_up = runpy.run_path(str(DOCS / "tables.py"))["_add_up"]
    blocks = [
        {"first_seed": seed, "missions": 100, "successes": successes, "expert_success_rate": 1.0}
        for seed, successes in ((0, 99), (100, 97), (200, 100))
    ]
    result = add_up("GoTo", blocks)
    assert (result.missions, result.successes) == (300, 296) and str(result).startswith("**98.67**")
    with pytest.raises(ValueError, match=r"GoTo.*100"):
        add_up("GoTo", [blocks[0], blocks[1], blocks[1]])


def test_tables_follow_the_code() -> None:
    maker = runpy.run_path(str(DOCS / "tables.py"))
    for name, (file, make) in maker["TABLES"].items():
        page = (DOCS / file).read_text(encoding="utf-8")
        assert maker["with_table"](page, name, make()) == page, f"{file} is out of date: run python docs/tables.py"
