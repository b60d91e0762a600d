"""Collecting: whole demonstrations by the expert, on all cores, that go on after any interruption where they were.

The seeds of each level are cut into blocks. A finished block is a small file in the folder `<out>.parts`; when all
are there they become one file, and the folder goes. What a block holds depends on nothing but its level and seeds, so
neither threads nor interruptions can be told from the result.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from babyai.demos.header import EXPERT_VERSION, DemoFileError, Header, Source, make_header
from babyai.demos.packed import Demos, pack_demos
from babyai.demos.store import DemoFile, DemoWriter, PathLike, atomic_file
from babyai.engine import MAX_SEED, Engine, check_seed
from babyai.expert.expert import ExpertBatch, Style
from babyai.levels.catalog import Level, Rules, find_level

BLOCK = 8192
MANIFEST = "manifest.json"
# How a disk, a quota and a limit say that there is no more room.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Block:
    """Some consecutive seeds of one level, and the file for what becomes of them."""

    level: Level
    first_seed: int
    count: int
    file: Path


@dataclass(frozen=True)
class Collection:
    """What came of collecting."""

    path: Path
    demos: int
    unsolved: dict[str, list[int]]
    """The seeds, by level, on which the expert did not succeed."""


def collect(
    levels: str | Level | Sequence[str | Level],
    episodes: int,
    first_seed: int,
    out: PathLike,
    *,
    rules: Rules = "paper",
    style: Style = "paper",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Collection:
    """Writes a file with the expert's demonstrations; goes on where an earlier call with the same arguments stopped.

    Args:
        levels: One level or several.
        episodes: How many seeds of each level.
        first_seed: The first of them. Seeds from 10^9 on are kept for validation and test.
        out: The file to make.
        rules: "paper" or "minigrid".
        style: The expert's style.
        threads: How many threads work; None: one a core.
        progress: Is called with the seeds done and the seeds in all.

    Raises:
        DemoFileError: `out` exists and is not what would be made, or beside it lies unfinished work of another kind.
        OSError: The disk is full, or cannot be written to.
    """
    chosen = [find_level(level, rules) for level in ([levels] if isinstance(levels, str | Level) else levels)]
    if episodes < 1 or not chosen:
        raise ValueError(f"there must be at least one level and one episode, not {len(chosen)} and {episodes}")
    check_seed(min(check_seed(first_seed) + episodes - 1, MAX_SEED + 1))
    header = make_header(chosen, rules)
    if len(header.levels) < len(chosen):
        raise ValueError("a level is named more than once")
    path = Path(out)
    folder = path.with_name(path.name + ".parts")
    blocks = list(_cut(chosen, episodes, first_seed, folder))
    order: dict[str, object] = {"header": asdict(header), "style": style, "version": EXPERT_VERSION}
    order |= {"episodes": episodes, "first_seed": first_seed, "block": BLOCK}
    if path.exists():
        return _recognize(path, folder, header, style, blocks)
    try:
        with _begin(folder, order):
            _fill(blocks, header, style, threads or os.cpu_count() or 1, progress)
            return _join(path, folder, header, style, blocks)
    except OSError as error:
        advice = "make room, and run the same again" if error.errno in FULL else "run the same again to go on"
        raise OSError(
            error.errno, f"{error.strerror or error}; what is finished is kept in {folder}: {advice}"
        ) from error


# ------------------------------------------------------------ before


def _cut(levels: Sequence[Level], episodes: int, first_seed: int, folder: Path) -> Iterator[Block]:
    """The blocks of all levels, in the order of the file."""
    for number, level in enumerate(levels):
        for part, done in enumerate(range(0, episodes, BLOCK)):
            file = folder / f"{number:03}-{part:06}.parquet"
            yield Block(level, first_seed + done, min(BLOCK, episodes - done), file)


def _recognize(path: Path, folder: Path, header: Header, style: str, blocks: list[Block]) -> Collection:
    """What collecting would have made, if it is there already."""
    with DemoFile(path) as file:
        source = file.header.sources[0] if file.header.sources else None
        same = (
            source is not None
            and len(file.header.sources) == 1
            and (file.rules, file.header.levels) == (header.rules, header.levels)
            and (source.origin, source.style, source.version) == ("expert", style, EXPERT_VERSION)
            and _same_seeds(file, source, blocks)
        )
    if source is None or not same:
        raise DemoFileError(f"{path} exists and holds other demonstrations; choose another name, or move it away")
    shutil.rmtree(folder, ignore_errors=True)
    return Collection(path, source.rows, source.unsolved)


def _same_seeds(file: DemoFile, source: Source, blocks: list[Block]) -> bool:
    """Whether a file, with what it left out, is about the seeds of these blocks."""
    for name in file.levels:
        wanted = [np.arange(b.first_seed, b.first_seed + b.count) for b in blocks if b.level.name == name]
        held = [group.seeds[group.levels == file.levels.index(name)] for group in file.groups(missions=False)]
        seeds = np.sort(np.concatenate([*held, np.array(source.unsolved.get(name, []), dtype=np.int64)]))
        if not np.array_equal(seeds, np.concatenate(wanted)):
            return False
    return True


@contextlib.contextmanager
def _begin(folder: Path, order: dict[str, object]) -> Iterator[None]:
    """The folder for parts is there, belongs to this order, and to this process alone while the context lasts."""
    manifest = folder / MANIFEST
    if manifest.exists():
        _check_order(folder, json.loads(manifest.read_text()), json.loads(json.dumps(order)))
    elif folder.exists() and any(not file.name.endswith(".tmp") for file in folder.iterdir()):
        raise DemoFileError(f"{folder} is needed for unfinished work, but holds something else; move it away")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(manifest) as temporary:
            temporary.write_text(json.dumps(order, indent=1))
    with _alone(manifest):
        for rest in folder.glob("*.tmp"):
            rest.unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def _alone(manifest: Path) -> Iterator[None]:
    """Nobody else works on the same file; the operating system lifts the ban however a process ends."""
    if os.name != "posix":
        yield
        return
    import fcntl

    with open(manifest, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFileError(f"another process is collecting into {manifest.parent}; wait for it") from None
        yield


def _check_order(folder: Path, before: dict[str, object], now: dict[str, object]) -> None:
    """Raises if unfinished work was begun with other arguments."""
    differing = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if differing:
        raise DemoFileError(
            f"{folder} holds unfinished work on another order ({_describe(differing, before, now)}); finish that "
            f"first, with the same arguments as then, or delete the folder"
        )


def _describe(keys: list[str], before: dict[str, object], now: dict[str, object]) -> str:
    """What differs, in words; headers are too long to show."""
    return ", ".join(
        "its levels or rules differ" if key == "header" else f"{key} was {before.get(key)!r}, is {now.get(key)!r}"
        for key in keys
    )


# ------------------------------------------------------------ the work


def demonstrate_block(level: Level, first_seed: int, count: int, rules: Rules, style: Style) -> tuple[Demos, list[int]]:
    """The expert's demonstrations of some consecutive seeds, and the seeds on which it did not succeed."""
    engine = Engine(level, count, rules=rules)
    engine.reset(first_seed)
    seeds, levels = first_seed + np.arange(count, dtype=np.int64), np.zeros(count, dtype=np.int32)
    actions, lengths, rewards = ExpertBatch(engine, style).demonstrate()
    rows, unsolved = np.flatnonzero(rewards > 0), seeds[rewards <= 0].tolist()
    return pack_demos([level.name], levels, seeds, engine.missions, actions, lengths, rewards, rows), unsolved


