"""Statistics of a file of demonstrations, and its episodes drawn as text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np

from babyai.demos.packed import Demo
from babyai.demos.store import DemoFile
from babyai.demos.verify import play_demo
from babyai.levels.catalog import Rules
from babyai.render.notebook import html_scene, html_table
from babyai.render.scene import Scene, take_scene
from babyai.render.text import draw_text
from babyai.world.codes import Action


@dataclass(frozen=True)
class LevelSummary:
    """Statistics of the demonstrations of one level."""

    level: str
    count: int
    mean_length: float
    std_length: float
    longest: int
    mean_reward: float


def summarize(file: DemoFile) -> list[LevelSummary]:
    """Statistics of each level of a file, computed in one pass."""
    # Per level: the number of rows, and the sums of the lengths, of their squares, and of the rewards.
    sums = np.zeros((4, len(file.levels)))
    longest = np.zeros(len(file.levels), dtype=np.int64)
    for group in file.groups(missions=False):
        lengths = group.lengths.astype(np.float64)
        columns = np.ones(len(group)), lengths, lengths**2, group.rewards
        sums += [np.bincount(group.levels, weights, len(file.levels)) for weights in columns]
        np.maximum.at(longest, group.levels, group.lengths)
    return [_summary(name, sums[:, k].tolist(), int(longest[k])) for k, name in enumerate(file.levels)]


def _summary(name: str, sums: list[float], longest: int) -> LevelSummary:
    count, total, squares, rewards = sums
    mean = total / max(1.0, count)
    std = max(0.0, squares / max(1.0, count) - mean**2) ** 0.5
    return LevelSummary(name, int(count), mean, std, longest, rewards / max(1.0, count))


def draw_steps(demo: Demo, rules: Rules, color: bool = False) -> Iterator[str]:
    """Yields the world as text before the first action and after each action, with a line that names the action."""
    for step, engine in enumerate(play_demo(demo, rules)):
        caption = "start" if step == 0 else Action(int(demo.actions[step - 1])).name
        if engine.done[0]:
            caption += f" (end of episode, reward {engine.rewards[0]:.3f})"
        yield f"{draw_text(engine.worlds[0], color=color)}\nstep {step}: {caption}\n"


def html_of_file(file: DemoFile) -> str:
    """The statistics of a file and its first demonstration as HTML."""
    sources = ", ".join(f"{source.rows:,} by {source.origin} {source.style}".strip() for source in file.header.sources)
    levels = {
        row.level: f"{row.count:,} demonstrations, {row.mean_length:.1f} ± {row.std_length:.1f} steps, "
        f"mean reward {row.mean_reward:.3f}"
        for row in summarize(file)
    }
    table = html_table(f"{file.path}: {len(file):,} demonstrations", {"rules": file.rules, "sources": sources} | levels)
    return table + (html_of_demo(file[0], file.rules) if len(file) else "")


def html_of_demo(demo: Demo, rules: Rules | None = None) -> str:
    """A demonstration as HTML: its facts, its first and its last scene.

    A demonstration alone does not know its rule set; one under which replaying it gives its mission and reward is used.
    """
    facts = {"level": demo.level, "seed": demo.seed, "mission": demo.mission, "actions": format_actions(demo.actions)}
    table = html_table("Demonstration", facts | {"reward": demo.reward})
    for each in get_args(Rules) if rules is None else (rules,):
        try:
            scenes = _replay_scenes(demo, each)
        except (ValueError, RuntimeError):
            continue
        if (scenes[0].mission, scenes[-1].reward) == (demo.mission, demo.reward):
            return table + html_scene(scenes[0]) + html_scene(scenes[-1])
    return table


def _replay_scenes(demo: Demo, rules: Rules) -> list[Scene]:
    """The first and the last scene of a demonstration."""
    scenes = [
        take_scene(engine, action=int(demo.actions[step - 1]) if step else None)
        for step, engine in enumerate(play_demo(demo, rules))
        if step in (0, len(demo))
    ]
    return [scenes[0], scenes[-1]]


def format_actions(actions: np.ndarray) -> str:
    """Names of actions, with repetitions counted: "left, forward x 3, toggle"."""
    if not len(actions):
        return ""
    breaks = np.flatnonzero(np.diff(actions)) + 1
    runs = np.split(actions, breaks)
    return ", ".join(Action(int(run[0])).name + (f" x {len(run)}" if len(run) > 1 else "") for run in runs)
