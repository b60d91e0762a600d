"""Checking a file against the world: every row is played again, and must come out as it says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from babyai.demos import kernels
from babyai.demos.packed import Demo, Demos, spell_missions
from babyai.demos.store import DemoFile, PathLike
from babyai.engine import Engine
from babyai.levels.catalog import Level, Rules, find_level
from babyai.world.state import ENDED


@dataclass(frozen=True)
class WrongRow:
    """A row that does not come out as it says."""

    row: int
    demo: Demo
    complaint: str

    def __str__(self) -> str:
        return f"row {self.row} (level {self.demo.level!r}, seed {self.demo.seed}) is wrong: {self.complaint}"


def verify(path: PathLike, *, threads: int = 1, progress: Callable[[int, int], None] | None = None) -> WrongRow | None:
    """Plays every demonstration of a file again; returns the first that is wrong, or None.

    Args:
        path: The file.
        threads: How many threads play.
        progress: Is called with the rows done and the rows in all.

    Raises:
        DemoFileError: The file is damaged, or was made under other rules.
    """
    with DemoFile(path) as file:
        levels = [find_level(name, file.rules) for name in file.levels]
        done = 0
        for group in file.groups():
            wrong = check_demos(group, levels, file.rules, threads)
            if wrong is not None:
                row, complaint = wrong
                return WrongRow(done + row, group[row], complaint)
            done += len(group)
            if progress is not None:
                progress(done, len(file))
    return None


def check_demos(demos: Demos, levels: list[Level], rules: Rules, threads: int = 1) -> tuple[int, str] | None:
    """The first of some demonstrations that does not come out as it says, and why; or None.

    Args:
        demos: Whose actions are all in 0..6.
        levels: Those that `demos.names` names.
        rules: Under which they were made.
        threads: How many threads play.
    """
    count = len(demos)
    if count == 0:
        return None
    engine = Engine(levels, count, rules=rules, threads=threads, assignment=demos.levels)
    engine.reset(demos.seeds)
    missions = spell_missions(engine.missions, np.arange(count))
    lengths, rewards = np.empty(count, dtype=np.int64), np.empty(count)
    engine.run_shards(
        kernels.replay_batch,
        lambda _, first, last: (engine.kernel_worlds, demos.actions, demos.offsets, lengths, rewards, first, last),
    )
    engine.close()
    over = engine.worlds.status == ENDED
    named = np.asarray(pc.call_function("equal", [missions, demos.missions]).to_numpy(zero_copy_only=False), dtype=bool)
    wrong = ~(named & over & (lengths == demos.lengths) & (rewards == demos.rewards))
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    if not named[row]:
        return row, f"its mission is {demos[row].mission!r}, and the level makes {missions[row].as_py()!r} of its seed"
    if not over[row]:
        return row, f"its episode goes on after its {lengths[row]} actions"
    if lengths[row] != demos.lengths[row]:
        return row, f"its episode is over after {lengths[row]} of its {demos.lengths[row]} actions"
    return row, f"its reward is {demos.rewards[row]}, and its actions earn {rewards[row]}"


def play_demo(demo: Demo, rules: Rules, view_size: int = 7) -> Iterator[Engine]:
    """Plays a demonstration step by step: yields the engine of one world as it begins and after each action."""
    engine = Engine(demo.level, rules=rules, view_size=view_size)
    engine.reset([demo.seed])
    yield engine
    for action in demo.actions.tolist():
        engine.step([action])
        yield engine