def _finish(block: Block, header: Header, style: Style) -> int:
    """Works through a block, and puts it on the disk; returns its number of seeds."""
    demos, unsolved = demonstrate_block(block.level, block.first_seed, block.count, header.rules, style)
    with DemoWriter(block.file, header) as writer:
        writer.write(demos)
        writer.close(_source(len(demos), style, {block.level.name: unsolved}))
    return block.count


def _source(rows: int, style: str, unsolved: dict[str, list[int]]) -> Source:
    kept = {name: seeds for name, seeds in unsolved.items() if seeds}
    return Source("expert", rows, style, EXPERT_VERSION, unsolved=kept)


def _fill(blocks: list[Block], header: Header, style: Style, threads: int, progress: Progress | None) -> None:
    """Finishes all blocks that are not on the disk yet."""
    total = sum(block.count for block in blocks)
    waiting = [block for block in blocks if not block.file.exists()]
    done = total - sum(block.count for block in waiting)
    report = progress or (lambda done, total: None)
    report(done, total)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_finish, block, header, style) for block in waiting]
        try:
            for job in as_completed(jobs):
                done += job.result()
                report(done, total)
        except BaseException:
            # Blocks under way are finished; they are whole, and need not be made again.
            pool.shutdown(wait=True, cancel_futures=True)
            raise


# ------------------------------------------------------------ after


def _join(path: Path, folder: Path, header: Header, style: Style, blocks: list[Block]) -> Collection:
    """Makes one file of all parts, and removes them."""
    unsolved: dict[str, list[int]] = {}
    with DemoWriter(path, header, folder / "whole.tmp") as writer:
        for block in blocks:
            with _telling_part(block.file), DemoFile(block.file) as part:
                for group in part.groups():
                    writer.write(group)
                for name, seeds in part.header.sources[0].unsolved.items():
                    unsolved.setdefault(name, []).extend(seeds)
        rows = writer.rows
        writer.close(_source(rows, style, unsolved))
    shutil.rmtree(folder, ignore_errors=True)
    return Collection(path, rows, unsolved)


@contextlib.contextmanager
def _telling_part(file: Path) -> Iterator[None]:
    """Says what to do about a part that the disk has damaged."""
    try:
        yield
    except DemoFileError as error:
        raise DemoFileError(f"{error}; delete this part ({file}) and run the same again, to make it anew") from None
