"""Atomic writes: a file or folder appears whole or not at all, whatever happens meanwhile."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

PathLike = str | os.PathLike[str]
# Errors that mean that there is no space left.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic_file(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yields a path to write to; afterwards `path` is that file or, after an error, what it was before.

    Args:
        path: The file to create or replace.
        temporary: Where to write meanwhile, on the same disk; default: next to `path`.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder to write files to; afterwards `path` is that folder or, after an error, unchanged.

    Args:
        path: A new name. A folder that is already there is replaced, which is not atomic.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        sync_folder(temporary)
        if path.exists():
            remove_folder(path)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder in such a way that nobody ever finds half of it under its name."""
    doomed = path.with_name(f".{path.name}.deleted.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_temporaries(folder: Path) -> None:
    """Removes what atomic writes left in a folder when their process was killed."""
    for path in folder.glob(".*.tmp"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until a file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Waits until a folder's entries are on the disk. Windows can neither open folders nor needs to."""
    if os.name == "posix":
        sync(path)
