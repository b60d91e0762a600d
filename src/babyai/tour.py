"""What `make quickstart` does: an agent learns to follow an instruction, in minutes and without a GPU.

The recipe is made for two cores, and is not the paper's; see `Recipe`.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from babyai.demos.collect import collect
from babyai.demos.commands import progress
from babyai.demos.replay import Replay
from babyai.demos.show import draw_steps, words_of_actions
from babyai.demos.sources import FileSource
from babyai.demos.store import DemoFile, PathLike, atomic_file
from babyai.engine import Engine
from babyai.evaluation.evaluate import MISSIONS, TEST_SEED, Evaluation, evaluate
from babyai.evaluation.players import AgentPlayer, evaluation_mode
from babyai.render.frame import draw_world
from babyai.render.picture import save_gif
from babyai.training.panel import Panel, describe_time

if TYPE_CHECKING:
    from babyai.agents import Agent

LEVEL = "GoToRedBallGrey"
# Of `bow_endpool_res` with 5 thousand demonstrations (Table 3).
PAPER = "99.7 ± 0.1 %"
# Sums are rounded in an order that depends on the number of threads, so it is the same on every machine.
THREADS = 2
# Updates from one line of progress to the next.
EVERY = 25
# Worlds side by side in the moving picture, pixels between them, and how often it shows the last frame.
FILMED, GAP, HELD = 4, 8, 8


@dataclass(frozen=True)
class Recipe:
    """How the agent learns.

    On a processor an update costs as much as the frames it sees. So there are many updates that see few frames (the
    paper: those of 256 demonstrations), at a rate that begins high and falls to nothing (the paper: 1e-4).
    """

    demos: int = 5000
    """How many demonstrations there are, the fewest in the paper."""
    updates: int = 800
    """How many steps of Adam."""
    lanes: int = 4
    """Episodes side by side; an update sees lanes x steps frames."""
    steps: int = 20
    """Frames of each in a row, as in the paper."""
    learning_rate: float = 5e-4
    """At the beginning; it falls to 0 in a straight line."""
    missions: int = MISSIONS
    """How many test missions are played."""
    seed: int = 0
    """Decides the first weights, and the order of demonstrations."""


def run(folder: PathLike = "quickstart", recipe: Recipe | None = None) -> Evaluation:
    """An agent that learned by imitation lies in `folder`, with its demonstrations and a film of it at work.

    Args:
        folder: Where to; what an earlier call left there is replaced.
        recipe: How it learns; None: in the way that is shown to everybody.

    Returns:
        How it does on test missions. On one machine it is the same each time.
    """
    recipe, folder, begun = recipe or Recipe(), Path(folder), time.monotonic()
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"An agent that knows nothing learns [bold]{LEVEL}[/bold]: it is shown how, imitates, and sits a test.\n"
        f"That takes a few minutes, and half a minute more the first time, when the worlds are compiled.\n"
    )
    with _threads(THREADS):
        folder.mkdir(parents=True, exist_ok=True)
        _collect(folder / "demos.parquet", recipe, console)
        agent = _train(folder / "demos.parquet", recipe, console)
        agent.save(folder / "agent")
        player = AgentPlayer(agent.model)
        result = _test(player, recipe, console)
        _film(player, folder / "agent.gif")
    console.rule(f"Done in {describe_time(time.monotonic() - begun)}")
    console.print(
        f"See it at work: [bold]{folder / 'agent.gif'}[/bold]\n\nTo go on:\n"
        f"  babyai evaluate {folder / 'agent'} --levels {LEVEL},GoToRedBall\n"
        f"  babyai demos show {folder / 'demos.parquet'} --steps\n"
        f"  babyai train imitation --levels GoToRedBall --demos 10000  # as in the paper; long without a GPU"
    )
    return result


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch computes with so many threads within, and afterwards with as many as before."""
    # Threads that wait for each other shall not keep cores busy: beside other programs, that is ten times slower.
    # The setting is read when torch is first imported, which is why this module imports it so late.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ModuleNotFoundError:
        raise ValueError("the quickstart needs torch: pip install 'babyai[agents]'") from None
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _collect(path: Path, recipe: Recipe, console: Console) -> None:
    """Writes demonstrations, and shows the first."""
    console.rule("1. Demonstrations")
    # Collecting never replaces what it finds, so it works beside it.
    with atomic_file(path) as temporary:
        collect(LEVEL, recipe.demos, 0, temporary)
    with DemoFile(path) as file:
        demo = file[0]
    console.print(f"{recipe.demos:,} by the expert, {path.stat().st_size:,} bytes in {path}. The first:\n")
    # The drawing brings its own colors, which rich must not touch.
    print(next(draw_steps(demo, "paper", color=console.is_terminal)).rsplit("\n", 2)[0])
    console.print(f"\nmission: [bold]{demo.mission}[/bold]\nexpert:  {words_of_actions(demo.actions)}\n")


