"""Collecting demonstrations of the expert on all cores, or on a Ray cluster, resumable after any interruption.

The seeds of each level are split into blocks. Each finished block is a small file in the folder `<out>.parts`. When all
blocks are finished, they are joined into one file and the folder is removed. A block depends only on its level and its
seeds, so the result does not depend on the number of threads, on the cluster or on interruptions.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from babyai.atomic_io import DISK_FULL, PathLike, atomic_file
from babyai.cluster import check_version, connect, map_tasks, own_version
from babyai.demos.demonstrate import demonstrate
from babyai.demos.header import EXPERT_VERSION, DemoFileError, Header, Source, make_header
from babyai.demos.packed import Demos
from babyai.demos.store import DemoFile, DemoWriter
from babyai.engine import MAX_SEED, Engine, check_seed
from babyai.expert.expert import ExpertBatch, Style
from babyai.levels.catalog import Level, Rules, find_level

BLOCK = 8192
# More would take years, and a list of that many blocks all of the memory.
MAX_EPISODES = 10**9
MANIFEST = "manifest.json"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Block:
    """A range of seeds of one level, and the file for its demonstrations."""

    level: Level
    first_seed: int
    count: int
    file: Path


@dataclass(frozen=True)
class Collection:
    """The result of `collect`."""

    path: Path
    demos: int
    """Number of demonstrations."""
    unsolved: dict[str, list[int]]
    """Seeds on which the expert failed, by level."""


def collect(
    levels: str | Level | Sequence[str | Level],
    episodes: int,
    first_seed: int,
    out: PathLike,
    *,
    rules: Rules = "paper",
    style: Style = "paper",
    threads: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Collection:
    """Writes a file of the expert's demonstrations; resumes if an earlier call with the same arguments was interrupted.

    Args:
        levels: One level or several.
        episodes: Number of seeds per level.
        first_seed: First seed of each level. Seeds from 10^9 on are reserved for validation and test.
        out: File to write.
        rules: Rule set, "paper" or "minigrid".
        style: Style of the expert, "paper" or "teacher".
        threads: Number of threads (default: one per core).
        cluster: Address of a Ray cluster on which to collect, or "auto"; default: this machine.
        progress: Called with the number of seeds done and their total.

    Raises:
        DemoFileError: `out` exists with other demonstrations, or `<out>.parts` is the unfinished work of another call.
        ClusterError: The cluster cannot be reached, or a block failed there.
        OSError: The disk is full or cannot be written to.
    """
    chosen = [find_level(level, rules) for level in ([levels] if isinstance(levels, str | Level) else levels)]
    if episodes < 1 or not chosen:
        raise ValueError(f"need at least one level and one episode, got {len(chosen)} and {episodes}")
    if episodes > MAX_EPISODES:
        raise ValueError(f"episodes must be at most {MAX_EPISODES:,} per level, not {episodes:,}")
    if threads is not None and cluster is not None:
        raise ValueError("threads are for this machine; on a cluster, Ray decides how many blocks run in parallel")
    check_seed(min(check_seed(first_seed) + episodes - 1, MAX_SEED + 1))
    header = make_header(chosen, rules)
    if len(header.levels) < len(chosen):
        raise ValueError(f"each level must occur only once, not {', '.join(level.name for level in chosen)}")
    path = Path(out)
    folder = path.with_name(path.name + ".parts")
    blocks = list(_iter_blocks(chosen, episodes, first_seed, folder))
    manifest: dict[str, object] = {"header": asdict(header), "style": style, "version": EXPERT_VERSION}
    manifest |= {"episodes": episodes, "first_seed": first_seed, "block": BLOCK}
    if path.exists():
        return _check_existing(path, folder, header, style, blocks)
    try:
        with _open_parts(folder, manifest):
            _collect_blocks(blocks, header, style, threads or os.cpu_count() or 1, cluster, progress)
            return _join(path, folder, header, style, blocks)
    except OSError as error:
        advice = "free some space and run the same again" if error.errno in DISK_FULL else "run the same again"
        raise OSError(
            error.errno, f"{error.strerror or error}; finished blocks are kept in {folder}: {advice} to resume"
        ) from error


# ------------------------------------------------------------ blocks and the folder of parts


def _iter_blocks(levels: Sequence[Level], episodes: int, first_seed: int, folder: Path) -> Iterator[Block]:
    """Yields the blocks of all levels, in the order of the file."""
    for number, level in enumerate(levels):
        for part, done in enumerate(range(0, episodes, BLOCK)):
            file = folder / f"{number:03}-{part:06}.parquet"
            yield Block(level, first_seed + done, min(BLOCK, episodes - done), file)


def _check_existing(path: Path, folder: Path, header: Header, style: str, blocks: list[Block]) -> Collection:
    """The result, if the existing file is the one that would be collected; else raises DemoFileError."""
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
        raise DemoFileError(f"{path} already exists with other demonstrations; choose another name, or move it away")
    shutil.rmtree(folder, ignore_errors=True)
    return Collection(path, source.rows, source.unsolved)


def _same_seeds(file: DemoFile, source: Source, blocks: list[Block]) -> bool:
    """Whether the file's demonstrations and its unsolved seeds together cover exactly the seeds of these blocks."""
    for name in file.levels:
        expected = [np.arange(b.first_seed, b.first_seed + b.count) for b in blocks if b.level.name == name]
        solved = [group.seeds[group.levels == file.levels.index(name)] for group in file.groups(missions=False)]
        seeds = np.sort(np.concatenate([*solved, np.array(source.unsolved.get(name, []), dtype=np.int64)]))
        if not np.array_equal(seeds, np.concatenate(expected)):
            return False
    return True


