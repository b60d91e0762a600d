"""Where studies are kept: measured rows, and the state from which an interrupted study resumes on any machine.

    STATE/rows.jsonl             one JSON line per measured run
    STATE/state.json             which unfinished runs the parts hold, and the slices so far
    STATE/unfinished-G-K.part    part K of the unfinished runs, of generation G

A state has at most `MAX_FILES` files of at most `PART_BYTES` each. New parts are written next to the old ones, then
state.json is replaced, then the old parts are removed, so that a state is whole at any moment. `results/*.jsonl` have
the same lines as rows.jsonl.
"""

import contextlib
import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babyai.atomic_io import atomic_file, remove_temporaries
from babyai.studies.cells import Run
from babyai.studies.measure import VERSION

ROWS = "rows.jsonl"
INDEX = "state.json"
SLICES = "slices.json"
PART = "unfinished-{}-{}.part"
MAX_FILES = 8
PART_BYTES = 10 * 2**20
MAX_PARTS = MAX_FILES - 2

Row = dict[str, Any]
REQUIRED = ("version", "kind", "cell", "seed", "complete", "figures", "seconds", "origin")


class StudyError(ValueError):
    """A state or a results file that cannot be used."""


# ------------------------------------------------------------ rows


def make_row(run: Run, result: Mapping[str, Any], origin: Mapping[str, Any], at_once: int) -> Row:
    """The line of a measured run."""
    cell = run.cell
    return {
        "version": VERSION,
        "cell": cell.name,
        "seed": run.seed,
        **{name: getattr(cell, name) for name in ("kind", "level", "architecture", "size", "demos", "variant")},
        "quick": cell.quick,
        "complete": True,
        "at_once": at_once,
        **result,
        "origin": dict(origin),
    }


@dataclass
class Rows:
    """Rows that were read, and what was wrong with lines that could not be."""

    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def keys(self) -> set[tuple[str, int]]:
        """Cell and seed of all runs that were measured to their end."""
        return {(row["cell"], row["seed"]) for row in self.rows if row["complete"]}

    def chosen(self) -> dict[str, dict[int, Row]]:
        """The rows of each cell by seed: of several, the newest complete one or, if none is complete, the longest."""
        chosen: dict[str, dict[int, Row]] = {}
        for row in self.rows:
            seeds = chosen.setdefault(row["cell"], {})
            before = seeds.get(row["seed"])
            if before is None or _rank(row) >= _rank(before):
                seeds[row["seed"]] = row
        return {cell: dict(sorted(seeds.items())) for cell, seeds in chosen.items()}


def _rank(row: Row) -> tuple[bool, float]:
    return row["complete"], 0.0 if row["complete"] else row["seconds"]


def read_rows(*paths: Path) -> Rows:
    """The rows of files, or of all .jsonl files of folders; broken lines are listed, and good ones kept."""
    found = Rows()
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] * path.exists()
        for file in files:
            for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
                if not line:
                    continue
                try:
                    found.rows.append(_parse_row(line))
                except ValueError as error:
                    found.problems.append(f"{file}, line {number}: {error}; the line is ignored")
    return found


def _parse_row(line: bytes) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not valid JSON ({error})") from None
    if not isinstance(row, dict) or "version" not in row:
        raise ValueError("not a measured run")
    if row["version"] != VERSION:
        raise ValueError(f"a row of version {row['version']!r}, but this program reads version {VERSION}; update it")
    if missing := [name for name in REQUIRED if name not in row]:
        raise ValueError(f"the row lacks {', '.join(missing)}")
    return row


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Appends rows and waits until they are on the disk; an unfinished last line is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    with open(path, "a+b") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        if file.read(1) not in (b"", b"\n"):
            lines = b"\n" + lines
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def read_slices(results: Path) -> list[dict[str, Any]]:
    """How fast slices of studies were: runs at once, frames per second in total."""
    path = results / SLICES
    if not path.exists():
        return []
    try:
        slices = json.loads(path.read_text())
        if not isinstance(slices, list):
            raise ValueError("not a list")
    except ValueError as error:
        raise StudyError(f"{path} is damaged ({error}); repair it, or delete it: it holds only speeds") from None
    return slices


def _join_slices(states: Iterable[Path], results: Path) -> list[dict[str, Any]]:
    slices = read_slices(results)
    for state in states:
        slices += [each for each in _read_index(state / INDEX).get("slices", []) if each not in slices]
    return slices


def collect_rows(states: Sequence[Path], results: Path) -> tuple[int, list[str]]:
    """Appends the rows of states to results/<kind>.jsonl, each run once. Rows of unfinished runs are left out.

    Returns:
        The number of rows added, and the problems of lines that could not be read.
    """
    known = read_rows(results).keys()
    new: dict[str, list[Row]] = {}
    problems = []
    for state in states:
        if not (state / ROWS).exists():
            raise StudyError(f"{state} holds no measured runs: it has no {ROWS}")
        found = read_rows(state / ROWS)
        problems += found.problems
        for row in found.rows:
            if row["complete"] and (row["cell"], row["seed"]) not in known:
                known.add((row["cell"], row["seed"]))
                new.setdefault(row["kind"], []).append(row)
    slices = _join_slices(states, results)
    for kind, rows in new.items():
        append_rows(results / f"{kind}.jsonl", rows)
    if slices:
        with atomic_file(results / SLICES) as temporary:
            temporary.write_text(json.dumps(slices, indent=1) + "\n")
    return sum(map(len, new.values())), problems


