"""The commands `babyai demos ...`. Each imports what it needs when it runs."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import tyro

Progress = Callable[[int, int], None]
# Seconds between two lines of progress where there is no terminal to draw a bar in.
LINE_INTERVAL = 10.0


def collect(
    *,
    level: tuple[str, ...],
    out: Path,
    episodes: int = 1000,
    first_seed: int = 0,
    rules: Literal["paper", "minigrid"] = "paper",
    style: Literal["paper", "teacher"] = "paper",
    threads: int | None = None,
) -> None:
    """Collect demonstrations by the expert. Stopped at any moment, the same command goes on where it was.

    Args:
        level: One level or several; `babyai levels` lists them.
        out: The file to make, Parquet.
        episodes: How many seeds of each level.
        first_seed: The first of them; those from 10^9 on are kept for validation and test.
        rules: The world of the paper, or Minigrid 3.2.0 with its defects.
        style: How the expert plans.
        threads: How many threads work; one a core unless told.
    """
    from babyai.demos import collect as collecting

    screen = console()
    try:
        with progress("collecting", "demos") as report:
            result = collecting.collect(
                level, episodes, first_seed, out, rules=rules, style=style, threads=threads, progress=report
            )
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on where this one was")
    size = out.stat().st_size
    screen.print(f"{result.demos:,} demonstrations in {out}: {size:,} bytes, {size / max(1, result.demos):.1f} each")
    for name, seeds in result.unsolved.items():
        shown = ", ".join(map(str, seeds[:10])) + (", ..." if len(seeds) > 10 else "")
        screen.print(f"without success on {len(seeds):,} seeds of {name}: {shown}")


def show(
    file: tyro.conf.Positional[Path], *, rows: tuple[int, ...] = (0,), steps: bool = False, delay: float = 0.0
) -> None:
    """Show what a file of demonstrations holds, and draw a few of its episodes.

    Args:
        file: The file.
        rows: Which episodes to draw, from 0 on.
        steps: Draw every step, not only the first and the last picture.
        delay: Seconds to wait after each step that is drawn.
    """
    from rich.table import Table

    from babyai.demos import show as showing
    from babyai.demos.header import DemoFileError, check_rules
    from babyai.demos.store import DemoFile

    screen = console()
    with DemoFile(file, replayable=False) as demos:
        size = file.stat().st_size
        screen.print(f"{file}: {len(demos):,} demonstrations, {size:,} bytes, rules {demos.rules!r}")
        for source in demos.header.sources:
            left_out = sum(map(len, source.unsolved.values()))
            screen.print(
                f"  {source.rows:,} by {source.origin} {source.style} (babyai {source.babyai})"
                + (f", {left_out:,} seeds without success" if left_out else "")
            )
        table = Table("level", "demos", "steps", "longest", "reward", box=None, header_style="bold")
        for row in showing.summarize(demos):
            steps_of = f"{row.mean_length:.1f} ± {row.std_length:.1f}"
            table.add_row(row.level, f"{row.count:,}", steps_of, str(row.longest), f"{row.mean_reward:.3f}")
        screen.print(table)
        try:
            check_rules(demos.header, str(file))
        except DemoFileError as error:
            screen.print(f"\n{error}")
            return
        for row in rows:
            if row < len(demos):
                _draw(screen, demos[row], row, demos.rules, steps, delay)


def _draw(screen: Any, demo: Any, row: int, rules: Any, every_step: bool, delay: float) -> None:
    """Draws one episode."""
    from babyai.demos.show import draw_steps, words_of_actions

    screen.print(f"\nrow {row}: {demo.level}, seed {demo.seed}: {demo.mission}")
    screen.print(f"{words_of_actions(demo.actions)}\n")
    for step, picture in enumerate(draw_steps(demo, rules, color=screen.is_terminal)):
        if every_step or step in (0, len(demo)):
            # Not through rich, which would read the brackets of a layout as its own.
            screen.file.write(picture + "\n")
            time.sleep(delay if every_step else 0.0)


def verify(file: tyro.conf.Positional[Path], *, threads: int = 1) -> None:
    """Replay every demonstration of a file, and report the first that does not come out as it says.

    Args:
        file: The file.
        threads: How many threads play.
    """
    from babyai.demos import verify as verifying

    with progress("verifying", "demos") as report:
        wrong = verifying.verify(file, threads=threads, progress=report)
    if wrong is not None:
        sys.exit(f"babyai: {file}: {wrong}")
    console().print(f"{file}: every demonstration comes out as it says")


def merge(files: tyro.conf.Positional[tuple[Path, ...]], *, out: Path, keep_duplicates: bool = False) -> None:
    """Make one file of several, which must have been made under the same rules.

    Args:
        files: The files, in the order in which their rows shall come.
        out: The file to make.
        keep_duplicates: Let a seed of a level occur more than once.
    """
    from babyai.demos import merge as merging

    count = merging.merge(files, out, keep_duplicates=keep_duplicates)
    console().print(f"{count:,} demonstrations in {out}")


def export(
    file: tyro.conf.Positional[Path],
    *,
    id: str,
    to: Literal["minari"] = "minari",
    root: Path | None = None,
    demos: int | None = None,
    author: str = "babyai",
) -> None:
    """Make a dataset with observations that other libraries read.

    Args:
        file: The file of demonstrations.
        id: The dataset's id, such as babyai/BossLevel/expert-v0.
        to: For whom: Minari, in HDF5.
        root: The folder for datasets; Minari's own unless told.
        demos: How many, from the first on; all unless told.
        author: Who made the demonstrations.
    """
    from babyai.demos.export import export_minari

    try:
        folder = export_minari(file, id, root=root, demos=demos, author=author)
    except ModuleNotFoundError as error:
        sys.exit(f"babyai: {error}")
    console().print(f"written: {folder}; open it with minari.load_dataset({id!r})")


def record(
    level: tyro.conf.Positional[str],
    *,
    out: Path,
    seed: int | None = None,
    rules: Literal["paper", "minigrid"] = "paper",
    person: str = "",
) -> None:
    """Play in the terminal; every mission carried out is added to a file as a person's demonstration.

    Args:
        level: The name of a level.
        out: The file; it is made if it does not exist.
        seed: Of the first mission; unless told, the one after those in the file.
        rules: The world of the paper, or Minigrid 3.2.0 with its defects.
        person: Your name, if the file shall tell it.
    """
    from babyai.demos.record import Recorder, next_seed, play_in_terminal, terminal_keys
    from babyai.levels.catalog import find_level

    if not sys.stdin.isatty():
        sys.exit("babyai: recording needs a terminal to read keys from")

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    first = next_seed(out, find_level(level, rules)) if seed is None else seed
    recorder = Recorder(level, first, rules)
    with terminal_keys(sys.stdin.fileno()) as keys:
        saved = play_in_terminal(recorder, out, keys, write, person)
    console().print(f"{saved} added to {out}" if saved else "nothing was recorded")


COMMANDS = {
    "collect": collect,
    "show": show,
    "verify": verify,
    "merge": merge,
    "export": export,
    "record": record,
}


def make_app() -> tyro.extras.SubcommandApp:
    """All of them as one group of commands."""
    app = tyro.extras.SubcommandApp()
    for name, command in COMMANDS.items():
        app.command(name=name)(command)
    return app


# ------------------------------------------------------------ what they share


def console() -> Any:
    """Where commands print: whole lines, without markup."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False, markup=False)