@contextlib.contextmanager
def _open_parts(folder: Path, manifest: dict[str, object]) -> Iterator[None]:
    """Creates the folder of parts, or checks that it has the same manifest, and locks it for this process."""
    path = folder / MANIFEST
    if path.exists():
        _check_manifest(folder, _read_manifest(path), json.loads(json.dumps(manifest)))
    elif folder.exists() and any(not file.name.endswith(".tmp") for file in folder.iterdir()):
        raise DemoFileError(f"the folder {folder} is needed for finished blocks, but has other files; move it away")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1))
    with _lock(path):
        for leftover in folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def _lock(manifest: Path) -> Iterator[None]:
    """Holds an exclusive lock on the manifest. The operating system releases it however the process ends."""
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


def _read_manifest(path: Path) -> dict[str, object]:
    try:
        manifest = json.loads(path.read_text())
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict):
        raise DemoFileError(f"{path} is damaged; delete the folder {path.parent} to start again")
    return manifest


def _check_manifest(folder: Path, old: dict[str, object], new: dict[str, object]) -> None:
    """Raises DemoFileError if the unfinished work in the folder was started with other arguments."""
    differing = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if differing:
        raise DemoFileError(
            f"{folder} has unfinished work with other arguments ({_describe(differing, old, new)}); finish it with the "
            f"arguments it was started with, or delete the folder"
        )


def _describe(keys: list[str], old: dict[str, object], new: dict[str, object]) -> str:
    """The differences between two manifests. Headers are too long to show."""
    return ", ".join(
        "its levels or rules differ" if key == "header" else f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
        for key in keys
    )


# ------------------------------------------------------------ collecting


def demonstrate_block(level: Level, first_seed: int, count: int, rules: Rules, style: Style) -> tuple[Demos, list[int]]:
    """The expert's demonstrations of `count` consecutive seeds, and the seeds on which it failed."""
    engine = Engine(level, count, rules=rules)
    engine.reset(first_seed)
    demos, unsolved = demonstrate(ExpertBatch(engine, style))
    return demos, unsolved.tolist()


def _collect_block(block: Block, header: Header, style: Style) -> int:
    """Collects a block and writes its file; returns its number of seeds."""
    demos, unsolved = demonstrate_block(block.level, block.first_seed, block.count, header.rules, style)
    with DemoWriter(block.file, header) as writer:
        writer.write(demos)
        writer.close(_source(len(demos), style, {block.level.name: unsolved}))
    return block.count


def _source(rows: int, style: str, unsolved: dict[str, list[int]]) -> Source:
    nonempty = {name: seeds for name, seeds in unsolved.items() if seeds}
    return Source("expert", rows, style, EXPERT_VERSION, unsolved=nonempty)


def _collect_blocks(
    blocks: list[Block], header: Header, style: Style, threads: int, cluster: str | None, progress: Progress | None
) -> None:
    """Collects all blocks that have no file yet."""
    total = sum(block.count for block in blocks)
    missing = [block for block in blocks if not block.file.exists()]
    done = total - sum(block.count for block in missing)
    report = progress or (lambda done, total: None)
    report(done, total)
    if cluster is not None:
        for count in _collect_on_cluster(cluster, missing, header, style):
            done += count
            report(done, total)
        return
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_collect_block, block, header, style) for block in missing]
        try:
            for job in as_completed(jobs):
                done += job.result()
                report(done, total)
        except BaseException:
            # Wait for blocks that are being collected, so that they need not be collected again.
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _collect_on_cluster(address: str, blocks: list[Block], header: Header, style: Style) -> Iterator[int]:
    """Collects blocks on a Ray cluster and writes their files; yields each one's number of seeds when it arrives."""
    if not blocks:
        return
    with connect(address) as ray:
        tasks = (_RemoteBlock(block, header, style, own_version()) for block in blocks)
        for task, content in map_tasks(ray, _collect_remotely, tasks):
            with atomic_file(task.block.file) as temporary:
                temporary.write_bytes(content)
            yield task.block.count


@dataclass(frozen=True, eq=False)
class _RemoteBlock:
    """A block to collect on another machine."""

    block: Block
    header: Header
    style: Style
    version: str


def _collect_remotely(task: _RemoteBlock) -> bytes:
    """Collects a block on a node of the cluster; returns the content of its file."""
    check_version(task.version)
    with tempfile.TemporaryDirectory(prefix="babyai-") as folder:
        file = Path(folder) / task.block.file.name
        _collect_block(replace(task.block, file=file), task.header, task.style)
        return file.read_bytes()


# ------------------------------------------------------------ joining


def _join(path: Path, folder: Path, header: Header, style: Style, blocks: list[Block]) -> Collection:
    """Joins all blocks into one file and removes the folder of parts."""
    unsolved: dict[str, list[int]] = {}
    with DemoWriter(path, header, folder / "whole.tmp") as writer:
        for block in blocks:
            with _explain_damage(block.file), DemoFile(block.file) as part:
                for group in part.groups():
                    writer.write(group)
                for name, seeds in part.header.sources[0].unsolved.items():
                    unsolved.setdefault(name, []).extend(seeds)
        rows = writer.rows
        writer.close(_source(rows, style, unsolved))
    shutil.rmtree(folder, ignore_errors=True)
    return Collection(path, rows, unsolved)


@contextlib.contextmanager
def _explain_damage(file: Path) -> Iterator[None]:
    """Adds to the error about a damaged block what to do about it."""
    try:
        yield
    except DemoFileError as error:
        raise DemoFileError(f"{error}; delete {file} and run the same again to collect it again") from None
