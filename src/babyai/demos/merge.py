"""Merging files of demonstrations, and appending to one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from babyai.atomic_io import PathLike, file_lock
from babyai.demos.header import DemoFileError, Header, Source, check_same_world
from babyai.demos.packed import Demos
from babyai.demos.store import DemoFile, DemoWriter


def merge(paths: Sequence[PathLike], out: PathLike, *, keep_duplicates: bool = False) -> int:
    """Merges files into one, keeping the order of files and rows; returns its number of rows.

    Args:
        paths: Files with the same rules.
        out: File to write, which must not exist.
        keep_duplicates: Whether to accept several demonstrations with the same level and seed.

    Raises:
        DemoFileError: The files cannot be merged; the message says why.
    """
    if Path(out).exists():
        raise DemoFileError(f"{out} already exists; choose another name, or move it away")
    if not paths:
        raise ValueError("no files to merge were given")
    files = [DemoFile(path) for path in paths]
    try:
        header = _common_header(files)
        if not keep_duplicates:
            _check_duplicates(files, header)
        with DemoWriter(out, header) as writer:
            for file in files:
                for group in file.groups():
                    writer.write(group)
            writer.close(*(source for file in files for source in file.header.sources))
        return writer.rows
    finally:
        for file in files:
            file.close()


def _common_header(files: Sequence[DemoFile]) -> Header:
    levels = {}
    for file in files:
        check_same_world(files[0].header, file.header, str(files[0].path), str(file.path))
        for name, settings in file.header.levels.items():
            levels.setdefault(name, settings)
    return Header(files[0].rules, levels)


def _check_duplicates(files: Sequence[DemoFile], header: Header) -> None:
    """Raises DemoFileError if a seed of a level occurs more than once."""
    names = list(header.levels)
    levels = []
    seeds = []
    owners = []
    for number, file in enumerate(files):
        codes = np.array([names.index(name) for name in file.levels])
        for group in file.groups(missions=False):
            levels.append(codes[group.levels])
            seeds.append(group.seeds)
            owners.append(np.full(len(group), number))
    if not seeds:
        return
    level = np.concatenate(levels)
    seed = np.concatenate(seeds)
    owner = np.concatenate(owners)
    order = np.lexsort((seed, level))
    same = (np.diff(seed[order]) == 0) & (np.diff(level[order]) == 0)
    if same.any():
        one, other = order[int(np.argmax(same)) :].tolist()[:2]
        where = " and ".join(sorted({str(files[int(owner[k])].path) for k in (one, other)}))
        raise DemoFileError(
            f"seed {seed[one]} of level {names[level[one]]!r} occurs more than once, in {where}; --keep-duplicates "
            f"(in Python, keep_duplicates=True) keeps both"
        )


def append(path: PathLike, demos: Demos, header: Header, source: Source) -> int:
    """Appends demonstrations to a file, which is created if it does not exist; returns its number of rows.

    The whole file is rewritten atomically, so nothing is lost if the process is interrupted. Processes that append to
    the same file take turns.

    Args:
        path: File of demonstrations.
        demos: Demonstrations to append.
        header: Header with the rules and levels of `demos`.
        source: Source of `demos`.
    """
    with file_lock(Path(path)):
        return _append(path, demos, header, source)


def _append(path: PathLike, demos: Demos, header: Header, source: Source) -> int:
    if not Path(path).exists():
        with DemoWriter(path, header) as writer:
            writer.write(demos)
            writer.close(source)
        return len(demos)
    with DemoFile(path) as file:
        check_same_world(file.header, header, str(path), "the new demonstration")
        both = Header(file.rules, file.header.levels | header.levels)
        with DemoWriter(path, both) as writer:
            for group in file.groups():
                writer.write(group)
            writer.write(demos)
            # On Windows an open file cannot be replaced.
            file.close()
            writer.close(*_with_source(file.header.sources, source))
    return writer.rows


def _with_source(sources: tuple[Source, ...], added: Source) -> tuple[Source, ...]:
    """The sources and the added one, which is merged with the last if they differ only in the number of rows."""
    if sources and replace(sources[-1], rows=added.rows) == added:
        return *sources[:-1], replace(added, rows=sources[-1].rows + added.rows)
    return *sources, added
