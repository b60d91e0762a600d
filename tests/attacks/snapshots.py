"""Forges snapshots and uses each as hard as the program can; run as a process of its own, which must survive.

    python -m tests.attacks.snapshots COUNT SEED

Prints how many forged snapshots were refused and how many accepted. Accepted ones are stepped, advised on, drawn,
given another mission, and reset.
"""

import sys

import numpy as np

from babyai import Engine, ExpertBatch
from babyai.render.frame import draw_world
from babyai.render.text import draw_text
from babyai.world.state import WORLD

LEVELS = ("BossLevel", "KeyInBox", "PutNextS7N4Carrying", "OneRoomS20", "OpenDoorsOrderN4Debug", "KeyCorridorS3R1")
# The bytes that decide where kernels read and write, and the bytes around the grid.
SENSITIVE = range(44, 103)


def genuine_snapshots(rng: np.random.Generator, count: int) -> list[bytes]:
    """Snapshots of episodes in progress, and of some that have ended."""
    engine = Engine(LEVELS, count)
    engine.reset(0)
    snapshots = []
    for _ in range(30):
        engine.step(rng.integers(0, 7, count), skip_done=True)
        snapshots += [engine.snapshot(index) for index in range(count)]
    return snapshots


def forge(rng: np.random.Generator, snapshot: bytes) -> bytes:
    """The snapshot with one to four bytes changed, most of them where it hurts; sometimes nothing but noise."""
    data = bytearray(snapshot)
    if rng.random() < 0.02:
        return rng.bytes(len(data))
    for _ in range(rng.integers(1, 5)):
        place = rng.choice(SENSITIVE) if rng.random() < 0.7 else rng.integers(0, len(data))
        data[place] = rng.choice([0, 1, 2, 3, 4, 7, 8, 23, 24, 25, 127, 128, 255, rng.integers(0, 256)])
    return bytes(data)


def use(rng: np.random.Generator, engine: Engine, expert: ExpertBatch) -> None:
    """Does everything with world 0 that reads or writes its record."""
    for style in ("paper", "teacher"):
        expert.style = style
        expert.reset()
        expert.advise()
    draw_text(engine.worlds[0])
    for _ in range(20):
        if engine.done[0]:
            break
        engine.step([int(rng.integers(0, 7))])
        expert.advise(rng.integers(0, 7, 1))
    if engine.worlds[0].max_steps < 10_000:
        expert.demonstrate()
    if rng.random() < 0.05:
        draw_world(engine.worlds[0])
    if rng.random() < 0.2:
        engine.reset()


def main(count: int, seed: int) -> None:
    """Forges `count` snapshots."""
    rng = np.random.default_rng(seed)
    snapshots = genuine_snapshots(rng, 60)
    engine = Engine(LEVELS)
    engine.reset(0)
    expert = ExpertBatch(engine)
    refused = 0
    for _ in range(count):
        forged = forge(rng, snapshots[rng.integers(len(snapshots))])
        before = engine.snapshot(0)
        try:
            engine.restore(0, forged)
        except ValueError:
            refused += 1
            assert engine.snapshot(0) == before
            continue
        use(rng, engine, expert)
    for snapshot in snapshots:
        engine.restore(0, snapshot)
        assert engine.snapshot(0) == snapshot
    assert len(snapshots[0]) == WORLD.itemsize
    print(f"refused {refused} accepted {count - refused}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
