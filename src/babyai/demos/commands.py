"""The commands `babyai demos ...`. Each imports what it needs when it runs, so that `--help` is fast."""

import sys
import time
from pathlib import Path
from typing import Any, Literal

import tyro

from babyai.console import console, printable, progress


def collect(
    *,
    levels: str,
    out: Path,
    episodes: int = 1000,
    first_seed: int = 0,
    rules: Literal["paper", "minigrid"] = "paper",
    style: Literal["paper", "teacher"] = "paper",
    threads: int | None = None,
    cluster: str | None = None,
) -> None:
    """Collect demonstrations of the expert. If interrupted, run the same command again to resume.

    Args:
        levels: Level, or several separated by commas (`babyai levels` lists them), `all` for the paper's nineteen, or
            your own, `file.py:Level`.
        out: Output file (Parquet).
        episodes: Number of episodes (seeds) per level.
        first_seed: Random seed of the first episode. Seeds from 10^9 on are reserved for validation and test.
        rules: Rule set: the paper's world, or Minigrid 3.2.0 including its defects.
        style: Style of the expert: the paper's planner, or the teacher for interactive imitation learning.
        threads: Number of threads; None means one per core.
        cluster: Ray cluster to collect on: its address (host:port), or auto; None means this machine.
    """
    from babyai.demos import collect as collecting
    from babyai.envs.custom_levels import load_levels

    screen = console()
    chosen = load_levels(levels, rules)
    try:
        with progress("collecting", "demos") as report:
            result = collecting.collect(
                *(chosen, episodes, first_seed, out),
                rules=rules,
                style=style,
                threads=threads,
                cluster=cluster,
                progress=report,
            )
    except KeyboardInterrupt:
        sys.exit("\nstopped; run the same command again to resume")
    size = out.stat().st_size
    screen.print(f"{result.demos:,} demonstrations in {out}: {size:,} bytes, {size / max(1, result.demos):.1f} each")
    for name, seeds in result.unsolved.items():
        shown = ", ".join(map(str, seeds[:10])) + (", ..." if len(seeds) > 10 else "")
        screen.print(f"failed on {len(seeds):,} seeds of {name}: {shown}")


def show(
    file: tyro.conf.Positional[Path],
    *,
    rows: tuple[int, ...] | None = None,
    steps: bool = False,
    delay: float = 0.0,
    levels: str | None = None,
) -> None:
    """Show statistics of a file of demonstrations, and draw some of its episodes.

    Args:
        file: File of demonstrations.
        rows: Rows of the episodes to draw, numbered from 0; default: the first.
        steps: Draw every step, instead of only the first and the last state.
        delay: Delay in seconds after each step drawn.
        levels: Custom levels of the file, `file.py:Level`, separated by commas.
    """
    from rich.table import Table

    from babyai.demos import show as showing
    from babyai.demos.header import DemoFileError, check_rules
    from babyai.demos.store import DemoFile

    screen = console()
    _load_custom_levels(levels)
    with DemoFile(file, replayable=False) as demos:
        chosen = range(min(1, len(demos))) if rows is None else rows
        for row in chosen:
            if not 0 <= row < len(demos):
                raise ValueError(f"{file} has rows 0 to {len(demos) - 1}, not {row}")
        size = file.stat().st_size
        screen.print(f"{file}: {len(demos):,} demonstrations, {size:,} bytes, rules {demos.rules!r}")
        for source in demos.header.sources:
            failures = sum(map(len, source.unsolved.values()))
            screen.print(
                f"  {source.rows:,} by {source.origin} {printable(source.style)} (babyai {printable(source.babyai)})"
                + (f", failed on {failures:,} seeds" if failures else "")
            )
        table = Table("level", "demos", "steps", "longest", "reward", box=None, header_style="bold")
        for row in showing.summarize(demos):
            length = f"{row.mean_length:.1f} ± {row.std_length:.1f}"
            table.add_row(printable(row.level), f"{row.count:,}", length, str(row.longest), f"{row.mean_reward:.3f}")
        screen.print(table)
        try:
            check_rules(demos.header, str(file))
        except DemoFileError as error:
            screen.print(printable(f"\n{error}"))
            return
        for row in chosen:
            _draw(screen, demos[row], row, demos.rules, steps, delay)


