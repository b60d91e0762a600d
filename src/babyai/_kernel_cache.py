"""Machine code on disk: one file per kernel and signature, with a checksum, compiled by one process at a time.

Where it cannot write, Numba's own cache falls back to `__pycache__`, which can be stale; it fails on every start once a
file is damaged; and it lets several processes compile the same. This one reads what it can, compiles the rest, and
warns if it cannot write. It uses Numba's serialization of compiled functions, which is not a documented interface.
"""

import contextlib
import hashlib
import io
import logging
import os
import pickle
import time
from pathlib import Path
from typing import Any

from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

SUFFIX = ".kernel"
DIGEST_SIZE = 32
# After this time, something is wrong with the process that compiles; better to compile twice than to wait forever.
MAX_WAIT_SECONDS = 300.0
POLL_SECONDS = 0.05

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
        self._lock: io.FileIO | None = None

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
            with contextlib.suppress(OSError):
                os.unlink(self._lock.name)
            self._lock.close()
            self._lock = None


def warn_once(message: str) -> None:
    """Logs a warning that has not been logged before."""
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def _read(file: Path, target_context: Any) -> CompileResult | None:
    """The compiled function in a file; None if there is none, or a damaged one, which is removed."""
    try:
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


def _write(file: Path, payload: bytes) -> None:
    """Writes a file with its checksum; it appears whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _lock(file: Path) -> io.FileIO | None:
    """Waits until no other process compiles for this file; the lock is held until it is closed.

    The operating system releases the lock of a process that ends or is killed. None where locks are not available.
    """
    if os.name != "posix":
        return None
    import fcntl

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = io.FileIO(file.with_suffix(".lock"), "w")
    except OSError:
        return None
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            warn_once("another process is compiling for this machine; waiting for it")
            time.sleep(POLL_SECONDS)
        except OSError:
            break
    lock.close()
    return None
