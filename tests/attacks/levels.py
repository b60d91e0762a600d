"""Makes levels with random settings, some of them absurd, and plays those that are accepted; run as its own process.

    python -m tests.attacks.levels COUNT SEED

Prints how many levels were refused, how many could not be generated, and how many were played.
"""

import sys
from typing import Any

import numpy as np

from babyai import Engine, Level
from babyai.engine_kernels import find_world_fault
from babyai.levels.catalog import JOINS, RECIPES, VERBS

ABSURD = (-1, 0, 2**15, 2**31, 2**63, 10**30, -(2**40), 0.5, float("nan"), "8", None, True, (6, 0), ("fly",), ())
# Levels whose rooms are too small for their objects are legitimate, but cost 100,000 attempts each.
SLOW = 0.001


def draw_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Random settings, each of them absurd now and then."""

    def one_of(*options: Any) -> Any:
        return options[rng.integers(len(options))]

    settings = {
        "room_size": one_of(3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 12, 24),
        "rows": one_of(1, 1, 2, 2, 3, 3, 11),
        "columns": one_of(1, 1, 2, 2, 3, 3, 11),
        "objects": one_of(0, 1, 2, 3, 4, 5, 8, 18, 100, 576),
        "max_steps": one_of(0, 0, 1, 720, 2**31 - 1),
        "variant": one_of(0, 0, 0, 1),
        "strict": one_of(False, True),
        "carrying": one_of(False, True),
        "colors": one_of((-1, -1), (0, 2), (5, 5)),
        "locked_room": one_of(0.5, 0, 1),
        "verbs": one_of(tuple(VERBS), ("open",)),
        "joins": one_of(JOINS, JOINS[:1]),
    }
    for name in settings:
        if rng.random() < 0.02:
            settings[name] = one_of(*ABSURD)
    return settings


def is_slow(settings: dict[str, Any]) -> bool:
    """Whether the rooms may be so crowded, or so few, that no attempt succeeds."""
    cells = settings["rows"] * settings["columns"] * (settings["room_size"] - 2) ** 2
    single = settings["rows"] * settings["columns"] == 1
    return 2 + settings["objects"] > cells // 8 or settings["room_size"] < 6 or single


def play(rng: np.random.Generator, engine: Engine) -> None:
    """Plays a few steps after checking that the worlds are valid."""
    engine.reset(int(rng.integers(2**31)))
    for index in range(engine.num_worlds):
        fault = find_world_fault(engine.kernel_worlds, index, True)
        assert not fault, f"{engine.levels[0]} gives a world with fault {fault}"
    for _ in range(10):
        engine.step(rng.integers(0, 7, engine.num_worlds))
        engine.reset_done()


def main(count: int, seed: int) -> None:
    """Makes `count` levels."""
    rng = np.random.default_rng(seed)
    refused = impossible = played = 0
    for _ in range(count):
        settings = draw_settings(rng)
        try:
            level = Level("Forged", RECIPES[rng.integers(len(RECIPES))], **settings)
        except (ValueError, TypeError):
            refused += 1
            continue
        if is_slow(settings) and rng.random() > SLOW:
            continue
        engine = Engine(level, 2, rules="minigrid" if rng.random() < 0.5 else "paper")
        try:
            play(rng, engine)
            played += 1
        except RuntimeError:
            impossible += 1
    print(f"refused {refused} impossible {impossible} played {played}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