def _train(demos: Path, recipe: Recipe, console: Console) -> "Agent":
    """An agent that has learned from the demonstrations."""
    from babyai.agents import Agent
    from babyai.training.feed import Feed
    from babyai.training.learner import ImitationLearner
    from babyai.training.optimizer import set_learning_rate

    console.rule("2. Learning")
    agent = Agent.create("bow_endpool_res", size="small", seed=recipe.seed)
    agent.model.train()
    learner = ImitationLearner(agent.model, recipe.lanes, learning_rate=recipe.learning_rate)
    frames = recipe.lanes * recipe.steps
    title = f"imitation of {recipe.demos:,} demonstrations with {agent.num_parameters:,} weights"
    with (
        Replay(FileSource(demos, seed=recipe.seed), steps=recipe.steps, lanes=recipe.lanes) as replay,
        Panel(recipe.updates * frames, "frames", title, console=console) as panel,
    ):
        feed, begun = Feed(replay, agent.device), time.monotonic()
        for done in range(1, recipe.updates + 1):
            set_learning_rate(learner.optimizer, recipe.learning_rate * (1 - (done - 1) / recipe.updates))
            learner.learn(next(feed))
            if done % EVERY == 0 or done == recipe.updates:
                speed = done * frames / (time.monotonic() - begun)
                panel.update(done * frames, {"update": done, "frames_per_second": speed} | learner.measures())
    agent.model.eval()
    return agent


def _test(player: AgentPlayer, recipe: Recipe, console: Console) -> Evaluation:
    """Plays missions that the agent has never met."""
    console.rule("3. Test")
    with progress("playing", "missions") as report:
        result = evaluate(player, LEVEL, missions=recipe.missions, first_seed=TEST_SEED, progress=report)
    console.print(
        f"this agent on {result.missions} missions it never met: [bold]{100 * result.success_rate:.1f} %[/bold] "
        f"succeed (95 % interval {100 * result.low:.1f} to {100 * result.high:.1f})\n"
        f"the paper's, with 5,000 demonstrations and its full protocol: {PAPER}\n"
    )
    return result


def _film(player: AgentPlayer, path: Path) -> None:
    """Writes a moving picture of the agent at the first test missions."""
    engine, first = Engine(LEVEL, FILMED), np.ones(FILMED, dtype=bool)
    engine.reset(TEST_SEED + np.arange(FILMED))
    player.begin(engine)
    frames = [_draw(engine)]
    with evaluation_mode(player):
        while not engine.done.all():
            engine.step(player.act(engine, first), skip_done=True)
            frames.append(_draw(engine))
            first[:] = False
    save_gif([*frames, *[frames[-1]] * HELD], path, fps=4)


def _draw(engine: Engine) -> np.ndarray:
    """All worlds side by side, lit where the agents look."""
    pictures = [draw_world(world, view=view) for world, view in zip(engine.worlds, engine.images, strict=True)]
    gap = np.full((pictures[0].shape[0], GAP, 3), 255, dtype=np.uint8)
    return np.hstack([part for picture in pictures for part in (gap, picture)][1:])