def _draw(screen: Any, demo: Any, row: int, rules: Any, every_step: bool, delay: float) -> None:
    """Draws one episode."""
    from babyai.demos.show import draw_steps, format_actions

    screen.print(f"\nrow {row}: {demo.level}, seed {demo.seed}: {printable(demo.mission)}")
    screen.print(f"{format_actions(demo.actions)}\n")
    for step, text in enumerate(draw_steps(demo, rules, color=screen.is_terminal)):
        if every_step or step in (0, len(demo)):
            # Not through rich, which would interpret the brackets in a layout.
            screen.file.write(text + "\n")
            time.sleep(delay if every_step else 0.0)


def verify(file: tyro.conf.Positional[Path], *, threads: int = 1, levels: str | None = None) -> None:
    """Replay every demonstration of a file and report the first that does not match its row.

    Args:
        file: File of demonstrations.
        threads: Number of threads.
        levels: Custom levels of the file, `file.py:Level`, separated by commas.
    """
    from babyai.demos import verify as verifying

    _load_custom_levels(levels)
    with progress("verifying", "demos") as report:
        mismatch = verifying.verify(file, threads=threads, progress=report)
    if mismatch is not None:
        sys.exit(printable(f"babyai: {file}: {mismatch}"))
    console().print(f"{file}: all demonstrations are correct")


def merge(files: tyro.conf.Positional[tuple[Path, ...]], *, out: Path, keep_duplicates: bool = False) -> None:
    """Merge several files of demonstrations, which must have the same rules, into one.

    Args:
        files: Files of demonstrations; their order is kept.
        out: Output file.
        keep_duplicates: Accept several demonstrations with the same level and seed.
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
    levels: str | None = None,
) -> None:
    """Export a file of demonstrations as a dataset with observations, for other libraries.

    Args:
        file: File of demonstrations.
        id: Dataset id, such as babyai/BossLevel/expert-v0.
        to: Format: Minari (HDF5).
        root: Root folder of datasets; None means Minari's.
        demos: Number of demonstrations to export, from the first row on; None means all.
        author: Author of the demonstrations.
        levels: Custom levels of the file, `file.py:Level`, separated by commas.
    """
    from babyai.demos.export import export_minari

    _load_custom_levels(levels)
    try:
        folder = export_minari(file, id, root=root, demos=demos, author=author)
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None
    console().print(f"written: {folder}; open it with minari.load_dataset({id!r})")


def record(
    level: tyro.conf.Positional[str],
    *,
    out: Path,
    seed: int | None = None,
    rules: Literal["paper", "minigrid"] = "paper",
    person: str = "",
) -> None:
    """Record your own demonstrations: play in the terminal, and each successful episode is added to a file.

    Args:
        level: Level; `babyai levels` lists them. Or a level of your own, `file.py:Level`.
        out: Output file; created if it does not exist.
        seed: Random seed of the first episode; None means the one after the last in the file.
        rules: Rule set: the paper's world, or Minigrid 3.2.0 including its defects.
        person: Name of the person, stored in the file.
    """
    from babyai.demos.record import Recorder, next_seed, play_in_terminal, terminal_keys
    from babyai.envs.custom_levels import load_level

    if not sys.stdin.isatty():
        sys.exit("babyai: recording needs a terminal to read keys from")

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    chosen = load_level(level, rules)
    first = next_seed(out, chosen) if seed is None else seed
    recorder = Recorder(chosen, first, rules)
    with terminal_keys(sys.stdin.fileno()) as keys:
        saved = play_in_terminal(recorder, out, keys, write, person)
    console().print(f"{saved} added to {out}" if saved else "nothing was recorded")


def _load_custom_levels(levels: str | None) -> None:
    """Registers the levels of your own that a file has."""
    from babyai.envs.custom_levels import load_levels

    if levels is not None:
        load_levels(levels)


COMMANDS = {
    "collect": collect,
    "show": show,
    "verify": verify,
    "merge": merge,
    "export": export,
    "record": record,
}


def make_app() -> tyro.extras.SubcommandApp:
    """The commands as one group."""
    app = tyro.extras.SubcommandApp()
    for name, command in COMMANDS.items():
        app.command(name=name)(command)
    return app
