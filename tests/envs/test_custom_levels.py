"""Levels of one's own on the command line, as `file.py:Level`."""

import re
import sys
from pathlib import Path

import pytest

from babyai import cli
from babyai.demos.header import settings_of
from babyai.envs.custom_levels import load_level, load_levels
from babyai.levels.catalog import LEVELS, PAPER_LEVELS, find_level

pytestmark = pytest.mark.usefixtures("forget_levels")

SOURCE = """
import babyai

def recipe(s, d, level):
    "Go nowhere."
    return False

Small = babyai.Level("Small", "go_to_object", room_size=5, rows=1, columns=1)
Nowhere = babyai.Level("Nowhere", recipe)
babyai.register_level(babyai.Level("Registered", "go_to_object", room_size=6, rows=1, columns=1))
number = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own_levels.py"
    path.write_text(SOURCE)
    return path


def test_a_level_is_found_by_its_variable_or_by_its_name(file: Path) -> None:
    assert load_level("own_levels.py:Small").name == "Small"
    assert load_level(f"{file}:Registered").room_size == 6
    # From then on, its name is enough.
    assert find_level("Small") is load_level("own_levels.py:Small")
    assert tuple(level.name for level in load_levels("all")) == PAPER_LEVELS
    names = [level.name for level in load_levels("GoToLocal, own_levels.py:Small,babyai/Open-v0")]
    assert names == ["GoToLocal", "Small", "Open"]


def test_a_module_will_do(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(file.parent)
    assert load_level("own_levels:Small").name == "Small"
    monkeypatch.delitem(sys.modules, "own_levels")


def test_a_level_of_a_file_is_recorded_like_that_of_a_module(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that demonstrations collected by a command can be read where the level is imported."""
    monkeypatch.syspath_prepend(file.parent)
    stored = settings_of(load_level("own_levels.py:Nowhere"))
    assert stored["recipe"] == "own_levels.recipe"
    assert settings_of(load_level("own_levels:Nowhere")) == stored
    monkeypatch.delitem(sys.modules, "own_levels")


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("own_levels.py:Smal", "'Smal'.*'Small'"),
        ("own_levels.py:Zzz", "'Zzz'.*Registered, Small, Nowhere"),
        ("own_levels.py:recipe", r"recipe.*babyai\.Level.*function"),
        ("own_levels.py:number", r"number.*babyai\.Level.*int"),
        ("own_levels.py:", r"file\.py:Level"),
        (":Small", r"file\.py:Level"),
        ("missing.py:Small", r"no such file.*missing\.py"),
        ("no_such_module:Small", "no_such_module.*PYTHONPATH"),
        ("GoToLocl", "GoToLocal"),
    ],
)
def test_a_level_that_cannot_be_found_is_explained(file: Path, name: str, facts: str) -> None:
    with pytest.raises(ValueError, match=facts):
        load_level(name)


def test_a_built_in_level_cannot_be_replaced(file: Path) -> None:
    file.write_text("import babyai\nmine = babyai.Level('GoTo', 'go_to_object', rows=1, columns=1)")
    with pytest.raises(ValueError, match=r"'GoTo'.*another name"):
        load_level("own_levels.py:mine")


def test_commands_take_levels_of_ones_own(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(line: str) -> str:
        monkeypatch.setattr(sys, "argv", ["babyai", *line.split()])
        cli.main()
        return capsys.readouterr().out

    assert "go to the" in run("show own_levels.py:Small --seed 1")
    assert "success" in run("watch expert --level own_levels.py:Small")
    assert re.search(r"Small +100\.0", run("evaluate expert --levels own_levels.py:Small --missions 4"))
    assert "4 demonstrations" in run("demos collect --levels own_levels.py:Small --episodes 4 --out own.parquet")
    # Another process does not know the level.
    del LEVELS["Small"]
    with pytest.raises(SystemExit, match=r"'Small'.*--levels file\.py:Level"):
        run("demos verify own.parquet")
    assert "all demonstrations are correct" in run("demos verify own.parquet --levels own_levels.py:Small")
    del LEVELS["Small"]
    assert "step 0: start" in run("demos show own.parquet --levels own_levels.py:Small")


@pytest.mark.long
@pytest.mark.compiled
def test_a_recipe_that_cannot_be_compiled_is_explained(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(SOURCE.replace("return False", "return undefined(s)"))
    monkeypatch.setattr(sys, "argv", ["babyai", "show", "own_levels.py:Nowhere"])
    with pytest.raises(SystemExit, match=r"(?s)recipe.*'undefined'"):
        cli.main()
