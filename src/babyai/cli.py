"""The command `babyai`. Every command imports what it needs when it runs, so that help comes at once."""

import os
import sys
from typing import Literal

import tyro

from babyai.demos import commands as demos
from babyai.evaluation.commands import evaluate
from babyai.training import commands as training


def levels(*, paper: bool = False) -> None:
    """List the levels: name, rooms, size, time limit.

    Args:
        paper: Only the nineteen levels of the paper.
    """
    from rich.console import Console
    from rich.table import Table

    from babyai.levels.catalog import LEVELS, PAPER_LEVELS

    table = Table("level", "rooms", "cells", "steps", "recipe", box=None, header_style="bold")
    for level in LEVELS.values():
        if paper and level.name not in PAPER_LEVELS:
            continue
        limit = str(level.max_steps) if level.max_steps else f"{level.room_size**2 * level.rows * level.columns} a trip"
        recipe = level.recipe if isinstance(level.recipe, str) else level.recipe.__name__
        table.add_row(level.name, f"{level.rows} x {level.columns}", f"{level.width} x {level.height}", limit, recipe)
    Console().print(table)


def show(
    level: tyro.conf.Positional[str],
    *,
    seed: int = 0,
    rules: Literal["paper", "minigrid"] = "paper",
    mission: str | None = None,
    png: str | None = None,
) -> None:
    """Show the world that a level makes of a seed, what the agent is told, and what it sees.

    Args:
        level: The name of a level; `babyai levels` lists them.
        seed: Any integer from 0 on.
        rules: The world of the paper, or Minigrid 3.2.0 with its defects.
        mission: Another instruction for the agent, in the Baby Language.
        png: Also write a picture of the world to this file.
    """
    from babyai.engine import Engine
    from babyai.render.frame import draw_world
    from babyai.render.text import describe_view, draw_text
    from babyai.world.language import words_of

    engine = Engine(level, rules=rules)
    engine.reset([seed])
    if mission is not None:
        engine.instruct(0, mission)
    world = engine.worlds[0]
    print(draw_text(world, color=sys.stdout.isatty()))
    print(f"\nmission: {words_of(engine.missions[0])}\nsteps:   at most {world.max_steps}\n")
    print("\n".join(describe_view(engine.images[0])))
    if png is not None:
        from babyai.render.picture import save_png

        save_png(draw_world(world, view=engine.images[0]), png)
        print(f"\nwritten: {png}")


def quickstart() -> None:
    """Train an agent from nothing, test it, and film it; a few minutes on two cores."""
    from babyai.tour import run

    run()


def main() -> None:
    """Runs the command line."""
    # Threads of torch that wait for each other shall not keep cores busy: beside other programs, that is ten times
    # slower. The setting is read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = sys.argv[1:]
    app = tyro.extras.SubcommandApp()
    for command in (levels, show, quickstart, evaluate):
        app.command(name=command.__name__)(command)
    app.command(demos.make_app(), name="demos", help="Collect, show, verify, merge, export and record demonstrations.")
    try:
        train = training.make_app(words[1:] if words[:1] == ["train"] else ())
        app.command(train, name="train", help="Train agents: from demonstrations, advice or reward.")
        app.cli(prog="babyai", description="BabyAI 1.1: grounded language learning in a gridworld, compiled.")
    except BrokenPipeError:
        # Whoever reads along (`| head`) has seen enough. What is still to be written when Python ends goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        sys.exit(f"babyai: {error}")


if __name__ == "__main__":
    main()
