"""Provenance: command, commit, versions and machine, without folders of the machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from babyai.training.provenance import command_line, describe_provenance, source_commit


def test_the_command_names_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/where/babyai", "train", "ppo", "--level", "Go To"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert command_line() == "babyai train ppo --level 'Go To'"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", type("Spec", (), {"name": "babyai.__main__"}))
    assert command_line() == "python -m babyai train ppo --level 'Go To'"
    monkeypatch.setattr(sys, "argv", ["/bin/babyai", "train", "ppo", "--out", "/home/me/runs/first", "runs/second"])
    assert command_line() == "python -m babyai train ppo --out first runs/second"


def test_it_is_json_with_versions_and_machine() -> None:
    provenance = json.loads(json.dumps(describe_provenance()))
    assert provenance["versions"]["torch"] and provenance["versions"]["numba"]
    assert provenance["cpus"] >= 1 and provenance["date"].endswith("+00:00")


def test_the_commit_is_that_of_the_package_only(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert source_commit(package) == (None, None)
    git("init")
    (tmp_path / "notes.txt").write_text("")
    git("add", "notes.txt")
    git("commit", "-m", "Somebody else's repository")
    assert source_commit(package) == (None, None)
    git("add", "package")
    git("commit", "-m", "Ours")
    commit, dirty = source_commit(package)
    assert commit is not None and len(commit) == 40 and dirty is False
    (tmp_path / "notes.txt").write_text("changed")
    assert source_commit(package)[1] is False
    (package / "new.py").write_text("")
    assert source_commit(package) == (commit, True)
