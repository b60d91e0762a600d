"""The commands `babyai demos ...`."""

from pathlib import Path

import pytest

from babyai import console
from babyai.demos.collect import collect
from babyai.demos.commands import make_app


def run(*words: str | Path) -> None:
    make_app().cli(args=[str(word) for word in words])


def test_collect_show_verify_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str], small_blocks: int) -> None:
    one = tmp_path / "one.parquet"
    other = tmp_path / "other.parquet"
    both = tmp_path / "both.parquet"
    run("collect", "--levels", "GoToLocal,Open", "--episodes", "5", "--first-seed", "3", "--out", one)
    assert "10 demonstrations in" in capsys.readouterr().out
    run("collect", "--levels", "GoToLocal", "--episodes", "4", "--first-seed", "90", "--out", other, "--threads", "1")
    run("merge", one, other, "--out", both)
    assert "14 demonstrations in" in capsys.readouterr().out
    run("verify", both)
    assert "all demonstrations are correct" in capsys.readouterr().out
    run("show", both, "--rows", "0", "9")
    output = capsys.readouterr().out
    assert "14 demonstrations" in output and "10 by expert paper" in output and "4 by expert paper" in output
    assert "row 0: GoToLocal, seed 3: go to" in output and "row 9: Open, seed 7: open" in output
    assert output.count("step 0: start") == 2 and output.count("(end of episode, reward") == 2
    run("show", both, "--steps")
    assert "step 1: " in capsys.readouterr().out


def test_verify_fails_on_a_wrong_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = collect("GoToLocal", 3, 0, tmp_path / "x.parquet").path
    monkeypatch.setattr("babyai.demos.verify.check_demos", lambda *_: (1, "some problem"))
    with pytest.raises(SystemExit, match=r"row 1 \(level 'GoToLocal', seed 1\).* some problem"):
        run("verify", path)


def test_show_reports_other_rules(
    small_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from babyai.levels.catalog import LEVELS

    monkeypatch.setitem(LEVELS, "BossLevel", replace(LEVELS["BossLevel"], version=99))
    run("show", small_file)
    output = capsys.readouterr().out
    assert "BossLevel" in output and "now 99" in output and "step 0" not in output


def test_interrupted_collect_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("babyai.demos.collect._collect_blocks", interrupt)
    with pytest.raises(SystemExit, match=r"same command .*resume"):
        run("collect", "--levels", "GoToLocal", "--out", tmp_path / "x.parquet")


def test_recording_needs_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="needs a terminal"):
        run("record", "GoToLocal", "--out", tmp_path / "x.parquet")


def test_progress_without_a_terminal_is_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    lines = []
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    report = console._Lines("collecting", "demos", lines.append)
    for done in range(0, 1001, 10):
        report(done, 1000)
        now[0] += 0.5
    assert len(lines) == 5
    assert lines[0] == "collecting: 200 of 1,000, 20 demos/s, 40 s left"


def test_export_without_minari_says_what_to_install(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(ValueError, match=r"pip install 'minari\[hdf5\]'"):
        run("export", small_file, "--id", "x-v0")
