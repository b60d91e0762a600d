"""Files of demonstrations: Parquet with zstd, readable by pandas, polars, DuckDB and dataset hubs.

Pages have checksums and the header has a digest, so damage is detected on reading. Files are written atomically: to a
temporary file that is renamed once it is on the disk.
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

from babyai.atomic_io import PathLike, atomic_file, check_regular
from babyai.demos.header import DemoFileError, Header, Source, check_rules, read_header
from babyai.demos.packed import SCHEMA, Demo, Demos, unpack_table
from babyai.levels.catalog import Rules

ROWS_PER_GROUP = 8192
# At higher levels, collecting becomes much slower and files hardly smaller.
COMPRESSION_LEVEL = 12
MAGIC = b"PAR1"


class _Sink(io.FileIO):
    """Output file that raises Python's own errors, and can discard further writes."""

    discarding = False

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w")

    def write(self, data: Any) -> int:
        """Writes all of the data, unlike an unbuffered file, which may write only a part of it."""
        remaining = memoryview(data).cast("B")
        while len(remaining) and not self.discarding:
            remaining = remaining[super().write(remaining) :]
        return memoryview(data).nbytes


class DemoWriter:
    """Writes a file of demonstrations, which appears at `path` only when `close` is called.

        with DemoWriter(path, header) as writer:
            writer.write(demos)
            writer.close(Source("expert", len(demos), "paper", EXPERT_VERSION))

    Args:
        path: File to write; an existing one is replaced.
        header: Header with the rules and levels of all demonstrations; its sources are ignored.
        temporary: Temporary file on the same disk (default: next to `path`).
    """

    def __init__(self, path: PathLike, header: Header, temporary: Path | None = None) -> None:
        self.header = header
        self.rows = 0
        self._names = tuple(header.levels)
        self._buffered: list[pa.Table] = []
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
        """Adds demonstrations, whose levels must be in the header."""
        codes = np.array([self._names.index(name) for name in demos.names], dtype=np.int32)
        levels = codes[demos.levels] if len(demos) else demos.levels
        renamed = Demos(self._names, levels, demos.seeds, demos.offsets, demos.actions, demos.rewards, demos.missions)
        self._buffered.append(renamed.to_table())
        self.rows += len(demos)
        self._write_groups(ROWS_PER_GROUP)

    def close(self, *sources: Source) -> None:
        """Finishes the file; `sources` are the sources of its rows, in order."""
        if sum(source.rows for source in sources) != self.rows:
            raise ValueError(f"the sources have {sum(source.rows for source in sources)} rows, the file {self.rows}")
        self._write_groups(1)
        header = Header(self.header.rules, self.header.levels, sources)
        self._writer.add_key_value_metadata(header.to_metadata())
        self._writer.close()
        self._stack.close()

    def _write_groups(self, minimum: int) -> None:
        """Writes buffered rows as row groups while at least `minimum` rows are buffered."""
        count = sum(table.num_rows for table in self._buffered)
        if count < minimum or count == 0:
            return
        table = pa.concat_tables(self._buffered).combine_chunks()
        first = 0
        while count - first >= minimum and first < count:
            self._writer.write_table(table.slice(first, ROWS_PER_GROUP), row_group_size=ROWS_PER_GROUP)
            first += ROWS_PER_GROUP
        self._buffered = [table.slice(first)] if first < count else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._sink.closed:
            return
        # The Parquet writer must be closed, but its footer must not be written.
        self._sink.discarding = True
        self._writer.close()
        unfinished = error or RuntimeError("DemoWriter.close() was not called, so the file was discarded")
        self._stack.__exit__(type(unfinished), unfinished, trace)
        if error is None:
            raise unfinished


