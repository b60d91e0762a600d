"""Putting files together: several become one, or a few demonstrations are added to one. Order is kept."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from babyai.demos.header import DemoFileError, Header, Source, check_same_world
from babyai.demos.packed import Demos
from babyai.demos.store import DemoFile, DemoWriter, PathLike


def merge(paths: Sequence[PathLike], out: PathLike, *, keep_duplicates: bool = False) -> int:
    """Makes one file of several, their rows in the order given; returns how many it has.

    Args:
        paths: The files, made under the same rules.
        out: The file to make; it must not exist.
        keep_duplicates: Let a seed of a level occur more than once.

    Raises:
        DemoFileError: They cannot become one; the message says why.
    """
    if Path(out).exists():
        raise DemoFileError(f"{out} exists already; choose another name, or move it away")
    if not paths:
        raise ValueError("there are no files to merge")
    files = [DemoFile(path) for path in paths]
    try:
        header = _common_header(files)
        if not keep_duplicates:
            _refuse_duplicates(files, header)
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


def _refuse_duplicates(files: Sequence[DemoFile], header: Header) -> None:
    """Raises if a seed of a level occurs more than once."""
    names = list(header.levels)
    levels, seeds, owners = [], [], []
    for number, file in enumerate(files):
        codes = np.array([names.index(name) for name in file.levels])
        for group in file.groups(missions=False):
            levels.append(codes[group.levels])
            seeds.append(group.seeds)
            owners.append(np.full(len(group), number))
    if not seeds:
        return
    level, seed, owner = np.concatenate(levels), np.concatenate(seeds), np.concatenate(owners)
    order = np.lexsort((seed, level))
    same = (np.diff(seed[order]) == 0) & (np.diff(level[order]) == 0)
    if same.any():
        one, other = order[int(np.argmax(same)) :].tolist()[:2]
        where = " and ".join(sorted({str(files[int(owner[k])].path) for k in (one, other)}))
        raise DemoFileError(
            f"seed {seed[one]} of level {names[level[one]]!r} occurs more than once, in {where}; to keep both, say so "
            f"(keep_duplicates)"
        )


def append(path: PathLike, demos: Demos, header: Header, source: Source) -> int:
    """Adds demonstrations at the end of a file, which is made if it does not exist; returns how many it has then.

    The file is written anew beside itself and then takes its own place, so that nothing is lost whatever happens.

    Args:
        path: The file.
        demos: What to add.
        header: Rules and levels of `demos`.
        source: Where they come from.
    """
    if not Path(path).exists():
        with DemoWriter(path, header) as writer:
            writer.write(demos)
            writer.close(source)
        return len(demos)
    with DemoFile(path) as file:
        check_same_world(file.header, header, str(path), "what is to be added")
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
    """The sources and one more; together with the last, if all that differs is the number of rows."""
    if sources and replace(sources[-1], rows=added.rows) == added:
        return *sources[:-1], replace(added, rows=sources[-1].rows + added.rows)
    return *sources, added
