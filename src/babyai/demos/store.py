"""The file of demonstrations: Parquet with zstd, readable by pandas, polars, DuckDB and dataset hubs.

Pages carry checksums and the header a digest, so that a damaged file is found out when it is read. Files appear whole
or not at all: they are written beside their place and moved there once they are safe on the disk.
"""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babyai.demos.header import DemoFileError, Header, Source, check_rules, read_header
from babyai.demos.packed import SCHEMA, Demo, Demos, unpack_table
from babyai.levels.catalog import Rules

ROWS_PER_GROUP = 8192
# Above this level, files become smaller far more slowly than collecting them becomes slower.
COMPRESSION_LEVEL = 12
MAGIC = b"PAR1"
PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def atomic_file(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yields a name to write to; afterwards `path` is that file, or, after an error, what it was before.

    Args:
        path: The place of the file.
        temporary: Where to write meanwhile, on the same disk; None: beside `path`.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _synchronize(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # Windows can neither open folders nor needs to.
    if os.name == "posix":
        _synchronize(path.parent)


def _synchronize(path: Path) -> None:
    """Waits until the disk has it."""
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Sink(io.FileIO):
    """A file to write to, whose errors are Python's own, and which can be made to swallow everything."""

    discarding = False

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w")

    def write(self, data: Any) -> int:
        """Writes all of it; an unbuffered file may otherwise take less."""
        rest = memoryview(data).cast("B")
        while len(rest) and not self.discarding:
            rest = rest[super().write(rest) :]
        return memoryview(data).nbytes


class DemoWriter:
    """Writes a file of demonstrations; it appears at `path` when `close` is called, and never otherwise.

        with DemoWriter(path, header) as writer:
            writer.write(demos)
            writer.close(Source("expert", len(demos), "paper", EXPERT_VERSION))

    Args:
        path: The place of the file; what is there is replaced.
        header: Rules and levels of all that will be written; its sources do not count.
        temporary: Where to write meanwhile; None: beside `path`.
    """

    def __init__(self, path: PathLike, header: Header, temporary: Path | None = None) -> None:
        self.header, self.rows = header, 0
        self._names = tuple(header.levels)
        self._waiting: list[pa.Table] = []
        self._stack = contextlib.ExitStack()
        target = self._stack.enter_context(atomic_file(Path(path), temporary))
        self._sink = self._stack.enter_context(_Sink(target))
        self._writer = pq.ParquetWriter(
            self._sink,
            SCHEMA,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=["level", "length", "reward"],  # pyright: ignore[reportArgumentType]
            column_encoding={"seed": "DELTA_BINARY_PACKED"},
            write_page_checksum=True,
        )

    def write(self, demos: Demos) -> None:
        """Adds demonstrations of levels that the header names."""
        codes = np.array([self._names.index(name) for name in demos.names], dtype=np.int32)
        levels = codes[demos.levels] if len(demos) else demos.levels
        renamed = Demos(self._names, levels, demos.seeds, demos.offsets, demos.actions, demos.rewards, demos.missions)
        self._waiting.append(renamed.to_table())
        self.rows += len(demos)
        self._write_groups(ROWS_PER_GROUP)

    def close(self, *sources: Source) -> None:
        """Finishes the file; `sources` say where its rows come from, in order."""
        if sum(source.rows for source in sources) != self.rows:
            raise ValueError(f"the sources account for {sum(source.rows for source in sources)} of {self.rows} rows")
        self._write_groups(1)
        header = Header(self.header.rules, self.header.levels, sources)
        self._writer.add_key_value_metadata(header.to_metadata())
        self._writer.close()
        self._stack.close()

    def _write_groups(self, least: int) -> None:
        """Writes what waits, in groups of full size, as long as there are `least` rows."""
        count = sum(table.num_rows for table in self._waiting)
        if count < least or count == 0:
            return
        table = pa.concat_tables(self._waiting).combine_chunks()
        first = 0
        while count - first >= least and first < count:
            self._writer.write_table(table.slice(first, ROWS_PER_GROUP), row_group_size=ROWS_PER_GROUP)
            first += ROWS_PER_GROUP
        self._waiting = [table.slice(first)] if first < count else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._sink.closed:
            return
        # The writer must come to its end, and would write a footer for that.
        self._sink.discarding = True
        self._writer.close()
        unfinished = error or RuntimeError("a file of demonstrations was begun and not closed")
        self._stack.__exit__(type(unfinished), unfinished, trace)
        if error is None:
            raise unfinished


class DemoFile:
    """A file of demonstrations, open for reading; rows are read when they are asked for.

        with DemoFile("boss.parquet") as file:
            print(len(file), file.levels, file[0].mission)

    Args:
        path: The file.
        replayable: Refuse a file whose levels are not those of the installed catalog. Without this it can be looked
            at, but not be replayed.

    Raises:
        DemoFileError: It is not a file of demonstrations, is damaged, newer, or made under other rules.
    """

    def __init__(self, path: PathLike, *, replayable: bool = True) -> None:
        self.path = Path(path)
        self._file = _open_parquet(self.path)
        try:
            self.header = read_header(self._file.metadata.metadata, str(self.path))
            self._check_shape()
            if replayable:
                check_rules(self.header, str(self.path))
        except BaseException:
            self.close()
            raise

    @property
    def rules(self) -> Rules:
        """The rule set of all rows."""
        return self.header.rules

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the levels, in the order of `Demos.names`."""
        return tuple(self.header.levels)

    @property
    def metadata(self) -> dict[str, Any]:
        """All that the file says about itself."""
        from dataclasses import asdict

        return asdict(self.header)

    def __len__(self) -> int:
        return self.header.rows

    def groups(self, missions: bool = True) -> Iterator[Demos]:
        """All demonstrations, a few thousand at a time.

        Args:
            missions: Whether to read the missions, which replaying does not need.
        """
        return (self._read_group(number, missions) for number in range(len(self._starts) - 1))

    def __iter__(self) -> Iterator[Demo]:
        return (demo for group in self.groups() for demo in group)

    def __getitem__(self, row: int) -> Demo:
        return self.read([range(len(self))[row]])[0]

    def read(self, rows: Sequence[int] | np.ndarray | slice | None = None, missions: bool = True) -> Demos:
        """The named rows, in the order given; all, if None.

        Args:
            rows: Numbers of rows from 0 on, or a slice.
            missions: Whether to read the missions.
        """
        chosen = slice(None) if rows is None else rows
        wanted = np.arange(len(self))[chosen] if isinstance(chosen, slice) else np.array(chosen, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"{self.path} has rows 0 to {len(self) - 1}, not {wanted.min()} to {wanted.max()}")
        owners = np.searchsorted(self._starts, wanted, side="right") - 1
        pieces, order = [], []
        for owner in np.unique(owners).tolist():
            places = np.flatnonzero(owners == owner)
            pieces.append(self._read_group(owner, missions).take(wanted[places] - self._starts[owner]))
            order.append(places)
        together = _join(self.levels, pieces, missions)
        return together.take(np.argsort(np.concatenate(order))) if len(pieces) > 1 else together

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_group(self, number: int, missions: bool) -> Demos:
        columns = [name for name in SCHEMA.names if missions or name != "mission"]
        first = int(self._starts[number])
        with _telling_damage(self.path):
            table = self._file.read_row_group(number, columns=columns, use_threads=False)
            table.validate(full=True)
        if table.num_rows != self._starts[number + 1] - first:
            raise DemoFileError(f"{self.path} is damaged: it has fewer rows than its footer says")
        return unpack_table(table, self.levels, first, str(self.path))

    def _check_shape(self) -> None:
        """Makes sure that the columns and the number of rows are as a header promises."""
        with _telling_damage(self.path):
            columns = dict(zip(self._file.schema_arrow.names, self._file.schema_arrow.types, strict=True))
            counts = [self._file.metadata.row_group(k).num_rows for k in range(self._file.metadata.num_row_groups)]
        for part in SCHEMA:
            plain = pa.string() if part.name == "level" else part.type
            if columns.get(part.name) not in (part.type, plain):
                raise DemoFileError(f"{self.path} is damaged: it has no column {part.name!r} of type {part.type}")
        if min(counts, default=0) < 0 or sum(counts) != len(self):
            raise DemoFileError(f"{self.path} is damaged: it has {sum(counts)} rows, and its header says {len(self)}")
        self._starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _join(names: tuple[str, ...], pieces: list[Demos], missions: bool) -> Demos:
    """Several pieces of one file as one."""
    nothing = np.zeros(0, dtype=np.int64)
    parts = [(p.levels, p.seeds, p.lengths, p.actions, p.rewards) for p in pieces] or [
        (nothing.astype(np.int32), nothing, nothing, nothing.astype(np.uint8), nothing.astype(np.float64))
    ]
    levels, seeds, lengths, actions, rewards = (np.concatenate(column) for column in zip(*parts, strict=True))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
    words = pa.concat_arrays([p.missions for p in pieces]) if missions and pieces else None
    return Demos(names, levels, seeds, offsets, actions, rewards, words)


def _open_parquet(path: Path) -> pq.ParquetFile:
    """The file, if it is Parquet from its first to its last byte.

    Raises:
        OSError: It cannot be opened.
        DemoFileError: It is something else, or has been cut short or damaged.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(len(MAGIC))
        file.seek(max(0, size - 8))
        tail = file.read(8)
    if head != MAGIC:
        raise DemoFileError(f"{path} is not a file of demonstrations: it is {'empty' if size == 0 else 'not Parquet'}")
    if size < 12 or tail[4:] != MAGIC:
        raise DemoFileError(f"{path} is cut short: its end is missing")
    if int.from_bytes(tail[:4], "little") > size - 12:
        raise DemoFileError(f"{path} is damaged: its footer is larger than the file")
    with _telling_damage(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


@contextlib.contextmanager
def _telling_damage(path: Path) -> Iterator[None]:
    """Says in our words what the Parquet reader objects to."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DemoFileError(f"{path} is damaged: {reason}") from None