@contextlib.contextmanager
def progress(doing: str, things: str) -> Iterator[Progress]:
    """A function that shows how far the work is: a bar in a terminal, now and then a line elsewhere."""
    screen = console()
    if not screen.is_terminal:
        yield _Lines(doing, things, screen.print)
        return
    from rich import progress as bars

    with bars.Progress(
        *("{task.description}", bars.BarColumn(), bars.MofNCompleteColumn(), "{task.fields[rate]}"),
        *(bars.TimeRemainingColumn(), "left"),
        console=screen,
        transient=True,
    ) as bar:
        task = bar.add_task(doing, total=None, rate="")
        clock = _Clock()

        def report(done: int, total: int) -> None:
            rate = clock.rate(done)
            bar.update(task, completed=done, total=total, rate=f"{rate:,.0f} {things}/s" if rate else "")

        yield report


class _Clock:
    """How fast work goes that was under way when it was first reported."""

    def __init__(self) -> None:
        self._begun: tuple[float, int] | None = None

    def rate(self, done: int) -> float:
        """Things per second since the first call; 0 at that."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, done
        begun, before = self._begun
        return (done - before) / (now - begun) if now > begun else 0.0


class _Lines:
    """Progress as plain lines, not too many."""

    def __init__(self, doing: str, things: str, write: Callable[[str], object]) -> None:
        self._doing, self._things, self._write = doing, things, write
        self._clock, self._said = _Clock(), time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        rate = self._clock.rate(done)
        now = time.monotonic()
        if now - self._said < LINE_INTERVAL or not rate:
            return
        self._said = now
        left = (total - done) / rate
        self._write(f"{self._doing}: {done:,} of {total:,}, {rate:,.0f} {self._things}/s, {left:,.0f} s left")
