"""The site that `make docs` builds: complete, without broken links, and without anything fetched from elsewhere."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from babyai.levels.catalog import LEVELS, PAPER_LEVELS
from tests.run_page import ROOT, blocks_of

DOCS = ROOT / "docs"
GENERATED = ("levels", "reference")


@pytest.fixture(scope="module")
def pages() -> dict[str, Any]:
    """What docs/site_pages.py defines."""
    sys.path.insert(0, str(DOCS))
    try:
        return runpy.run_path(str(DOCS / "site_pages.py"))
    finally:
        sys.path.remove(str(DOCS))


def test_the_reference_has_every_command(pages: dict[str, Any]) -> None:
    commands = set(pages["iter_commands"]())
    assert {("show",), ("demos",), ("demos", "verify"), ("train", "online-dagger"), ("study", "report")} <= commands
    page = pages["cli_page"]()
    for words in commands:
        assert re.search(rf"^##+ babyai {' '.join(words)}$".replace(" $", "$"), page, re.MULTILINE)
    assert "--first-seed INT" in page and "\x1b" not in page


def test_commands_in_the_docs_exist(pages: dict[str, Any]) -> None:
    """Those in ```text blocks, too, which are not run: their options are among those that `--help` lists."""
    helps = {words: pages["help_of"](words) for words in pages["iter_commands"]()}
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        lines = [line for block in blocks_of(page) if block.language == "text" for line in block.text.splitlines()]
        for line in lines:
            if not line.startswith("babyai "):
                continue
            words = shlex.split(line, comments=True)[1:]
            command = max((known for known in helps if tuple(words[: len(known)]) == known), key=len)
            assert command, f"{page.name}: there is no such command: {line}"
            for option in [word.partition("=")[0] for word in words if word.startswith("--")]:
                assert re.search(rf"{option}\b", helps[command]), f"{page.name}: {option} is no option of {line}"


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["GoToLocal", "OpenTwoDoors", "TestLotsOfBlockers"])
def test_a_level_has_a_picture_missions_limits_and_results(pages: dict[str, Any], name: str, tmp_path: Path) -> None:
    grids = pages["make_grids"](pages["read_rows"](pages["RESULTS"] / "studies").chosen())
    page = pages["level_page"](LEVELS[name], grids, tmp_path)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert f"]({name}.png)" in page and f"`babyai/{name}-v0`" in page and LEVELS[name].task[1:] in page
    facts = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE))
    expected = {
        "GoToLocal": ("64 steps", "go to"),
        "OpenTwoDoors": ("720 steps", "open"),
        "TestLotsOfBlockers": ("128 steps", "put next to"),
    }
    assert (facts["time limit"], facts["verbs"]) == expected[name]
    assert ("Table 3" in page and "draws a map" in page) == (name in PAPER_LEVELS)


def build(docs: Path, out: Path, builder: str = "html") -> subprocess.CompletedProcess[str]:
    """Runs the command of `make docs`, except for what is printed."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-b", builder, str(docs), str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copied_docs(tmp_path: Path) -> Path:
    """The docs without generated pages, next to the results that these show, and the agent that they are of."""
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns(*GENERATED, "__pycache__"))
    for name in ("results", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path / "docs"


@pytest.mark.long
@pytest.mark.compiled
def test_the_site_is_built_without_warnings(copied_docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("furo")
    done = build(copied_docs, tmp_path / "site")
    assert done.returncode == 0, done.stderr[-3000:]
    site = tmp_path / "site"
    for page in copied_docs.glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
    assert {page.stem for page in (site / "levels").glob("*.html")} == set(LEVELS)
    # Navigation in groups, search, and nothing from elsewhere.
    index = (site / "index.html").read_text(encoding="utf-8")
    for group in ("Tutorial", "How-to guides", "Explanation", "Reference", "Levels"):
        assert f'caption-text">{group}<' in index
    assert "bosslevel" in (site / "searchindex.js").read_text(encoding="utf-8").lower()
    for page in site.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text("utf-8")
        )
        assert not fetched, f"{page.name} fetches {fetched}"


@pytest.mark.long
@pytest.mark.compiled
def test_a_broken_link_is_an_error(copied_docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("furo")
    with open(copied_docs / "glossary.md", "a", encoding="utf-8") as page:
        page.write("\n[nowhere](no-such-page.md) and [no heading](levels.md#no-such-heading)\n")
    done = build(copied_docs, tmp_path / "site", "dummy")
    assert done.returncode != 0
    assert "no-such-page.md" in done.stderr and "no-such-heading" in done.stderr and "glossary.md" in done.stderr
