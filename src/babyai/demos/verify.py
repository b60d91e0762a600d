"""Verification: replays every row of a file and compares mission, length and reward."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from babyai.atomic_io import PathLike
from babyai.demos import kernels
from babyai.demos.header import DemoFileError
from babyai.demos.packed import Demo, Demos, WrongRowError, spell_missions
from babyai.demos.store import DemoFile
from babyai.engine import Engine
from babyai.levels.catalog import Level, Rules, find_level
from babyai.world.state import ENDED


@dataclass(frozen=True)
class WrongRow:
    """A row whose replay does not match it."""

    row: int
    demo: Demo
    problem: str

    def __str__(self) -> str:
        return f"row {self.row} (level {self.demo.level!r}, seed {self.demo.seed}) is wrong: {self.problem}"


def verify(path: PathLike, *, threads: int = 1, progress: Callable[[int, int], None] | None = None) -> WrongRow | None:
    """Replays every demonstration of a file; returns the first wrong row, or None.

    Args:
        path: File of demonstrations.
        threads: Number of threads.
        progress: Called with the number of rows done and their total.

    Raises:
        DemoFileError: The file is damaged, or was recorded with other rules.
        WrongRowError: The first wrong row is malformed.
    """
    with DemoFile(path) as file:
        levels = [find_level(name, file.rules) for name in file.levels]
        for number in range(file.num_groups):
            malformed = None
            try:
                group = file.read_group(number)
            except WrongRowError as error:
                # The rows before it come first.
                malformed = error
                group = file.read_group(number, rows=error.row - file.first_row(number))
            wrong = check_demos(group, levels, file.rules, threads)
            if wrong is not None:
                row, problem = wrong
                return WrongRow(file.first_row(number) + row, group[row], problem)
            if malformed is not None:
                raise malformed
            if progress is not None:
                progress(file.first_row(number + 1), len(file))
    return None


def check_demos(demos: Demos, levels: list[Level], rules: Rules, threads: int = 1) -> tuple[int, str] | None:
    """The index of the first wrong demonstration and the problem with it, or None.

    Args:
        demos: Demonstrations whose actions are all in 0..6.
        levels: The levels named in `demos.names`.
        rules: Rule set of the demonstrations.
        threads: Number of threads.
    """
    count = len(demos)
    if count == 0:
        return None
    engine = Engine(levels, count, rules=rules, threads=threads, assignment=demos.levels)
    engine.reset(demos.seeds)
    missions = spell_missions(engine.missions, np.arange(count))
    lengths = np.empty(count, dtype=np.int64)
    rewards = np.empty(count)
    engine.run_shards(
        kernels.replay_batch,
        lambda _, first, last: (engine.kernel_worlds, demos.actions, demos.offsets, lengths, rewards, first, last),
    )
    engine.close()
    ended = engine.worlds.status == ENDED
    same_mission = pc.call_function("equal", [missions, demos.missions]).to_numpy(zero_copy_only=False).astype(bool)
    wrong = ~(same_mission & ended & (lengths == demos.lengths) & (rewards == demos.rewards))
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    if not same_mission[row]:
        return row, f"its mission is {demos[row].mission!r}, but its seed gives {missions[row].as_py()!r}"
    if not ended[row]:
        return row, f"its episode is not over after its {lengths[row]} actions"
    if lengths[row] != demos.lengths[row]:
        return row, f"its episode is over after {lengths[row]} of its {demos.lengths[row]} actions"
    return row, f"its reward is {demos.rewards[row]}, but its actions earn {rewards[row]}"


def play_demo(demo: Demo, rules: Rules, view_size: int = 7) -> Iterator[Engine]:
    """Replays a demonstration: yields the engine, with one world, at the start and after each action.

    Raises:
        DemoFileError: There are actions after the end of the episode.
    """
    engine = Engine(demo.level, rules=rules, view_size=view_size)
    engine.reset([demo.seed])
    yield engine
    for action in demo.actions.tolist():
        if engine.done[0]:
            raise DemoFileError(
                f"the demonstration of level {demo.level!r}, seed {demo.seed}, goes on after its episode has ended; "
                f"`babyai demos verify` finds the first such row"
            )
        engine.step([action])
        yield engine
