"""A run's folder: what was asked for, what came of it, and all it takes to go on after any interruption.

    config.json              what was asked for, and where: command, versions, commit, machine
    metrics.jsonl            one line of JSON for each row of results
    checkpoints/000000012/   the model, and all else that going on needs
    checkpoints/best/        the model only
    tensorboard/             on request; made from metrics.jsonl

A checkpoint knows how much of metrics.jsonl belongs to it. Whoever resumes drops the rows after it, so that a run that
was killed has the same rows as one that was not.
"""

import contextlib
import io
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor

from babyai.demos.store import PathLike, atomic_file
from babyai.training.checkpoints import Checkpoints, RunError, read_state, saying_what_is_kept, to_json
from babyai.training.origin import describe_origin

Kind = Literal["imitation", "ppo", "dagger"]
CONFIG, METRICS, CHECKPOINTS, TENSORBOARD, LOCK = "config.json", "metrics.jsonl", "checkpoints", "tensorboard", ".lock"
# What TensorBoard shows rows against: the first of these that a row has.
STEPS = ("frames", "demos", "update", "epoch")

logger = logging.getLogger(__name__)


class Run:
    """A folder that one training process writes to; `create` begins one and `resume` goes on with one.

        with Run.create("runs/local", config, "imitation") as run, asking_to_stop() as asked:
            while not finished and not asked.is_set():
                run.log({"epoch": 1, "success": 0.93})
                run.save(1, lambda folder: write_model(folder, model, agent), tensors, {"epoch": 1}, best=True)

    Attributes:
        folder: Where it is.
        config: What was asked for, in the types of JSON.
        interrupted: Whether it was stopped before its end; the trainer says so.
    """

    def __init__(self, folder: PathLike, keep: int, tensorboard: bool) -> None:
        self.folder, self.interrupted = Path(folder), False
        self.config: dict[str, Any] = {}
        self._checkpoints = Checkpoints(self.folder / CHECKPOINTS, keep)
        self._make_board = _board_maker(self.folder / TENSORBOARD) if tensorboard else None
        self._board: Any = None
        self._stack = contextlib.ExitStack()

    @classmethod
    def create(
        cls, folder: PathLike, config: Mapping[str, Any], kind: Kind, keep: int = 2, *, tensorboard: bool = False
    ) -> Self:
        """Makes the folder and writes config.json.

        Args:
            folder: Where; it may exist, but not hold a run.
            config: What was asked for; anything JSON can hold.
            kind: What kind of training it is.
            keep: How many checkpoints to keep, besides the best.
            tensorboard: Whether to write rows also for TensorBoard.

        Raises:
            RunError: The folder holds a run, or another process writes to it.
        """
        run = cls(folder, keep, tensorboard)
        with run._closing_after_error():
            run.folder.mkdir(parents=True, exist_ok=True)
            run._lock()
            if any((run.folder / name).exists() for name in (CONFIG, METRICS, CHECKPOINTS)):
                raise RunError(f"{folder} already holds a run; go on with it (--resume), or choose another folder")
            run.config = _in_json(config)
            run._describe({"kind": kind, "config": run.config, "origin": describe_origin(), "resumed": []})
            run._open()
        return run

    @classmethod
    def resume(
        cls,
        folder: PathLike,
        config: Mapping[str, Any] | None = None,
        *,
        kind: Kind | None = None,
        may_differ: Collection[str] = (),
        keep: int = 2,
        tensorboard: bool = False,
    ) -> Self:
        """Goes back to the newest checkpoint that is whole; rows after it are dropped, and damaged ones set aside.

        Args:
            folder: The folder of a run.
            config: What is asked for now; None: the same as before.
            kind: What kind of training it must be; None: any.
            may_differ: Names of settings that need not be as before. `a.b` names a setting inside of `a`, `a` all.
            keep: How many checkpoints to keep, besides the best.
            tensorboard: Whether to write rows also for TensorBoard, those from before included.

        Raises:
            RunError: There is no such run, or it was asked for other things, or it is damaged, or another process
                writes to it.
        """
        run = cls(folder, keep, tensorboard)
        # Once to refuse a folder without a run before anything is made in it, and again when nobody else can write.
        read_config(folder)
        with run._closing_after_error():
            run._lock()
            about = read_config(folder)
            if kind is not None and about["kind"] != kind:
                raise RunError(f"{folder} holds a run of kind {about['kind']!r}, not {kind!r}; choose another folder")
            run.config = about["config"] if config is None else _in_json(config)
            changed = _compare(run.folder, about["config"], run.config, may_differ)
            again = {"origin": describe_origin(), "checkpoint": run._roll_back(), "changed": changed}
            run._describe(about | {"config": run.config, "resumed": [*about["resumed"], again]})
            run._open()
        return run

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends a row to metrics.jsonl; NaN and infinity, which JSON does not know, become null."""
        row = _finite(_in_json(row))
        line, before = (json.dumps(row) + "\n").encode(), self._metrics_bytes()
        with saying_what_is_kept(self._checkpoints.folder):
            try:
                while line:
                    line = line[self._metrics.write(line) :]
            except BaseException:
                # Half a line would spoil the next one.
                self._metrics.truncate(before)
                raise
        self._show_on_board(row)

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        return read_rows(self.folder)

    def save(
        self,
        number: int,
        write_model: Callable[[Path], object],
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        best: bool = False,
        write_best: Callable[[Path], object] | None = None,
    ) -> Path:
        """Writes a checkpoint, and removes those that are older than the newest `keep`; returns its folder.

        Args:
            number: Counts upwards during a run: epochs, updates or frames. An equal number replaces.
            write_model: Writes the model's files, without folders, into the folder it is given.
            tensors: All else that has to be remembered; on any device, in any layout.
            state: All else that JSON can hold.
            best: Whether this is the best model so far; `checkpoints/best` is then replaced by its files.
            write_best: Writes the files of the best model, if they shall be other ones.

        Raises:
            OSError: The disk is full or cannot be written to. Earlier checkpoints are as they were.
        """
        with saying_what_is_kept(self._checkpoints.folder):
            os.fsync(self._metrics.fileno())
        about = {"metrics_bytes": self._metrics_bytes(), "state": state}
        return self._checkpoints.save(number, write_model, tensors, about, best, write_best)

    def latest(self) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint: folder (with the model's files), tensors on the CPU, state; None if there is none."""
        newest = self._checkpoints.newest()
        return newest and (newest[0], newest[1], newest[2]["state"])

    def close(self) -> None:
        """Lets others write to the folder."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ opening

    @contextlib.contextmanager
    def _closing_after_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        """Raises if another process writes to the folder."""
        if os.name != "posix":
            return
        import fcntl

        file = self._stack.enter_context(io.FileIO(self.folder / LOCK, "w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process is training in {self.folder}; wait for it, or stop it") from None

    def _describe(self, about: Mapping[str, Any]) -> None:
        with atomic_file(self.folder / CONFIG, self.folder / f".{CONFIG}.tmp") as temporary:
            temporary.write_text(to_json(about, indent=1) + "\n")

    def _roll_back(self) -> str | None:
        """Goes back to the newest checkpoint that is whole, and says which it is."""
        self._checkpoints.repair()
        folders = self._checkpoints.numbered()
        _cut_rows(self.folder / METRICS, read_state(folders[-1])["metrics_bytes"] if folders else 0)
        return folders[-1].name if folders else None

    def _open(self) -> None:
        """Opens what rows are written to."""
        self._metrics = self._stack.enter_context(io.FileIO(self.folder / METRICS, "a"))
        if self._make_board is None:
            return
        # All is written anew, because the board cannot forget rows that were dropped.
        shutil.rmtree(self.folder / TENSORBOARD, ignore_errors=True)
        self._board = self._make_board()
        self._stack.callback(self._board.close)
        for row in self.rows():
            self._show_on_board(row)

    def _metrics_bytes(self) -> int:
        return os.fstat(self._metrics.fileno()).st_size

    def _show_on_board(self, row: Mapping[str, Any]) -> None:
        if self._board is None:
            return
        step = next((row[name] for name in STEPS if name in row), None)
        for name, value in _flatten(row, "/").items():
            if isinstance(value, int | float):
                self._board.add_scalar(name, value, step)


def holds_run(folder: PathLike) -> bool:
    """Whether a run was begun there."""
    return (Path(folder) / CONFIG).exists()


def read_config(folder: PathLike) -> dict[str, Any]:
    """What config.json of a run says: kind, config, origin, resumed."""
    path = Path(folder) / CONFIG
    try:
        about = json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"{folder} holds no run: there is no {CONFIG} in it") from None
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    if not isinstance(about, dict) or not {"kind", "config", "origin", "resumed"} <= about.keys():
        raise RunError(f"{path} does not describe a run; choose another folder")
    return about


def read_rows(folder: PathLike) -> list[dict[str, Any]]:
    """The rows of a run, which may be under way; a last line that is not finished does not count."""
    path = Path(folder) / METRICS
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def _cut_rows(path: Path, size: int) -> None:
    """Drops all rows after the first `size` bytes."""
    with open(path, "a+b") as file:
        there = file.tell()
        if there < size:
            logger.warning("%s has lost %d bytes; the run goes on without those rows", path, size - there)
            file.seek(0)
            size = file.read().rfind(b"\n") + 1
        file.truncate(size)


# ------------------------------------------------------------ values


def _in_json(value: Any) -> Any:
    """The same in the types of JSON: lists for tuples, and numbers for those of NumPy and torch."""
    return json.loads(to_json(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flatten(values: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Values inside of values as `outer.inner`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flatten(value, separator) if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}{separator}{name}" if name else key: item for name, item in inner.items()}
    return flat


def _compare(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any], may_differ: Collection[str]
) -> dict[str, list[Any]]:
    """What has changed in the settings; raises if something has that may not."""
    old, new = _flatten(before), _flatten(now)
    changed = {
        name: [old.get(name), new.get(name)]
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }
    refused = [name for name in changed if not any(f"{name}.".startswith(f"{allowed}.") for allowed in may_differ)]
    if refused:
        told = ", ".join(f"{name} was {changed[name][0]!r}, is {changed[name][1]!r}" for name in refused)
        raise RunError(f"{folder} holds a run with other settings ({told}); use the same, or choose another folder")
    return changed


def _board_maker(folder: Path) -> Callable[[], Any]:
    """What makes the writer for TensorBoard; whether that is installed shows now, before anything is written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        raise RunError("TensorBoard is not installed: pip install tensorboard, or go without it") from None
    return lambda: SummaryWriter(str(folder), flush_secs=10)
