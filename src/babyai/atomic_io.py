"""Atomic writes: a file or folder appears whole or not at all, whatever happens meanwhile; and locks."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
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
    _remove_abandoned(path)
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except OSError as error:
        _remove_file(temporary)
        # Nobody has asked for a file of that name.
        if error.errno is not None and error.filename in (temporary, str(temporary), os.fsencode(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    except BaseException:
        _remove_file(temporary)
        raise
    sync_folder(path.parent)


def _remove_abandoned(path: Path) -> None:
    """Removes what processes that were killed while they wrote this file have left."""
    if os.name != "posix" or not path.parent.is_dir():
        return
    prefix = f".{path.name}."
    for name in os.listdir(path.parent):
        number = name.removeprefix(prefix).removesuffix(".tmp")
        if name.startswith(prefix) and name.endswith(".tmp") and number.isdecimal() and not _is_running(int(number)):
            _remove_file(path.parent / name)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def _remove_file(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def check_regular(path: PathLike) -> None:
    """Raises unless a path that exists is a regular file: reading a pipe or a device may never end.

    Raises:
        OSError: It is something else.
    """
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "this is a pipe or a device, not a file", str(path))


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


@contextlib.contextmanager
def file_lock(path: Path, wait_seconds: float = 60.0) -> Iterator[None]:
    """Holds a lock on a file, which need not exist, while its content is read, changed and replaced.

    The operating system releases the lock however the process ends. On Windows there is no lock.

    Raises:
        TimeoutError: Another process has held the lock all the time.
    """
    if os.name != "posix":
        yield
        return
    place = path.with_name(f".{path.name}.lock")
    descriptor = acquire_lock(place, wait_seconds)
    if descriptor is None:
        raise TimeoutError(f"another process has been writing to {path} for {wait_seconds:.0f} seconds; wait for it")
    try:
        yield
    finally:
        release_lock(place, descriptor)


def acquire_lock(place: Path, wait_seconds: float, on_wait: Callable[[], None] = lambda: None) -> int | None:
    """An open descriptor that holds a lock, or None if there was none in time; POSIX only.

    Args:
        place: The lock file.
        wait_seconds: How long to wait for another process.
        on_wait: Called while waiting.
    """
    import fcntl

    deadline = time.monotonic() + wait_seconds
    while True:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process before removed its lock file; the one that holds the lock is the file of that name now.
            if os.path.samestat(os.fstat(descriptor), os.stat(place)):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            return None
        on_wait()
        time.sleep(0.02)


def release_lock(place: Path, descriptor: int) -> None:
    """Lets the next process have a lock from `acquire_lock`."""
    _remove_file(place)
    os.close(descriptor)


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
