"""Episodes recorded from Minigrid 3.2.0: 96 levels, 20 seeds each, up to 200 random actions."""

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from babyai import Engine
from babyai.world.language import detokenize
from babyai.world.state import position_of
from tests.reference import encode_grid, generator_state
from tests.scale import COMPILER_OFF

GOLDEN = Path(__file__).parents[1] / "golden" / "episodes_minigrid320.jsonl.gz"
ACTION_PROBS = (0.15, 0.15, 0.4, 0.1, 0.08, 0.1, 0.02)
NUM_ACTIONS = 200
SEEDS = 2 if COMPILER_OFF else 20


@cache
def golden_episodes() -> dict[str, list[dict]]:
    """Returns the recorded episodes of each Minigrid id, in the order of their seeds 0..19."""
    episodes: dict[str, list[dict]] = {}
    with gzip.open(GOLDEN, "rt") as lines:
        for line in lines:
            episode = json.loads(line)
            episodes.setdefault(episode.pop("id"), []).append(episode)
    return episodes


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def describe_start(engine: Engine, index: int) -> dict:
    """Returns the fields of the golden file that describe the start of an episode."""
    world = engine.worlds[index]
    generator = generator_state(world)
    return {
        "seed": int(world.seed),
        "w": int(world.width),
        "h": int(world.height),
        "mission": detokenize(engine.missions[index]),
        "dir": int(engine.directions[index]),
        "pos": list(position_of(world.agent)),
        "max_steps": int(world.max_steps),
        "grid": short_hash(encode_grid(world).tobytes()),
        "image": short_hash(engine.images[index].tobytes()),
        "rng_state": str(generator["state"]["state"]),
        "has32": generator["has_uint32"],
        "u32": generator["uinteger"],
    }


def play_to_end(engine: Engine, actions: np.ndarray) -> list[dict]:
    """Plays each world's row of `actions` until its episode ends; returns the remaining fields of the golden file."""
    hashes = [hashlib.sha256() for _ in actions]
    returns = np.zeros(len(actions))
    ends: list[dict] = [{} for _ in actions]
    for step_actions in actions.T:
        playing = np.flatnonzero(~engine.done)
        if not len(playing):
            break
        engine.step(step_actions, skip_done=True)
        returns += engine.rewards
        for i in playing:
            flags = bool(engine.terminated[i]), bool(engine.truncated[i])
            hashes[i].update(engine.images[i].tobytes() + bytes([int(engine.directions[i]), *flags]))
            ends[i] = {"steps": int(engine.worlds[i].step_count), "terminated": flags[0], "truncated": flags[1]}
    for i, end in enumerate(ends):
        end["reward"] = float(returns[i])
        end["traj"] = hashes[i].hexdigest()[:16]
        end["end_pos"] = list(position_of(engine.worlds[i].agent))
    return ends


def test_the_golden_file_is_complete() -> None:
    assert len(golden_episodes()) == 96
    assert all([episode["seed"] for episode in episodes] == list(range(20)) for episodes in golden_episodes().values())


@pytest.mark.parametrize("minigrid_id", sorted(golden_episodes())[:: 8 if COMPILER_OFF else 1])
def test_episodes_match_the_golden_file(minigrid_id: str) -> None:
    engine = Engine(minigrid_id, SEEDS, rules="minigrid")
    engine.reset(0)
    starts = [describe_start(engine, i) for i in range(SEEDS)]
    draws = [np.random.default_rng(1000 + seed).choice(7, NUM_ACTIONS, p=ACTION_PROBS) for seed in range(SEEDS)]
    ends = play_to_end(engine, np.array(draws))
    played = [start | end for start, end in zip(starts, ends, strict=True)]
    assert played == golden_episodes()[minigrid_id][:SEEDS]
