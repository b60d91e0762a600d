"""A run's folder: its options, its log, and checkpoints to continue from after any interruption.

    config.json                                  options, command, versions, commit, machine
    metrics.jsonl                                one JSON line per log row
    checkpoints/000000012/model.safetensors      the agent
    checkpoints/000000012/training.safetensors   optimizer, recurrent state, worlds; counters and positions as metadata
    checkpoints/000000012/training-1.safetensors what does not fit into 15 MiB, and so on
    checkpoints/best-000000012/model.safetensors the agent with the best validation
    tensorboard/                                 on request; made from metrics.jsonl

A checkpoint knows how much of metrics.jsonl belongs to it. Resuming drops the rows after it, so that a run that was
killed has the same rows as one that was not. Checkpoints always get new names; the old ones are removed afterwards.
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
from typing import Any, NamedTuple, Self

from torch import Tensor, float32

from babyai.agents.checkpoint import BEST, CHECKPOINTS, MODEL, CheckpointError, Dtype, read_tensors, write_tensors
from babyai.atomic_io import (
    DISK_FULL,
    PathLike,
    atomic_file,
    atomic_folder,
    check_regular,
    remove_folder,
    remove_temporaries,
)
from babyai.training.provenance import describe_provenance

CONFIG = "config.json"
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
LOCK = ".lock"
TENSORS = "training.safetensors"
# Larger checkpoints are split, so that they fit through mail, repositories and the like.
PART_BYTES = 15 * 2**20
# The x-axis of TensorBoard: the first of these that a row has.
STEP_METRICS = ("frames", "demos", "update", "epoch")
# How many checkpoints are kept, besides the best.
KEEP = 2

logger = logging.getLogger(__name__)


class RunError(ValueError):
    """A run that cannot be started, resumed or read."""


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        folder: Its folder.
        model: The policy's weights, on the CPU.
        tensors: All other tensors.
        state: All else, as JSON.
        metrics_bytes: The size of metrics.jsonl at that time.
    """

    folder: Path
    model: dict[str, Tensor]
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    metrics_bytes: int


