"""`babyai quickstart`: train an agent from scratch, evaluate it and film it, in minutes and without a GPU.

The hyperparameters suit two cores and are not the paper's; see `Recipe`.
"""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from babyai.atomic_io import PathLike, atomic_file
from babyai.console import progress
from babyai.demos.collect import collect
from babyai.demos.replay import Replay
from babyai.demos.show import draw_steps, format_actions
from babyai.demos.sources import FileSource
from babyai.demos.store import DemoFile
from babyai.evaluation.evaluate import MISSIONS, Evaluation, evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.evaluation.watch import play_scenes
from babyai.render.film import Film, save_film
from babyai.render.scene import Scene
from babyai.seeds import TEST_SEED
from babyai.training.progress import Panel, describe_time

if TYPE_CHECKING:
    from babyai.agents import Agent

LEVEL = "GoToRedBallGrey"
# The paper's result for `bow_endpool_res` with 5,000 demonstrations (Table 3).
PAPER = "99.7 ± 0.1 %"
# Rounding depends on the number of threads, so it is fixed.
THREADS = 2
# Gradient steps between two lines of progress.
STEPS_PER_LINE = 25
ARCHITECTURE = ("bow_endpool_res", "small")
# The GIF: missions of the trained agent, frames per second, and how often the last frame of a mission is repeated.
FILMED = 4
FPS = 8
HELD = 12


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters.

    On a CPU the cost of a gradient step is proportional to its frames. So there are many steps on small batches (paper:
    256 demonstrations each), with a learning rate that starts high and decays linearly to 0 (paper: 1e-4).
    """

    demos: int = 5000
    """Number of demonstrations, the smallest in the paper."""
    updates: int = 800
    """Gradient steps."""
    lanes: int = 4
    """Lanes; a batch has lanes x steps frames."""
    steps: int = 20
    """Steps per lane, as in the paper."""
    learning_rate: float = 5e-4
    """Initial learning rate; it decays linearly to 0."""
    missions: int = MISSIONS
    """Test missions."""
    seed: int = 0
    """Random seed of the weights and of the order of demonstrations."""
    precision: str | None = None
    """Of training, "float32" or "bf16"; default: bf16 if the processor has instructions for it."""


def run(folder: PathLike = "quickstart", recipe: Recipe | None = None) -> Evaluation:
    """Writes a trained agent, its demonstrations and a GIF of it to `folder`.

    Args:
        folder: Where to; results of an earlier call are replaced.
        recipe: Hyperparameters.

    Returns:
        The result on test missions. On one machine it is the same each time.
    """
    recipe = recipe or Recipe()
    folder = Path(folder)
    started = time.monotonic()
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"Training an agent from scratch on [bold]{LEVEL}[/bold]: demonstrations, imitation learning, evaluation.\n"
        f"This takes a few minutes, plus half a minute the first time to compile the environments.\n"
    )
    with _threads(THREADS):
        folder.mkdir(parents=True, exist_ok=True)
        _collect(folder / "demos.parquet", recipe, console)
        agent = _train(folder / "demos.parquet", recipe, console)
        agent.save(folder / "agent")
        player = AgentPlayer(agent.model)
        result = _test(player, recipe, console)
        _film(player, recipe, folder / "agent.gif")
    console.rule(f"Done in {describe_time(time.monotonic() - started)}")
    # `make` installs into an environment that need not be active.
    activation = "" if shutil.which("babyai") else f"  . {Path(sys.prefix) / 'bin' / 'activate'}\n"
    console.print(
        f"Watch it: [bold]{folder / 'agent.gif'}[/bold]\n\nNext steps:\n"
        f"{activation}"
        f"  babyai watch {folder / 'agent'} --level {LEVEL} --seed 7\n"
        f"  babyai play --level {LEVEL} --agents {folder}\n"
        f"  babyai evaluate {folder / 'agent'} --levels {LEVEL},GoToRedBall\n"
        f"  babyai demos show {folder / 'demos.parquet'} --steps\n"
        f"  babyai train imitation --levels GoToRedBall --demos 10000  # the paper's protocol; slow without a GPU"
    )
    return result


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Sets the number of torch's threads within."""
    # Waiting threads must not spin: next to other programs, that is ten times slower. OpenMP reads the setting when
    # torch is first imported, which is why this module imports it so late.
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
    """Collects demonstrations and prints the first."""
    console.rule("1. Demonstrations")
    # `collect` never overwrites a file.
    with atomic_file(path) as temporary:
        collect(LEVEL, recipe.demos, 0, temporary)
    with DemoFile(path) as file:
        demo = file[0]
    console.print(f"{recipe.demos:,} by the expert, {path.stat().st_size:,} bytes in {path}. The first one:\n")
    # The drawing has ANSI colors of its own, which rich must not change.
    print(next(draw_steps(demo, "paper", color=console.is_terminal)).rsplit("\n", 2)[0])
    console.print(f"\nmission: [bold]{demo.mission}[/bold]\nexpert:  {format_actions(demo.actions)}\n")


