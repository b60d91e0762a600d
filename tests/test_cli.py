"""The command `babyai` as a whole."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from babyai import cli
from babyai.levels.catalog import LEVELS, PAPER_LEVELS


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["babyai", *words])
    cli.main()


@pytest.mark.skipif(os.name != "posix", reason="pipes break differently elsewhere")
@pytest.mark.parametrize("words", [["levels"], ["train", "ppo", "--help"]])
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "babyai.cli", *words], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_version_is_that_of_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--version")
    assert capsys.readouterr().out == f"babyai {version('babyai')}\n"


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["levels", "--help"], ["evaluate", "--help"], ["play", "--help"], ["runs", "--help"]],
)
def test_help_and_version_need_neither_torch_nor_the_compiler(words: list[str]) -> None:
    script = (
        f"import sys; sys.argv = ['babyai', *{words!r}]\n"
        "from babyai import cli\n"
        "try:\n    cli.main()\n"
        "finally:\n    print({'torch', 'numba', 'gymnasium', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("set()\n"), done.stderr


def test_help_lists_all_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "--help")
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    for command in (
        "levels",
        "show",
        "play",
        "watch",
        "runs",
        "quickstart",
        "evaluate",
        "resume",
        "demos",
        "train",
        "study",
    ):
        assert command in output


@pytest.mark.parametrize("paper", [False, True], ids=["all", "paper"])
def test_levels_are_listed_with_size_and_task(
    paper: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    run(monkeypatch, "levels", *(["--paper"] if paper else []))
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert set(lines) == set(PAPER_LEVELS if paper else LEVELS)
    for name, line in lines.items():
        level = LEVELS[name]
        assert level.task and level.task in line
        assert f"{level.rows} x {level.columns}" in line and f"{level.width} x {level.height}" in line
        assert not level.max_steps or f" {level.max_steps} " in line


def test_an_episode_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "world.png"
    run(monkeypatch, "show", "GoToObjS4", "--seed", "3", "--png", str(picture))
    output = capsys.readouterr().out
    assert "mission: go to " in output and str(picture) in output
    assert picture.read_bytes().startswith(b"\x89PNG")
    [target] = re.findall(r"mission: go to (.*)", output)
    run(monkeypatch, "show", "GoToObjS4", "--seed", "3", "--mission", f"pick up {target}")
    assert f"mission: pick up {target}\n" in capsys.readouterr().out


def test_mistakes_are_reported_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^babyai: .*'GoToLocl'.*'GoToLocal'"):
        run(monkeypatch, "show", "GoToLocl")
    with pytest.raises(SystemExit, match=r"^babyai: "):
        run(monkeypatch, "show", "GoToObjS4", "--mission", "eat the red ball")
