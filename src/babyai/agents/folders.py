"""The folders that hold checkpoints: finding one, and putting a new one in the place of an old one.

A checkpoint is written to a folder beside its place, `.name.new`. Replacing an older one takes two renames: the old
goes aside as `.name.old`, the new takes its place. Whatever happens in between, `.name.old` is complete if it is there,
and readers take it where the checkpoint itself is missing; `.name.new` is never read.
"""

import contextlib
import difflib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from babyai.agents.tensors import CheckpointError, has_tensors, read_json

PathLike = str | os.PathLike[str]
T = TypeVar("T")
CONFIG, FORMAT = "config.json", "babyai-agent"
# Where a run keeps its checkpoints, and the one of them that did best.
CHECKPOINTS, BEST = "checkpoints", "best"
# How often to look again at a checkpoint that is replaced while it is read.
ATTEMPTS = 5
# How many names a message shows.
SHOWN = 5
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# ------------------------------------------------------------ finding


def find_checkpoint(folder: PathLike) -> Path:
    """The folder to read: the checkpoint itself or, of a run, the best one, or else the newest.

    Raises:
        FileNotFoundError: There is none.
    """
    path = Path(os.path.realpath(folder))
    if _is_checkpoint(place := _place(path)):
        return place
    inside = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path
    numbers = sorted(filter(str.isdecimal, _names_in(inside)), key=int, reverse=True)
    for name in [BEST, *numbers]:
        if _is_checkpoint(place := _place(inside / name)):
            return place
    raise FileNotFoundError(f"no checkpoint at {folder}{_hint(path)}")


def read_settled(folder: PathLike, read: Callable[[Path], T]) -> T:
    """What `read` makes of a checkpoint that nobody replaced meanwhile."""
    for _ in range(ATTEMPTS):
        place = find_checkpoint(folder)
        before = _identity(place)
        try:
            result = read(place)
        except (OSError, CheckpointError):
            if _identity(place) == before:
                raise
        else:
            if _identity(place) == before:
                return result
    raise CheckpointError(f"{folder} is replaced again and again while it is read")


def _identity(place: Path) -> tuple[int, int] | None:
    """What tells a folder from another one at the same place."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _names_in(folder: Path) -> list[str]:
    """The names of the folders in it, those included that lie aside."""
    if not os.path.isdir(folder):
        return []
    names = {name.removeprefix(".").removesuffix(".old") if _lies_aside(name) else name for name in os.listdir(folder)}
    return sorted(name for name in names if os.path.isdir(_place(folder / name)))


def _lies_aside(name: str) -> bool:
    return name.startswith(".") and name.endswith(".old")


def _place(path: Path) -> Path:
    """Where to read what belongs at `path`, which may lie aside."""
    return _old(path) if not os.path.exists(path) and os.path.isdir(_old(path)) else path


def _is_checkpoint(place: Path) -> bool:
    """Whether a folder is meant to be one, sound or not."""
    if has_tensors(place):
        return True
    try:
        return read_json(place / CONFIG).get("format") == FORMAT
    except (OSError, CheckpointError):
        return False


def _hint(path: Path) -> str:
    """What the user may have meant: checkpoints and runs in the nearest folder that exists, the likeliest first."""
    wanted = path.name
    while not os.path.isdir(path):
        wanted, path = path.name, path.parent
    near = [
        name
        for name in _names_in(path)
        if _is_checkpoint(_place(path / name)) or os.path.isdir(path / name / CHECKPOINTS)
    ]
    if not near:
        return ""
    likely = difflib.get_close_matches(wanted, near, n=SHOWN) or near[:SHOWN]
    return f"; in {path} there {'is' if len(near) == 1 else 'are'} {', '.join(likely)}"


# ------------------------------------------------------------ writing


@contextlib.contextmanager
def atomic_folder(folder: PathLike) -> Iterator[Path]:
    """Yields an empty folder to write to; afterwards `folder` is that one or, after an error, what it was before.

    Args:
        folder: Its place: a new name, an empty folder, or a checkpoint, which is replaced.

    Raises:
        FileExistsError: There is something else at that place.
        OSError: The disk is full, or cannot be written to.
    """
    target = Path(os.path.realpath(folder))
    new = _new(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _tidy(target)
        _check_replaceable(target)
        new.mkdir()
        yield new
        _synchronize(new)
        _swap(new, target)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        advice = "make room and try again" if error.errno in FULL else "try again"
        before = "the one before is untouched" if target.exists() else "nothing is left of it"
        reason = f"the checkpoint {folder} could not be written: {error.strerror}; {before}: {advice}"
        raise OSError(error.errno, reason) from error


def _new(target: Path) -> Path:
    return target.with_name(f".{target.name}.new")


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _tidy(target: Path) -> None:
    """Clears up after a process that was killed while it wrote here."""
    shutil.rmtree(_new(target), ignore_errors=True)
    if not os.path.isdir(_old(target)):
        return
    if target.exists():
        _discard(_old(target), _new(target))
    else:
        os.rename(_old(target), target)


def _discard(old: Path, new: Path) -> None:
    """Deletes a folder under a name at which nobody reads, since half of it must never be found."""
    os.rename(old, new)
    shutil.rmtree(new, ignore_errors=True)


def _check_replaceable(target: Path) -> None:
    """Nothing happens where nothing but a checkpoint would be lost."""
    if not target.exists():
        return
    names = sorted(os.listdir(target)) if target.is_dir() else [target.name]
    foreign = [name for name in names if not name.endswith((".json", ".safetensors")) or (target / name).is_dir()]
    if foreign or (names and not _is_checkpoint(target)):
        shown = ", ".join((foreign or names)[:SHOWN])
        raise FileExistsError(f"{target} holds more than a checkpoint ({shown}); give another folder")


def _swap(new: Path, target: Path) -> None:
    """Puts the new folder in its place."""
    old = _old(target)
    replacing = target.exists()
    if replacing:
        os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        if replacing:
            os.rename(old, target)
        raise
    _synchronize_folder(target.parent)
    # The new one is there; what is left of the old one goes when the next is written.
    if replacing:
        with contextlib.suppress(OSError):
            _discard(old, new)


def _synchronize(folder: Path) -> None:
    """Waits until the disk has the files of a folder and the folder itself."""
    for path in folder.iterdir():
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
    _synchronize_folder(folder)


def _synchronize_folder(folder: Path) -> None:
    # Windows can neither open folders nor needs to.
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