class Run:
    """A run's folder, to which one process writes; `create` starts a run and `resume` continues one.

    Attributes:
        folder: Where it is.
        config: The options, as JSON.
        interrupted: Whether it was stopped before its end; set by the training loop.
    """

    def __init__(self, folder: PathLike, tensorboard: bool = False) -> None:
        self.folder = Path(folder)
        self.interrupted = False
        self.config: dict[str, Any] = {}
        self._make_writer = _tensorboard_writer(self.folder / TENSORBOARD) if tensorboard else None
        self._writer: Any = None
        self._stack = contextlib.ExitStack()

    @classmethod
    def create(cls, folder: PathLike, config: Mapping[str, Any], algorithm: str, *, tensorboard: bool = False) -> Self:
        """Creates the folder and writes config.json.

        Args:
            folder: It may exist, but must not hold a run.
            config: The options; anything JSON can hold.
            algorithm: The algorithm's name.
            tensorboard: Whether to write event files for TensorBoard.

        Raises:
            RunError: The folder holds a run, or another process writes to it.
        """
        run = cls(folder, tensorboard)
        with run._closing_on_error():
            run.folder.mkdir(parents=True, exist_ok=True)
            run._lock()
            if any((run.folder / name).exists() for name in (CONFIG, METRICS, CHECKPOINTS)):
                raise RunError(f"{folder} already holds a run; `babyai resume {folder}` continues it, or pass --out")
            run.config = _to_plain(config)
            provenance = describe_provenance()
            run._write_config({"kind": algorithm, "config": run.config, "origin": provenance, "resumed": []})
            run._open()
        return run

    @classmethod
    def resume(
        cls,
        folder: PathLike,
        config: Mapping[str, Any] | None = None,
        algorithm: str | None = None,
        *,
        may_change: Collection[str] = (),
        defaults: Mapping[str, Any] | None = None,
        tensorboard: bool = False,
    ) -> Self:
        """Returns to the newest intact checkpoint; rows after it are dropped, and damaged checkpoints set aside.

        Args:
            folder: The folder of a run.
            config: The options now; default: the same as before.
            algorithm: The algorithm that the run must have; default: any.
            may_change: Names of options that may differ.
            defaults: Values of options that did not exist yet when the run began.
            tensorboard: Whether to write event files for TensorBoard, for earlier rows as well.

        Raises:
            RunError: There is no such run, its options differ, it is damaged, or another process writes to it.
        """
        run = cls(folder, tensorboard)
        # Once to refuse a folder without a run before anything is created in it, and again when it is locked.
        read_config(folder)
        with run._closing_on_error():
            run._lock()
            before = read_config(folder)
            if algorithm is not None and before["kind"] != algorithm:
                raise RunError(f"{folder} holds a run of {before['kind']!r}, not of {algorithm!r}")
            run.config = before["config"] if config is None else _to_plain(config)
            options = _to_plain(defaults or {}) | before["config"]
            changed = _compare(run.folder, options, run.config, may_change)
            resumed = {"origin": describe_provenance(), "checkpoint": run._roll_back(), "changed": changed}
            run._write_config(before | {"config": run.config, "resumed": [*before["resumed"], resumed]})
            run._open()
        return run

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """Options, last metrics and the loss as HTML, for notebooks; also of a run that another process writes."""
        from babyai.render.notebook import html_curve, html_table

        try:
            described = read_config(self.folder)
        except RunError as error:
            return html_table(repr(self), {"no run": str(error)})
        rows = read_rows(self.folder)
        page = html_table(f"{self.folder}: {described['kind']}", described["config"])
        if rows:
            page += html_table(f"row {len(rows)}", _flatten(rows[-1]))
        losses = [row["loss"] for row in rows if isinstance(row.get("loss"), int | float)]
        return page + (html_curve("loss", losses) if losses else "")

    # ------------------------------------------------------------ log

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends a row to metrics.jsonl; NaN and infinity, which JSON does not have, become null."""
        row = _replace_nonfinite(_to_plain(row))
        line = (json.dumps(row) + "\n").encode()
        before = self._metrics_size()
        with self._explaining_disk_errors():
            try:
                while line:
                    line = line[self._metrics.write(line) :]
            except BaseException:
                # Half a line would corrupt the next one.
                self._metrics.truncate(before)
                raise
        self._write_scalars(row)

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        return read_rows(self.folder)

    # ------------------------------------------------------------ checkpoints

    def save(
        self,
        number: int,
        write_model: Callable[[Path], object],
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        dtype: Dtype = "float32",
    ) -> Path:
        """Writes a checkpoint, and removes those older than the newest `KEEP`; returns its folder.

        Args:
            number: Increases during a run.
            write_model: Writes the agent to the file that it is given.
            tensors: Other tensors, on any device.
            state: Anything JSON can hold.
            dtype: Dtype of the other tensors on disk.

        Raises:
            OSError: The disk is full or cannot be written to. Earlier checkpoints are untouched.
        """
        folder = self._checkpoints / f"{number:09d}"
        with self._explaining_disk_errors():
            os.fsync(self._metrics.fileno())
            with atomic_folder(folder) as new:
                write_model(new / MODEL)
                metadata = {"metrics_bytes": str(self._metrics_size()), "state": to_json(state)}
                _write_parts(new, tensors, metadata, dtype)
        for old in self._numbered()[:-KEEP]:
            remove_folder(old)
        return folder

    def save_best(self, number: int, write_model: Callable[[Path], object]) -> Path:
        """Writes the best agent, then removes the previous best; returns its folder."""
        folder = self._checkpoints / f"{BEST}{number:09d}"
        with self._explaining_disk_errors(), atomic_folder(folder) as new:
            write_model(new / MODEL)
        for old in self._checkpoints.glob(f"{BEST}*"):
            if old != folder:
                remove_folder(old)
        return folder

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint; None if there is none."""
        folders = self._numbered()
        return read_checkpoint(folders[-1]) if folders else None

    @property
    def _checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    def _numbered(self) -> list[Path]:
        """The folders of all checkpoints but the best, oldest first."""
        folders = self._checkpoints.iterdir() if self._checkpoints.exists() else ()
        return sorted((folder for folder in folders if folder.name.isdecimal()), key=lambda folder: int(folder.name))

    def _roll_back(self) -> str | None:
        """Returns to the newest intact checkpoint; returns its name, or None if there is none."""
        remove_temporaries(self.folder)
        remove_temporaries(self._checkpoints)
        size = 0
        name = None
        damaged = []
        for folder in reversed(self._numbered()):
            try:
                size = read_checkpoint(folder).metrics_bytes
                name = folder.name
                break
            except (OSError, ValueError) as error:
                logger.warning("checkpoint %s is damaged (%s)", folder, error)
                damaged.append(folder)
        if damaged and name is None:
            names = ", ".join(folder.name for folder in damaged)
            raise RunError(f"no checkpoint in {self._checkpoints} is intact ({names}); start again in another folder")
        for folder in damaged:
            aside = folder.with_name(f"{folder.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
        _truncate_rows(self.folder / METRICS, size)
        return name

    @contextlib.contextmanager
    def _explaining_disk_errors(self) -> Iterator[None]:
        """Adds to errors of the disk what happens to the run."""
        try:
            yield
        except OSError as error:
            if error.errno is None:
                raise
            advice = "free some space, then run" if error.errno in DISK_FULL else "to continue, run"
            reason = (
                f"{os.strerror(error.errno)}; earlier checkpoints in {self._checkpoints} are kept: {advice} "
                f"`babyai resume {self.folder}`"
            )
            raise OSError(error.errno, reason) from error

    # ------------------------------------------------------------ opening and closing

    def close(self) -> None:
        """Lets other processes write to the folder."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
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

    def _write_config(self, config: Mapping[str, Any]) -> None:
        with atomic_file(self.folder / CONFIG) as temporary:
            temporary.write_text(to_json(config, indent=1) + "\n")

    def _open(self) -> None:
        """Opens the log."""
        self._metrics = self._stack.enter_context(io.FileIO(self.folder / METRICS, "a"))
        if self._make_writer is None:
            return
        # Event files are written again from the start, because TensorBoard cannot forget rows that were dropped.
        shutil.rmtree(self.folder / TENSORBOARD, ignore_errors=True)
        self._writer = self._make_writer()
        self._stack.callback(self._writer.close)
        for row in self.rows():
            self._write_scalars(row)

    def _metrics_size(self) -> int:
        return os.fstat(self._metrics.fileno()).st_size

    def _write_scalars(self, row: Mapping[str, Any]) -> None:
        if self._writer is None:
            return
        step = next((row[name] for name in STEP_METRICS if name in row), None)
        for name, value in _flatten(row).items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)


# ------------------------------------------------------------ reading


def holds_run(folder: PathLike) -> bool:
    """Whether a run was started there."""
    return (Path(folder) / CONFIG).exists()


def read_config(folder: PathLike) -> dict[str, Any]:
    """A run's config.json: kind, config, origin, resumed."""
    path = Path(folder) / CONFIG
    check_regular(path)
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"{folder} holds no run: it has no {CONFIG}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    types = {"kind": str, "config": dict, "origin": dict, "resumed": list}
    if not isinstance(config, dict) or any(not isinstance(config.get(key), types[key]) for key in types):
        raise RunError(f"{path} does not describe a run")
    return config


def read_rows(folder: PathLike) -> list[dict[str, Any]]:
    """The rows of a run, which may be in progress: an unfinished last line is ignored."""
    path = Path(folder) / METRICS
    check_regular(path)
    complete = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    try:
        return [json.loads(line) for line in complete.splitlines()]
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def read_checkpoint(folder: Path) -> Checkpoint:
    """All that a checkpoint holds.

    Raises:
        CheckpointError: It is damaged or incomplete.
    """
    try:
        model, _ = read_tensors(folder / MODEL, checksum=True)
        tensors, metadata = _read_parts(folder)
        return Checkpoint(folder, model, tensors, json.loads(metadata["state"]), int(metadata["metrics_bytes"]))
    except (FileNotFoundError, KeyError) as error:
        raise CheckpointError(f"{folder} is incomplete: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder} is damaged: {error}") from None


def _write_parts(folder: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], dtype: Dtype) -> None:
    """Writes tensors to as many files as needed."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        num_bytes = tensor.nbytes // 2 if dtype == "bf16" and tensor.dtype == float32 else tensor.nbytes
        if size + num_bytes > PART_BYTES and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += num_bytes
    for number, part in enumerate(parts):
        first = {**metadata, "parts": str(len(parts))} if number == 0 else None
        write_tensors(folder / _part_name(number), part, first, dtype=dtype)


def _read_parts(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `_write_parts` wrote."""
    tensors, metadata = read_tensors(folder / TENSORS, checksum=True)
    for number in range(1, int(metadata.get("parts", 1))):
        tensors |= read_tensors(folder / _part_name(number), checksum=True)[0]
    return tensors, metadata


