"""The pages for users: their Python runs, their commands exist, their links, tables and pictures are right."""

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

from babyai import cli
from babyai.levels.catalog import LEVELS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
# Pages whose Python trains for half a minute.
SLOW_PAGES = ("policies",)
every_page_in_its_time = pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.long] * (page.stem in SLOW_PAGES)) for page in PAGES],
)


@dataclass(frozen=True)
class Block:
    """A fenced block: ```language note."""

    language: str
    note: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    blocks, opened, lines = [], None, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            lines.append(line)
        elif opened is None:
            opened, lines = (number, *line[3:].partition(" ")[::2]), []
        else:
            start, language, note = opened
            blocks.append(Block(language, note.strip(), "\n".join(lines), start))
            opened = None
    assert opened is None, f"{page.name}: the block opened in line {opened} is not closed"
    return blocks


def other_library(block: Block) -> str | None:
    """The library that a block ```python needs <library> needs."""
    return block.note.removeprefix("needs ") if block.note.startswith("needs ") else None


def run_python(page: Path, blocks: list[Block]) -> None:
    """Runs the blocks one after the other in one namespace; a traceback names the line of the page."""
    namespace: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    for block in blocks:
        source = "\n" * block.line + block.text
        exec(compile(source, str(page), "exec"), namespace)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in; levels that a page registers are forgotten afterwards."""
    known = set(LEVELS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(LEVELS) - known:
        gymnasium.registry.pop(LEVELS.pop(name).id, None)


# ---------------------------------------------------------------- Python


@every_page_in_its_time
@pytest.mark.compiled
def test_python_runs(page: Path, elsewhere: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    assert all(block.note in ("", "no-run") or other_library(block) for block in blocks)
    run_python(page, [block for block in blocks if block.note == ""])


@pytest.mark.downstream
@pytest.mark.compiled
@pytest.mark.parametrize("library", ["stable_baselines3", "torchrl"])
def test_python_with_other_libraries_runs(library: str, elsewhere: Path) -> None:
    pytest.importorskip(library)
    page = DOCS / "environments.md"
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    wanted = [block for block in blocks if other_library(block) == library]
    assert wanted
    run_python(page, [blocks[0], *wanted])


# ---------------------------------------------------------------- commands


def commands_of(page: Path) -> list[list[str]]:
    """The command lines of a page, split into words, comments left out."""
    lines = [line for block in blocks_of(page) if block.language == "console" for line in block.text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


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


def run_babyai(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a command, all but the long one; a picture that lies among the docs must be the one it makes."""
    if words == ["quickstart"]:
        return
    pictures = [Path(word) for word in words if word.endswith(".png")]
    for picture in pictures:
        picture.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr("sys.argv", ["babyai", *words])
    cli.main()
    for picture in pictures:
        if (ROOT / picture).exists():
            with Image.open(picture) as made, Image.open(ROOT / picture) as shown:
                assert np.array_equal(np.asarray(made), np.asarray(shown)), f"{picture} is out of date"


@every_page
@pytest.mark.compiled
def test_commands_exist(page: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program, *words in commands_of(page):
        if program == "babyai":
            run_babyai(words, monkeypatch)
        else:
            {"make": check_make, "python": check_python, "pip": check_pip}[program](words)


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
    # The page in a browser, by `python -m tests.web.picture docs/images/play.png`.
    made.add("docs/images/play.png")
    assert made == {str(picture.relative_to(ROOT)) for picture in (DOCS / "images").iterdir()}


def test_tables_follow_the_code() -> None:
    maker = runpy.run_path(str(DOCS / "tables.py"))
    for name, (file, make) in maker["TABLES"].items():
        page = (DOCS / file).read_text(encoding="utf-8")
        assert maker["with_table"](page, name, make()) == page, f"{file} is out of date: run python docs/tables.py"
