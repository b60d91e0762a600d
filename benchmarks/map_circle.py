"""Pictures how the map agent fails: the states that it goes around in, its map, and what it would do.

    python -m benchmarks.map_circle PutNextLocal 1000000207 --out docs/images/circle.png

Each column is a state: the world, the map that the agent has drawn (the start faced up), and the probabilities of its
actions. The teacher's action is marked. The repetition penalty is switched off; with it, a circle ends.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch

from babyai.agents import Agent
from babyai.agents.map.memory import Memory
from babyai.agents.map.picture import draw_map
from babyai.agents.policy import new_state
from babyai.atomic_io import atomic_file
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.render.film import draw_scene
from babyai.render.scene import Scene, take_scene
from babyai.world.codes import Action
from benchmarks.map_agent import RECURRENCES, describe_state

TILE = 32


class Moment(NamedTuple):
    """A state of the episode, and what the agent makes of it."""

    state: bytes
    scene: Scene
    memory: Memory
    probs: list[float]
    advice: int
    """The teacher's action."""


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("level", help="Name of the level.")
    parser.add_argument("seed", type=int, help="Seed of a mission that the agent fails.")
    parser.add_argument("--agent", default="map", help="Checkpoint (default: the one that comes with the package).")
    parser.add_argument("--out", type=Path, required=True, help="Output file, PNG.")
    arguments = parser.parse_args()
    policy: Any = Agent.load(arguments.agent, device="cpu").model
    policy.without = ("history",)
    circle = find_circle(policy, arguments.level, arguments.seed)
    draw_circle(circle, arguments.out)


@torch.inference_mode()
def find_circle(policy: Any, level: str, seed: int) -> list[Moment]:
    """The moments of the circle that an episode with argmax actions ends in.

    Raises:
        ValueError: It ends otherwise.
    """
    engine = Engine(level, 1)
    engine.reset(np.array([seed]))
    teacher = ExpertBatch(engine, "teacher")
    memory: Any = new_state(policy, 1)
    if not isinstance(memory, Memory):
        raise ValueError("only an agent with a map has one to draw, such as those of `babyai train online-dagger`")
    counts = Counter[bytes]()
    moments: list[Moment] = []
    action = -1
    while not engine.done[0]:
        logits, _, memory = policy(observe(engine, action), memory)
        state = describe_state(engine.worlds[0])
        counts[state] += 1
        if counts[state] == RECURRENCES:
            states = [moment.state for moment in moments]
            return moments[len(states) - 1 - states[::-1].index(state) :]
        scene = take_scene(engine, 0, None if action < 0 else action)
        moments.append(Moment(state, scene, memory, logits[0].softmax(0).tolist(), int(teacher.advise()[0])))
        action = int(logits[0].argmax())
        engine.step(np.array([action]))
    raise ValueError(f"{level}, seed {seed}: {'solved' if engine.rewards[0] > 0 else 'time over'}, not a circle")


def observe(engine: Engine, last_action: int) -> dict[str, torch.Tensor]:
    """The observation of the engine's only world."""
    return {
        "image": torch.from_numpy(engine.images.copy()),
        "mission": torch.from_numpy(engine.missions.copy()),
        "direction": torch.from_numpy(engine.directions.copy()),
        "last_action": torch.tensor([last_action]),
    }


def draw_circle(moments: list[Moment], path: Path) -> None:
    """Draws the moments next to each other."""
    matplotlib.use("Agg")
    figure, axes = plt.subplots(
        3, len(moments), figsize=(4.2 * len(moments), 9), squeeze=False, height_ratios=[5, 4, 2.2], layout="constrained"
    )
    for moment, (world, drawn, bars) in zip(moments, axes.T, strict=True):
        world.imshow(draw_scene(moment.scene, "map agent", TILE))
        drawn.imshow(draw_map(moment.memory, 0, TILE))
        drawn.set_title("the agent's map", fontsize=10)
        for axis in (world, drawn):
            axis.axis("off")
        actions = [action for action in Action if moment.probs[action] >= 0.01 or action == moment.advice]
        names = [f"{action.name} (teacher)" if action == moment.advice else action.name for action in actions]
        shown = bars.barh(names, [moment.probs[action] for action in actions], color="tab:blue")
        bars.bar_label(shown, fmt="%.2f", padding=3)
        bars.set_xlim(0, 1.15)
        bars.invert_yaxis()
        bars.set_title("probability of the next action", fontsize=10)
        bars.spines[["top", "right"]].set_visible(False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")


if __name__ == "__main__":
    main()