def _part_name(number: int) -> str:
    path = Path(TENSORS)
    return f"{path.stem}-{number}{path.suffix}" if number else TENSORS


def _truncate_rows(path: Path, size: int) -> None:
    """Drops all rows after the first `size` bytes."""
    with open(path, "a+b") as file:
        actual = file.tell()
        if actual < size:
            logger.warning("%s has lost %d bytes; the run continues without those rows", path, size - actual)
            file.seek(0)
            size = file.read().rfind(b"\n") + 1
        file.truncate(size)


# ------------------------------------------------------------ values


def to_json(value: Any, **style: Any) -> str:
    """JSON, with NumPy's and torch's numbers and arrays as plain ones."""

    def plain(item: Any) -> Any:
        if not hasattr(item, "tolist"):
            raise TypeError(f"{item!r} cannot be saved as JSON")
        return item.tolist()

    return json.dumps(value, default=plain, **style)


def _to_plain(value: Any) -> Any:
    """The value after a round trip through JSON."""
    return json.loads(to_json(value))


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values as `outer/inner`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flatten(value) if isinstance(value, Mapping) else {"": value}
        flat |= {f"{key}/{name}" if name else key: item for name, item in inner.items()}
    return flat


def _compare(
    folder: Path, before: Mapping[str, Any], now: Mapping[str, Any], may_change: Collection[str]
) -> dict[str, list[Any]]:
    """The options that differ, with both values; raises if one of them must not."""
    changed = {
        name: [before.get(name), now.get(name)]
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    }
    refused = [name for name in changed if name not in may_change]
    if refused:
        differences = ", ".join(f"{name} was {changed[name][0]!r}, is {changed[name][1]!r}" for name in refused)
        raise RunError(
            f"{folder} holds a run with other options ({differences}); use the same, or another folder. Only these may "
            f"change: {', '.join(may_change) or 'none'}"
        )
    return changed


def _tensorboard_writer(folder: Path) -> Callable[[], Any]:
    """A function that creates the writer; that TensorBoard is missing shows now, before anything is written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError:
        raise RunError("TensorBoard is not installed: pip install tensorboard, or omit --tensorboard") from None
    return lambda: SummaryWriter(str(folder), flush_secs=10)