# ------------------------------------------------------------ unfinished runs


@dataclass(frozen=True)
class Packed:
    """An unfinished run inside the parts."""

    seconds: float
    """Training time so far."""
    offset: int
    size: int
    crc: int


class State:
    """The state of a study on one machine.

    Args:
        folder: The state's folder, which travels.
        work: The folder in which runs train, which does not.
        parts: How many parts unfinished runs may fill.
    """

    def __init__(self, folder: Path, work: Path, parts: int = MAX_PARTS) -> None:
        self.folder = folder
        self.work = work
        self.budget = parts * PART_BYTES
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
        self._index = _read_index(folder / INDEX)

    @property
    def runs(self) -> Path:
        """The folder of run folders."""
        return self.work / "runs"

    @property
    def slices(self) -> list[dict[str, Any]]:
        """What was trained in each slice so far."""
        return self._index["slices"]

    def rows(self) -> Rows:
        """The rows of the state."""
        return read_rows(self.folder / ROWS)

    def add(self, row: Row, run: Run) -> None:
        """Keeps a measured run, and removes its folder."""
        append_rows(self.folder / ROWS, [row])
        shutil.rmtree(self.runs / run.key, ignore_errors=True)

    def unpack(self) -> list[str]:
        """Unpacks unfinished runs to where they continue; returns the keys of those that the state holds.

        A run that is further in the work folder, where it was trained last, stays as it is there.
        """
        runs: dict[str, Packed] = {key: Packed(**entry) for key, entry in self._index["runs"].items()}
        stream = b"".join(self._read_part(name) for name in self._index["parts"])
        for key, packed in runs.items():
            if seconds_trained(self.runs / key) >= packed.seconds:
                continue
            content = stream[packed.offset : packed.offset + packed.size]
            if zlib.crc32(content) != packed.crc:
                raise StudyError(f"the state in {self.folder} is damaged: {key} has changed; delete {INDEX} to drop it")
            unzip_run(content, self.runs / key)
        return list(runs)

    def pack(self, slice_row: Mapping[str, Any] | None = None) -> list[str]:
        """Packs all unfinished runs of the work folder, the most advanced first; returns those that do not fit."""
        folders = sorted(self.runs.iterdir(), key=seconds_trained, reverse=True) if self.runs.exists() else []
        stream = b""
        runs: dict[str, Packed] = {}
        dropped = []
        for folder in folders:
            if not (content := zip_run(folder)):
                continue
            if len(stream) + len(content) > self.budget:
                dropped.append(folder.name)
                continue
            runs[folder.name] = Packed(seconds_trained(folder), len(stream), len(content), zlib.crc32(content))
            stream += content
        slices = self.slices + ([dict(slice_row)] if slice_row else [])
        self._write(stream, runs, slices)
        return dropped

    def _write(self, stream: bytes, runs: Mapping[str, Packed], slices: list[dict[str, Any]]) -> None:
        generation = self._index["generation"] + 1
        parts = []
        for number, start in enumerate(range(0, len(stream), PART_BYTES)):
            parts.append(PART.format(generation, number))
            with atomic_file(self.folder / parts[-1]) as temporary:
                temporary.write_bytes(stream[start : start + PART_BYTES])
        entries = {key: vars(packed) for key, packed in runs.items()}
        index = {"version": VERSION, "generation": generation, "parts": parts, "runs": entries, "slices": slices}
        with atomic_file(self.folder / INDEX) as temporary:
            temporary.write_text(json.dumps(index, indent=1) + "\n")
        for old in self.folder.glob(PART.format("*", "*")):
            if old.name not in parts:
                old.unlink()
        self._index = index

    def _read_part(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise StudyError(
                f"the state in {self.folder} lacks {name}; copy it, too, or delete {INDEX} to drop unfinished runs"
            ) from None


def _read_index(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"generation": 0, "parts": [], "runs": {}, "slices": []}
    try:
        index = json.loads(path.read_text())
    except ValueError as error:
        raise StudyError(f"{path} is damaged ({error}); delete it to drop unfinished runs, rows are kept") from None
    if not isinstance(index, dict) or index.get("version") != VERSION:
        raise StudyError(f"{path} is not a state of version {VERSION}; delete it to drop unfinished runs")
    return index


def seconds_trained(folder: Path) -> float:
    """The training time of a run so far, by its log; -1 without a run."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return -1.0
    total = 0.0
    for line in path.read_bytes().rpartition(b"\n")[0].splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            total += json.loads(line)["seconds"]
    return total


def zip_run(folder: Path) -> bytes:
    """What resuming needs of a run: options, log, newest checkpoint and best one; empty without a checkpoint."""
    checkpoints = folder / "checkpoints"
    numbered = sorted(path for path in checkpoints.glob("*") if path.name.isdecimal())
    if not numbered:
        return b""
    best = sorted(checkpoints.glob("best-*"))
    files = [folder / "config.json", folder / "metrics.jsonl"]
    for checkpoint in (*numbered[-1:], *best[-1:]):
        files += sorted(checkpoint.iterdir())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in files:
            archive.write(file, file.relative_to(folder))
    return buffer.getvalue()


def unzip_run(content: bytes, folder: Path) -> None:
    """Puts what `zip_run` returned into a folder, in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
