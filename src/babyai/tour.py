"""What `make quickstart` shows: three worlds, a random agent in each of the paper's levels, and its speed."""

import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from babyai.engine import Engine
from babyai.levels.catalogue import PAPER_LEVELS
from babyai.render.text import describe_view, draw_text
from babyai.world.language import words_of

NUM_WORLDS = 1024
NUM_STEPS = 500


def run() -> None:
    """Shows the platform on the terminal, in about ten seconds once it is compiled."""
    console = Console()
    _show_worlds(console)
    table = Table("level", "episodes ended", "by success", "steps per CPU-second", box=None, header_style="bold")
    for name in track(PAPER_LEVELS, "A random agent plays the 19 levels", console=console):
        table.add_row(name, *_play(name))
    console.print(table)
    _compare(console)


def _show_worlds(console: Console) -> None:
    for name in ("GoToLocal", "PutNext", "BossLevel"):
        engine = Engine(name)
        engine.reset([0])
        console.rule(f"[bold]{name}[/bold], seed 0")
        # The drawing brings its own colours, which rich must not touch.
        print(draw_text(engine.worlds[0], colour=console.is_terminal))
        console.print(f"[bold]mission[/bold]: {words_of(engine.missions[0])}")
        console.print(f"[bold]the agent[/bold]: {'; '.join(describe_view(engine.images[0])[:3])}; ...\n")


def _play(name: str) -> tuple[str, str, str]:
    """Lets a random agent play a level; returns how many episodes ended, how many with success, and the speed."""
    engine = Engine(name, NUM_WORLDS)
    engine.reset(0)
    actions = np.random.default_rng(0).integers(0, 7, (NUM_STEPS, NUM_WORLDS))
    # The first step loads its machine code, which is not what we measure.
    engine.step(actions[0])
    engine.reset_over()
    episodes = successes = 0
    start = time.process_time()
    for chosen in actions:
        engine.step(chosen)
        successes += int(np.count_nonzero(engine.rewards))
        episodes += int(np.count_nonzero(engine.reset_over()))
    rate = NUM_STEPS * NUM_WORLDS / (time.process_time() - start)
    return f"{episodes:,}", f"{successes:,}", f"{rate:,.0f}"


def _compare(console: Console) -> None:
    """Measures Minigrid beside us, where it is installed."""
    try:
        import contextlib
        import io

        import gymnasium
        import minigrid  # noqa: F401
    except ModuleNotFoundError:
        console.print("To measure Minigrid beside it: pip install minigrid==3.2.0, and run this again.")
        return
    env = gymnasium.make("BabyAI-GoToLocal-v0")
    with contextlib.redirect_stdout(io.StringIO()):
        env.reset(seed=0)
        start = time.process_time()
        actions = np.random.default_rng(0).integers(0, 7, 3000)
        for action in actions:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
    theirs = len(actions) / (time.process_time() - start)
    ours = float(_play("GoToLocal")[2].replace(",", ""))
    console.print(
        f"\nGoToLocal on this machine, one core: Minigrid {theirs:,.0f} steps per CPU-second, "
        f"babyai {ours:,.0f}: [bold]{ours / theirs:,.0f} times[/bold] as many."
    )