class DemoFile:
    """A file of demonstrations, open for reading. Rows are read on demand.

        with DemoFile("boss.parquet") as file:
            print(len(file), file.levels, file[0].mission)

    Args:
        path: File of demonstrations.
        replayable: Whether to reject a file whose levels differ from those of the installed catalog. Such a file can be
            read, but not replayed.

    Raises:
        DemoFileError: The file is not one of demonstrations, is damaged, has a newer format, or was recorded with other
            rules.
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
        """Names of the levels, in the order of `Demos.names`."""
        return tuple(self.header.levels)

    @property
    def metadata(self) -> dict[str, Any]:
        """The header as a dict."""
        from dataclasses import asdict

        return asdict(self.header)

    def __len__(self) -> int:
        return self.header.rows

    def __repr__(self) -> str:
        return f"DemoFile({str(self.path)!r}, {len(self):,} demonstrations of {', '.join(self.levels)})"

    def _repr_html_(self) -> str:
        """Statistics and the first demonstration as HTML, for notebooks."""
        from babyai.demos.show import html_of_file

        return html_of_file(self)

    def groups(self, missions: bool = True) -> Iterator[Demos]:
        """Iterates over all demonstrations, a few thousand at a time (a Parquet row group).

        Args:
            missions: Whether to read the missions, which replaying does not need.
        """
        return (self._read_group(number, missions) for number in range(self.num_groups))

    @property
    def num_groups(self) -> int:
        """Number of row groups."""
        return len(self._starts) - 1

    def read_group(self, number: int, rows: int | None = None) -> Demos:
        """One row group, or its first rows.

        Raises:
            WrongRowError: One of these rows is malformed; the error says which is the first.
        """
        return self._read_group(number, missions=True, rows=rows)

    def first_row(self, group: int) -> int:
        """The number of a group's first row."""
        return int(self._starts[group])

    def __iter__(self) -> Iterator[Demo]:
        return (demo for group in self.groups() for demo in group)

    def __getitem__(self, row: int) -> Demo:
        return self.read([range(len(self))[row]])[0]

    def read(self, rows: Sequence[int] | np.ndarray | slice | None = None, missions: bool = True) -> Demos:
        """The chosen rows, in the given order.

        Args:
            rows: Indices of rows, or a slice (default: all rows).
            missions: Whether to read the missions.
        """
        chosen = slice(None) if rows is None else rows
        wanted = np.arange(len(self))[chosen] if isinstance(chosen, slice) else np.array(chosen, dtype=np.int64)
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"{self.path} has rows 0 to {len(self) - 1}, not {wanted.min()} to {wanted.max()}")
        groups = np.searchsorted(self._starts, wanted, side="right") - 1
        pieces = []
        order = []
        for group in np.unique(groups).tolist():
            places = np.flatnonzero(groups == group)
            pieces.append(self._read_group(group, missions).take(wanted[places] - self._starts[group]))
            order.append(places)
        joined = _join(self.levels, pieces, missions)
        return joined.take(np.argsort(np.concatenate(order))) if len(pieces) > 1 else joined

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read_group(self, number: int, missions: bool, rows: int | None = None) -> Demos:
        columns = [name for name in SCHEMA.names if missions or name != "mission"]
        first = int(self._starts[number])
        with _damage_as_demo_file_error(self.path):
            table = self._file.read_row_group(number, columns=columns, use_threads=False)
            table.validate(full=True)
        if table.num_rows != self._starts[number + 1] - first:
            raise DemoFileError(f"{self.path} is damaged: it has fewer rows than its footer says")
        return unpack_table(table.slice(0, rows), self.levels, first, str(self.path))

    def _check_shape(self) -> None:
        """Checks the columns against the schema, and the number of rows against the header."""
        with _damage_as_demo_file_error(self.path):
            names = self._file.schema_arrow.names
            columns = dict(zip(names, self._file.schema_arrow.types, strict=True))
            counts = [self._file.metadata.row_group(k).num_rows for k in range(self._file.metadata.num_row_groups)]
        if len(columns) < len(names):
            raise DemoFileError(f"{self.path} is damaged: two of its columns have the same name")
        for part in SCHEMA:
            plain = pa.string() if part.name == "level" else part.type
            if columns.get(part.name) not in (part.type, plain):
                raise DemoFileError(f"{self.path} is damaged: it has no column {part.name!r} of type {part.type}")
        if min(counts, default=0) < 0 or sum(counts) != len(self):
            raise DemoFileError(f"{self.path} is damaged: it has {sum(counts)} rows, but its header says {len(self)}")
        self._starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _join(names: tuple[str, ...], pieces: list[Demos], missions: bool) -> Demos:
    """Pieces of one file, concatenated."""
    empty = np.zeros(0, dtype=np.int64)
    parts = [(p.levels, p.seeds, p.lengths, p.actions, p.rewards) for p in pieces] or [
        (empty.astype(np.int32), empty, empty, empty.astype(np.uint8), empty.astype(np.float64))
    ]
    levels, seeds, lengths, actions, rewards = (np.concatenate(column) for column in zip(*parts, strict=True))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
    sentences = pa.concat_arrays([p.missions for p in pieces]) if missions and pieces else None
    return Demos(names, levels, seeds, offsets, actions, rewards, sentences)


def _open_parquet(path: Path) -> pq.ParquetFile:
    """The opened Parquet file.

    Raises:
        OSError: The file cannot be opened.
        DemoFileError: The file is not Parquet, is truncated or damaged.
    """
    check_regular(path)
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(len(MAGIC))
        file.seek(max(0, size - 8))
        tail = file.read(8)
    if head != MAGIC:
        raise DemoFileError(f"{path} is not a file of demonstrations: it is {'empty' if size == 0 else 'not Parquet'}")
    if size < 12 or tail[4:] != MAGIC:
        raise DemoFileError(f"{path} is truncated: its end is missing")
    if int.from_bytes(tail[:4], "little") > size - 12:
        raise DemoFileError(f"{path} is damaged: its footer is larger than the file")
    with _damage_as_demo_file_error(path):
        return pq.ParquetFile(path, page_checksum_verification=True)


@contextlib.contextmanager
def _damage_as_demo_file_error(path: Path) -> Iterator[None]:
    """Turns errors of the Parquet reader into a DemoFileError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DemoFileError(f"{path} is damaged: {reason}") from None
