"""The command `babyai`. Commands import what they need when they run, so that `--help` is fast."""

import logging
import os
import sys
from importlib.metadata import version
from typing import Literal

import tyro

from babyai.console import printable
from babyai.demos import commands as demos
from babyai.evaluation.commands import evaluate
from babyai.evaluation.watch import watch
from babyai.studies import commands as studies
from babyai.training import commands as training
from babyai.web.commands import play, runs

DESCRIPTION = "BabyAI 1.1: grounded language learning in a gridworld. Also: --version."


def levels(*, paper: bool = False) -> None:
    """List the levels: name, size, step limit, and the task.

    Args:
        paper: Only the paper's 19 levels.
    """
    from rich.console import Console
    from rich.table import Table

    from babyai.levels.catalog import LEVELS, PAPER_LEVELS

    table = Table("level", "rooms", "cells", "step limit", "task", box=None, header_style="bold")
    for level in LEVELS.values():
        if paper and level.name not in PAPER_LEVELS:
            continue
        per_trip = level.room_size**2 * level.rows * level.columns
        limit = str(level.max_steps) if level.max_steps else f"{per_trip} per trip"
        rooms = f"{level.rows} x {level.columns}"
        table.add_row(level.name, rooms, f"{level.width} x {level.height}", limit, level.task)
    Console().print(table)


def show(
    level: tyro.conf.Positional[str],
    *,
    seed: int = 0,
    rules: Literal["paper", "minigrid"] = "paper",
    mission: str | None = None,
    png: str | None = None,
) -> None:
    """Show an episode of a level: the world, the mission, and what the agent sees.

    Args:
        level: Level; `babyai levels` lists them. Or a level of your own, `file.py:Level`.
        seed: Random seed of the episode.
        rules: Rule set: the paper's world, or Minigrid 3.2.0 including its defects.
        mission: Mission in the Baby Language, instead of the level's own.
        png: PNG file to write a picture of the world to.
    """
    from babyai.engine import Engine
    from babyai.envs.custom_levels import load_level
    from babyai.render.frame import draw_world
    from babyai.render.text import draw_text
    from babyai.text.view import describe_view
    from babyai.world.language import detokenize

    if png is not None and not png.lower().endswith(".png"):
        raise ValueError(f"{png} must end in .png: that is the format of the picture")
    engine = Engine(load_level(level, rules), rules=rules)
    engine.reset([seed])
    if mission is not None:
        engine.instruct(0, mission)
    world = engine.worlds[0]
    print(draw_text(world, color=sys.stdout.isatty()))
    print(f"\nmission: {detokenize(engine.missions[0])}\nlimit:   {world.max_steps} steps\n")
    print("\n".join(describe_view(engine.images[0])))
    if png is not None:
        from babyai.render.picture import save_png

        save_png(draw_world(world, view=engine.images[0]), png)
        print(f"\nwritten: {png}")


def compile_kernels() -> None:
    """Compile everything for this machine now, into the cache: for container images, clusters and impatient people."""
    from babyai.precompile import compile_all

    print(compile_all())


def quickstart() -> None:
    """Train an agent from scratch, evaluate it and film it; a few minutes on two cores."""
    from babyai.quickstart import run

    run()


def make_app() -> tyro.extras.SubcommandApp:
    """All commands."""
    app = tyro.extras.SubcommandApp()
    for command in (levels, show, play, watch, runs, quickstart, evaluate, training.resume):
        app.command(name=command.__name__)(command)
    app.command(name="compile")(compile_kernels)
    app.command(demos.make_app(), name="demos", help="Collect, show, verify, merge, export and record demonstrations.")
    app.command(training.make_app(), name="train", help="Train agents: imitation learning, DAgger, PPO.")
    app.command(studies.make_app(), name="study", help="Measure the paper's tables, and report them.")
    return app


def main() -> None:
    """Runs the command line."""
    # Waiting threads of torch must not spin: next to other programs, that is ten times slower. OpenMP reads the setting
    # when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.argv[1:] == ["--version"]:
        print(f"babyai {version('babyai')}")
        return
    try:
        make_app().cli(prog="babyai", description=DESCRIPTION)
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Output that is still buffered when Python exits goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit("babyai: stopped")
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        # For those who look for a bug: logging.getLogger("babyai").setLevel("DEBUG").
        logging.getLogger("babyai").debug("the command failed", exc_info=True)
        sys.exit(f"babyai: {printable(str(error)) or type(error).__name__}")
    except Exception as error:
        # The compiler's complaint about a recipe of a user's has the file and the line; its traceback is all Numba's.
        if not type(error).__module__.startswith("numba."):
            raise
        sys.exit(f"babyai: a recipe could not be compiled: {printable(str(error)).strip()}")


if __name__ == "__main__":
    main()
