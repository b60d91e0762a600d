"""Machine code on disk: one file per kernel and signature, with a checksum, compiled by one process at a time.

Where it cannot write, Numba's own cache falls back to `__pycache__`, which can be stale; it fails on every start once a
file is damaged; and it lets several processes compile the same. This one reads what it can, compiles the rest, and
warns if it cannot write. It uses Numba's serialization of compiled functions, which is not a documented interface.

Like the files of Numba's cache, these are code, and reading them is running them (they are pickled). They are made on
the machine that uses them. Files that belong to neither this user nor root are not read.
"""

import contextlib
import hashlib
import logging
import os
import pickle
from pathlib import Path
from typing import Any

from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from babyai.atomic_io import acquire_lock, atomic_file, release_lock

SUFFIX = ".kernel"
DIGEST_SIZE = 32
# After this time, something is wrong with the process that compiles; better to compile twice than to wait forever.
MAX_WAIT_SECONDS = 300.0

log = logging.getLogger("babyai")
_warned: set[str] = set()


class KernelCache:
    """The compiled versions of one kernel; takes the place of Numba's cache in its dispatcher.

    Args:
        folder: Where files go; None if there is no such place, so that nothing is cached.
        name: The kernel's name, unique in that folder.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self.cache_path = folder
        self._name = name
        self._lock: tuple[Path, int] | None = None

    def load_overload(self, signature: Any, target_context: Any) -> CompileResult | None:
        """The compiled function for these argument types; None if this process has to compile it, and then save it."""
        if self.cache_path is None:
            warn_once("there is no home folder to keep compiled kernels in, so every process compiles them")
            return None
        target_context.refresh()
        file = self._file(signature, target_context.codegen())
        found = _read(file, target_context)
        if found is None:
            self._release()
            self._lock = _lock(file)
            # Another process may have compiled it meanwhile.
            found = _read(file, target_context)
            if found is not None:
                self._release()
        return found

    def save_overload(self, signature: Any, compiled: CompileResult) -> None:
        """Writes a compiled function, and lets processes that wait for it continue."""
        try:
            if self.cache_path is not None and not compiled.library.has_dynamic_globals:
                _write(self._file(signature, compiled.codegen), dumps(compiled._reduce()))
        except OSError as error:
            warn_once(
                f"cannot write compiled kernels to {self.cache_path} ({error.strerror}), so every process compiles "
                f"them; set BABYAI_CACHE_DIR to a folder with space that you may write to"
            )
        finally:
            self._release()

    def flush(self) -> None:
        """Part of the interface of Numba's cache; there is nothing to do."""

    def _file(self, signature: Any, codegen: Any) -> Path:
        """The file for these argument types on this kind of processor."""
        assert self.cache_path is not None
        key = hashlib.sha256(f"{signature} {codegen.magic_tuple()}".encode()).hexdigest()[:16]
        return self.cache_path / f"{self._name}-{key}{SUFFIX}"

    def _release(self) -> None:
        if self._lock is not None:
            release_lock(*self._lock)
            self._lock = None


def warn_once(message: str) -> None:
    """Logs a warning that has not been logged before."""
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def _read(file: Path, target_context: Any) -> CompileResult | None:
    """The compiled function in a file; None if there is none, or a damaged one, which is removed."""
    try:
        if not _is_trusted(file):
            warn_once(f"{file.parent} has compiled kernels of another user, which are not used; set BABYAI_CACHE_DIR")
            return None
        data = file.read_bytes()
    except OSError:
        return None
    digest, payload = data[:DIGEST_SIZE], data[DIGEST_SIZE:]
    try:
        if hashlib.sha256(payload).digest() != digest:
            raise ValueError("its checksum does not match")
        return CompileResult._rebuild(target_context, *pickle.loads(payload))
    except Exception as error:  # Unpickling can raise anything.
        log.warning("%s is damaged (%s) and is compiled again", file, error)
        with contextlib.suppress(OSError):
            file.unlink()
        return None


def _is_trusted(file: Path) -> bool:
    """Whether a file belongs to this user or to root."""
    return os.name != "posix" or file.stat().st_uid in (0, os.getuid())


def _write(file: Path, payload: bytes) -> None:
    """Writes a file with its checksum."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as temporary:
        temporary.write_bytes(hashlib.sha256(payload).digest() + payload)


def _lock(file: Path) -> tuple[Path, int] | None:
    """Waits until no other process compiles for this file; None where locks are not available."""
    if os.name != "posix":
        return None
    place = file.with_suffix(".lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        waiting = "another process is compiling for this machine; waiting for it"
        descriptor = acquire_lock(place, MAX_WAIT_SECONDS, lambda: warn_once(waiting))
    except OSError:
        return None
    return None if descriptor is None else (place, descriptor)
