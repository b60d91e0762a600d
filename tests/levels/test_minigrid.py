"""Every level of Minigrid 3.2.0, compared with Minigrid itself, including the generator state."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.envs.babyai.core import verifier

from tests.scale import COMPILER_OFF, scaled
from tests.twin import (
    ACTION_PROBS,
    BOT_IDS,
    MINIGRID_IDS,
    BotPlayer,
    InteractivePlayer,
    Player,
    RandomPlayer,
    StuckError,
    Twin,
    play,
)

SOME_IDS = MINIGRID_IDS[::12] if COMPILER_OFF else MINIGRID_IDS
# `-m long` plays this many steps, in parts that `pytest -n` runs in parallel.
LONG_STEPS = 1_000_000
LONG_PARTS = 20

seeds = st.integers(0, 2**63 - 1)


def make_player(kind: str, rng: np.random.Generator) -> Player:
    if kind == "interactive":
        return InteractivePlayer(rng)
    if kind.startswith("bot"):
        return BotPlayer(rng, deviation=float(kind.removeprefix("bot")))
    return RandomPlayer(rng, kind)


KINDS = [*ACTION_PROBS, "interactive", "bot0", "bot0.1", "bot0.4"]


def test_minigrid_has_96_levels() -> None:
    assert len(MINIGRID_IDS) == 96


@pytest.mark.parametrize("minigrid_id", SOME_IDS)
def test_episodes_match_minigrid(minigrid_id: str) -> None:
    rng = np.random.default_rng(MINIGRID_IDS.index(minigrid_id))
    twin = Twin(minigrid_id)
    for episode, kind in enumerate(["interactive", "hands", "golden"]):
        # Only the first episode is seeded; for the others, the generators continue.
        twin.reset(seed=int(rng.integers(2**40)) if episode == 0 else None)
        play(twin, make_player(kind, rng), scaled(100, least=10))
    assert twin.episodes == 3


@settings(max_examples=scaled(60, least=4))
@given(st.sampled_from(MINIGRID_IDS), seeds, st.sampled_from([kind for kind in KINDS if "bot" not in kind]))
def test_random_levels_seeds_and_players_match_minigrid(minigrid_id: str, seed: int, kind: str) -> None:
    twin = Twin(minigrid_id)
    rng = np.random.default_rng(seed)
    try:
        for start in (seed, None, None):
            twin.reset(start)
            play(twin, make_player(kind, rng), scaled(60, least=10))
    except StuckError:
        pass


@settings(max_examples=scaled(15, least=1))
@given(st.sampled_from(BOT_IDS), st.integers(0, 2**31), st.sampled_from([0.0, 0.1]))
def test_episodes_played_by_the_bot_match_minigrid(minigrid_id: str, seed: int, deviation: float) -> None:
    twin = Twin(minigrid_id)
    twin.reset(seed)
    play(twin, BotPlayer(np.random.default_rng(seed), deviation), 150)


@pytest.mark.parametrize("minigrid_id", ["BabyAI-GoToLocal-v0", "BabyAI-OpenDoor-v0", "BabyAI-PickupLoc-v0"])
def test_the_bot_wins_in_both(minigrid_id: str) -> None:
    twin = Twin(minigrid_id)
    for seed in range(scaled(10, least=2)):
        twin.reset(seed)
        play(twin, BotPlayer(np.random.default_rng(seed)), 64)
    assert twin.wins == twin.episodes


@pytest.mark.parametrize("view_size", [3, 5, 9, 11, 13, 15])
def test_other_view_sizes_match_minigrid(view_size: int) -> None:
    rng = np.random.default_rng(view_size)
    for minigrid_id in rng.choice(MINIGRID_IDS, size=scaled(10), replace=False).tolist():
        twin = Twin(minigrid_id, view_size=view_size)
        twin.reset(int(rng.integers(2**40)))
        play(twin, InteractivePlayer(rng), scaled(100, least=20))


@pytest.mark.long
def test_done_actions_match_minigrid(monkeypatch: pytest.MonkeyPatch) -> None:
    # Minigrid reads its environment variable only at import time.
    monkeypatch.setattr(verifier, "use_done_actions", "1")
    rng = np.random.default_rng(0)
    wins = ends = 0
    for minigrid_id in SOME_IDS:
        twin = Twin(minigrid_id, done_actions=True)
        for start in (int(rng.integers(2**40)), None):
            twin.reset(start)
            play(twin, InteractivePlayer(rng), scaled(200, least=20))
            ends += bool(twin.env.step_count and twin.done)
        wins += twin.wins
    # The comparison must include successes and failures.
    assert COMPILER_OFF or (wins > 20 and ends > wins + 20)


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("part", range(LONG_PARTS))
def test_a_million_steps_match_minigrid(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    start = int(os.environ.get("BABYAI_TEST_SEED", int.from_bytes(os.urandom(4), "big")))
    rng = np.random.default_rng([start, part])
    steps = episodes = wins = stuck = 0
    while steps < LONG_STEPS // LONG_PARTS:
        for minigrid_id in rng.permutation(MINIGRID_IDS).tolist():
            allowed = [kind for kind in KINDS if "bot" not in kind or minigrid_id in BOT_IDS]
            twin = Twin(minigrid_id, view_size=int(rng.choice([7, 7, 7, 3, 5, 9, 11, 13, 15])))
            try:
                for seed in (int(rng.integers(2**63)), None, None, None):
                    twin.reset(seed)
                    play(twin, make_player(str(rng.choice(allowed)), rng), int(rng.integers(1, 300)))
            except StuckError:
                stuck += 1
            steps += twin.steps
            episodes += twin.episodes
            wins += twin.wins
            if steps >= LONG_STEPS // LONG_PARTS:
                break
    assert steps >= LONG_STEPS // LONG_PARTS
    with capsys.disabled():
        print(f"\n  part {part}: {steps} steps, {episodes} episodes, {wins} wins, {stuck} timeouts of Minigrid")
