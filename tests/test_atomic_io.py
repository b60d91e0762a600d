"""Atomic writes: whatever happens meanwhile, a file or folder is there whole, or as it was before."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babyai.atomic_io import atomic_file, atomic_folder, remove_folder, remove_temporaries

OLD = {"a": "old a", "b": "old b"}
NEW = {"a": "new a", "c": "new c"}


def write_then_raise(path: Path, error: type[BaseException]) -> None:
    path.write_text("half")
    raise error


def write_folder(path: Path, files: dict[str, str]) -> None:
    with atomic_folder(path) as folder:
        for name, text in files.items():
            (folder / name).write_text(text)


def read_folder(path: Path) -> dict[str, str] | None:
    """The files of a folder; None if there is none."""
    return {file.name: file.read_text() for file in path.iterdir()} if path.exists() else None


class KilledError(BaseException):
    """The process has been killed."""


class KillSwitch:
    """Lets a number of file operations through, and stops all that follow, as if the process had been killed."""

    def __init__(self, operations: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = operations
        for name in ("rename", "replace", "fsync"):
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        for name in ("mkdir", "unlink"):
            monkeypatch.setattr(Path, name, self.wrap(getattr(Path, name)))
        for name in ("write_text", "write_bytes"):
            monkeypatch.setattr(Path, name, self.wrap_write(getattr(Path, name)))
        self._unlink = os.unlink
        monkeypatch.setattr(shutil, "rmtree", self.remove_tree)

    def wrap(self, operation: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count()
            return operation(*args, **kwargs)

        return counted

    def wrap_write(self, write: Any) -> Any:
        """Writes the first half first, so that it can be killed in between."""

        def counted(path: Path, data: Any) -> Any:
            self.count()
            write(path, data[: len(data) // 2])
            self.count()
            return write(path, data)

        return counted

    def remove_tree(self, folder: Path, ignore_errors: bool = False) -> None:
        """One file after the other, so that it can be killed in between."""
        assert ignore_errors
        if not folder.exists():
            return
        for name in sorted(os.listdir(folder)):
            self.count()
            self._unlink(folder / name)
        self.count()
        os.rmdir(folder)

    def count(self) -> None:
        if self.left <= 0:
            raise KilledError
        self.left -= 1


def kill_at_every_moment(tmp_path: Path, prepare: Callable[[Path], None], work: Callable[[Path], None]) -> list[Any]:
    """What is in a folder after `work` was killed before its first file operation, before its second, and so on."""
    found = []
    for operations in range(100):
        path = tmp_path / str(operations) / "folder"
        path.parent.mkdir()
        prepare(path)
        with pytest.MonkeyPatch.context() as patch:
            KillSwitch(operations, patch)
            try:
                work(path)
            except KilledError:
                pass
            else:
                return found
        found.append(read_folder(path))
        remove_temporaries(path.parent)
        assert os.listdir(path.parent) == ([] if found[-1] is None else ["folder"])
        # The next attempt succeeds.
        write_folder(path, NEW)
        assert read_folder(path) == NEW
    raise AssertionError("it never finished")


# ------------------------------------------------------------ files


def test_a_file_is_created_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in ("one", "two"):
        with atomic_file(path) as temporary:
            assert temporary.parent == tmp_path
            temporary.write_text(text)
            assert not path.exists() or path.read_text() == "one"
        assert path.read_text() == text
        assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_after_an_error_a_file_is_what_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    for before in ([], ["file"]):
        with pytest.raises(error), atomic_file(path) as temporary:
            write_then_raise(temporary, error)
        assert os.listdir(tmp_path) == before
        path.write_text("whole")
    assert path.read_text() == "whole"


def test_an_error_before_anything_was_written_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="first"), atomic_file(tmp_path / "file"):
        raise KeyError("first")
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "file"):
        pass
    assert os.listdir(tmp_path) == []


def test_the_temporary_file_can_be_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with atomic_file(tmp_path / "file", elsewhere) as temporary:
        assert temporary == elsewhere
        temporary.write_text("text")
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    fsync = os.fsync
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (order.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *paths: (order.append("replace"), replace(*paths)))
    with atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("text")
    assert order == ["fsync", "replace", "fsync"], "the file, its name, the folder"


# ------------------------------------------------------------ folders


def test_a_folder_is_created_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    for files in (OLD, NEW):
        write_folder(path, files)
        assert read_folder(path) == files
        assert os.listdir(path.parent) == ["folder"]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_after_an_error_a_folder_is_what_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "folder"
    for before in (None, OLD):
        if before is not None:
            write_folder(path, before)
        with pytest.raises(error), atomic_folder(path) as folder:
            write_then_raise(folder / "a", error)
        assert read_folder(path) == before
        assert os.listdir(tmp_path) == ([] if before is None else ["folder"])


def test_killed_at_any_moment_a_new_folder_is_absent_or_whole(tmp_path: Path) -> None:
    found = kill_at_every_moment(tmp_path, lambda path: None, lambda path: write_folder(path, NEW))
    whole = found.index(NEW)
    assert found == [None] * whole + [NEW] * (len(found) - whole)
    assert len(found) > 5


def test_killed_at_any_moment_a_replaced_folder_is_old_or_new_or_absent_but_never_half(tmp_path: Path) -> None:
    found = kill_at_every_moment(tmp_path, lambda path: write_folder(path, OLD), lambda path: write_folder(path, NEW))
    assert [files for number, files in enumerate(found) if not number or files != found[number - 1]] == [OLD, None, NEW]


def test_killed_at_any_moment_a_removed_folder_is_whole_or_absent(tmp_path: Path) -> None:
    found = kill_at_every_moment(tmp_path, lambda path: write_folder(path, OLD), remove_folder)
    assert found[0] == OLD
    assert found[-1] is None
    assert all(files in (OLD, None) for files in found)


def test_what_was_left_by_a_killed_process_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".file.123.tmp").write_text("half")
    (tmp_path / ".folder.tmp").mkdir()
    (tmp_path / ".folder.tmp" / "a").write_text("half")
    kept = [".hidden", "file.tmp", "folder"]
    for name in kept:
        (tmp_path / name).write_text("whole")
    remove_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == kept
