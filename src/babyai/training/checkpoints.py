"""The checkpoints of a run: whole or not at all, and damage is found out.

Each is a folder with the files of an agent, the tensors `training.safetensors` and the state `training.json` that going
on needs besides, and `digests.json` with the SHA-256 of all of them.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from babyai.agents.folders import BEST, FULL, atomic_folder
from babyai.agents.tensors import read_json, read_tensors, save_tensors

TRAINING, STATE, DIGESTS = "training", "training.json", "digests.json"

logger = logging.getLogger(__name__)


class RunError(ValueError):
    """A run that cannot be begun, resumed or read."""


class Checkpoints:
    """The checkpoints in a folder, to which only one process may write.

    Args:
        folder: It is made when the first is written.
        keep: How many there shall be, besides the best.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 1:
            raise RunError(f"at least one checkpoint must be kept, not {keep}")
        self.folder, self.keep = folder, keep

    def save(
        self,
        number: int,
        write_model: Callable[[Path], object],
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        best: bool = False,
        write_best: Callable[[Path], object] | None = None,
    ) -> Path:
        """Writes one, and removes those that are older than the newest `keep`; see `Run.save`."""
        place = self.folder / f"{number:09d}"
        with saying_what_is_kept(self.folder), atomic_folder(place) as new:
            write_model(new)
            model_files = list(new.iterdir())
            save_tensors(new, tensors, name=TRAINING)
            (new / STATE).write_text(to_json(state))
            (new / DIGESTS).write_text(to_json({file.name: _digest(file) for file in sorted(new.iterdir())}, indent=1))
            if best:
                # Before the checkpoint: killed in between, the run repeats this step, and the best is best again.
                with atomic_folder(self.folder / BEST) as new_best:
                    if write_best is not None:
                        write_best(new_best)
                    else:
                        for file in model_files:
                            shutil.copyfile(file, new_best / file.name)
        self._remove_old()
        return place

    def newest(self) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
        """The newest one: its folder, its tensors on the CPU, its state; None if there is none."""
        folders = self.numbered()
        return (folders[-1], read_tensors(folders[-1], TRAINING), read_state(folders[-1])) if folders else None

    def numbered(self) -> list[Path]:
        """The folders of all but the best, oldest first."""
        folders = self.folder.iterdir() if self.folder.exists() else ()
        return sorted((f for f in folders if f.name.isdecimal()), key=lambda f: int(f.name))

    def repair(self) -> None:
        """Undoes what was interrupted, and sets damaged checkpoints aside, so that the newest one is whole.

        Raises:
            RunError: There are some, but none is whole.
        """
        _tidy(self.folder)
        folders, damaged = self.numbered(), []
        while folders and (problem := find_damage(folders[-1])):
            logger.warning("checkpoint %s is damaged (%s)", folders[-1], problem)
            damaged.append(folders.pop())
        if damaged and not folders:
            names = ", ".join(folder.name for folder in damaged)
            raise RunError(f"no checkpoint in {self.folder} is whole ({names}); begin anew in another folder")
        for folder in damaged:
            aside = folder.with_name(f"{folder.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
        self._remove_old()

    def _remove_old(self) -> None:
        for folder in self.numbered()[: -self.keep]:
            # Half of a folder is never seen in its place.
            doomed = folder.with_name(f".{folder.name}.new")
            folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def read_state(folder: Path) -> dict[str, Any]:
    """What was given as the state of a checkpoint."""
    return read_json(folder / STATE)


def find_damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is whole."""
    try:
        digests = read_json(folder / DIGESTS)
        wrong = [name for name, digest in digests.items() if _digest(folder / name) != digest]
    except (OSError, ValueError) as error:
        return str(error)
    if STATE not in digests:
        return f"{DIGESTS} is not as it was written"
    return f"{', '.join(wrong)}: not the bytes that were written" if wrong else None


def to_json(value: Any, **style: Any) -> str:
    """JSON, with numbers and arrays of NumPy and torch as plain ones."""
    return json.dumps(value, default=_plain_numbers, **style)


@contextlib.contextmanager
def saying_what_is_kept(folder: Path) -> Iterator[None]:
    """Adds to errors of the disk what has become of the run with these checkpoints."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        advice = "make room, and resume the run" if error.errno in FULL else "resume the run to go on"
        reason = f"{os.strerror(error.errno)}; the earlier checkpoints in {folder} are kept: {advice}"
        raise OSError(error.errno, reason) from error


def _tidy(folder: Path) -> None:
    """Undoes what was interrupted; the names are those that `babyai.agents.folders` gives to what lies aside."""
    for old in folder.glob(".*.old"):
        place = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
        if not place.exists():
            old.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    for new in folder.glob(".*.new"):
        shutil.rmtree(new, ignore_errors=True)


def _digest(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _plain_numbers(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise TypeError(f"JSON cannot hold {value!r}")
    return value.tolist()
