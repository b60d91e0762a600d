"""The expert's episodes as packed demonstrations."""

import numpy as np

from babyai.demos.packed import Demos, pack_demos
from babyai.expert.expert import ExpertBatch


def demonstrate(expert: ExpertBatch) -> tuple[Demos, np.ndarray]:
    """Plays every world of the expert's engine to its end, right after a seeded reset.

    Returns:
        The demonstrations of the missions that succeed, and the seeds of those that do not.
    """
    engine = expert.engine
    worlds = engine.worlds.view(np.ndarray)
    levels = worlds["level"].copy()
    seeds = worlds["seed"].copy()
    actions, lengths, rewards = expert.demonstrate()
    names = [level.name for level in engine.levels]
    solved = np.flatnonzero(rewards > 0)
    demos = pack_demos(names, levels, seeds, engine.missions, actions, lengths, rewards, solved)
    return demos, seeds[rewards <= 0]