def _train(demos: Path, recipe: Recipe, console: Console) -> "Agent":
    """Trains an agent on the demonstrations."""
    from babyai.agents import Agent
    from babyai.agents.device import find_precision
    from babyai.training.imitation import FIELDS, ImitationLearner
    from babyai.training.prefetch import Prefetcher

    console.rule("2. Imitation learning")
    agent = Agent.create(*ARCHITECTURE, seed=recipe.seed)
    agent.model.train()
    precision = find_precision(recipe.precision, agent.device, training=True)
    core = ImitationLearner(agent.model, recipe.lanes, learning_rate=recipe.learning_rate, precision=precision)
    frames = recipe.lanes * recipe.steps
    title = f"{recipe.demos:,} demonstrations, {agent.num_parameters:,} parameters, {precision}"
    with (
        Replay(FileSource(demos, seed=recipe.seed), steps=recipe.steps, lanes=recipe.lanes) as replay,
        Panel(recipe.updates * frames, "frames", title, console=console) as panel,
    ):
        batches = Prefetcher(replay, agent.device, FIELDS)
        started = time.monotonic()
        for done in range(1, recipe.updates + 1):
            core.learner.set_learning_rate(recipe.learning_rate * (1 - (done - 1) / recipe.updates))
            core.learn(next(batches))
            if done % STEPS_PER_LINE == 0 or done == recipe.updates:
                speed = done * frames / (time.monotonic() - started)
                panel.update(done * frames, {"update": done, "frames_per_second": speed} | core.learner.metrics())
    agent.model.eval()
    return agent


def _test(player: AgentPlayer, recipe: Recipe, console: Console) -> Evaluation:
    """Plays test missions."""
    console.rule("3. Evaluation")
    with progress("playing", "missions") as report:
        result = evaluate(player, LEVEL, missions=recipe.missions, first_seed=TEST_SEED, progress=report)
    console.print(
        f"success rate on {result.missions} test missions: [bold]{100 * result.success_rate:.1f} %[/bold] "
        f"(95 % interval {100 * result.low:.1f} to {100 * result.high:.1f})\n"
        f"the paper, with 5,000 demonstrations and its full protocol: {PAPER}\n"
    )
    return result


def _film(trained: AgentPlayer, recipe: Recipe, path: Path) -> None:
    """Writes a GIF of test missions: one by the agent before training, several by the trained one."""
    from babyai.agents import Agent

    untrained = AgentPlayer(Agent.create(*ARCHITECTURE, seed=recipe.seed).model)
    scenes: list[Scene] = []
    titles: list[str] = []
    for title, player, missions in (("before training", untrained, 1), ("after training", trained, FILMED)):
        for seed in range(TEST_SEED, TEST_SEED + missions):
            scenes += play_scenes(player, LEVEL, seed)
        titles += [title] * (len(scenes) - len(titles))
    with progress("filming", "frames") as report:
        save_film(Film(scenes, titles, HELD, report), path, fps=FPS)
