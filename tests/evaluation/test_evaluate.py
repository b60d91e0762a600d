"""Evaluation against the obvious loop: one world, one mission after the other."""

import json
from typing import Any

import numpy as np
import pytest

from babyai.engine import Engine
from babyai.evaluation.evaluate import Evaluation, evaluate
from babyai.evaluation.players import ExpertPlayer, Player, RandomPlayer
from babyai.levels.catalog import PAPER_LEVELS
from babyai.seeds import TEST_SEED
from tests.scale import COMPILER_OFF, scaled

MISSIONS = scaled(40, 8)


def play_plainly(player: Player, level: str, missions: int, first_seed: int, rules: Any = "paper") -> list[Any]:
    """(reward, length) of each mission."""
    outcomes = []
    for seed in range(first_seed, first_seed + missions):
        engine = Engine(level, rules=rules)
        engine.reset([seed])
        player.begin(engine)
        starts = np.array([True])
        length = 0
        while not engine.done[0]:
            engine.step(player.act(engine, starts))
            starts = np.array([False])
            length += 1
        outcomes.append((engine.rewards[0], length))
    return outcomes


class Witness:
    """Plays at random, and notes what it is given."""

    def __init__(self) -> None:
        self.begun = 0
        self.worlds = 0
        self.seeds: list[int] = []
        self.wrong = 0
        self.player = RandomPlayer(5)

    def begin(self, engine: Engine) -> None:
        self.begun += 1
        self.worlds = engine.num_worlds

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        self.seeds += engine.worlds.seed[starts].tolist()
        self.wrong += int(((engine.worlds.step_count == 0) != starts).sum())
        return self.player.act(engine, starts)


@pytest.mark.parametrize("worlds", [1, 3, MISSIONS - 1, MISSIONS, 1000, None])
def test_equals_playing_one_by_one(worlds: int | None) -> None:
    result = evaluate(RandomPlayer(3), "GoToObjS4", missions=MISSIONS, first_seed=17, worlds=worlds)
    expected = play_plainly(RandomPlayer(3), "GoToObjS4", MISSIONS, 17)
    assert list(zip(result.rewards, result.lengths, strict=True)) == expected
    # Otherwise the order of missions could not show.
    assert len(set(expected)) > 4


def test_equals_playing_one_by_one_with_other_rules() -> None:
    options: Any = {"missions": scaled(60, 4), "first_seed": 0, "rules": "minigrid"}
    result = evaluate(RandomPlayer(), "OpenTwoDoors", worlds=5, **options)
    expected = play_plainly(RandomPlayer(), "OpenTwoDoors", options["missions"], 0, "minigrid")
    assert list(zip(result.rewards, result.lengths, strict=True)) == expected
    assert result.rules == "minigrid"


@pytest.mark.parametrize("worlds", [4, MISSIONS])
def test_every_mission_starts_once(worlds: int) -> None:
    witness = Witness()
    evaluate(witness, "GoToObjS4", missions=MISSIONS, first_seed=100, worlds=worlds)
    assert witness.begun == 1 and witness.worlds == worlds and witness.wrong == 0
    assert sorted(witness.seeds) == list(range(100, 100 + MISSIONS))
    # Missions start in order, so that no world waits for another.
    assert witness.seeds == sorted(witness.seeds)


@pytest.mark.parametrize("style", ["paper", "teacher"])
@pytest.mark.parametrize("level", PAPER_LEVELS[:3] if COMPILER_OFF else PAPER_LEVELS)
def test_the_expert_always_succeeds(level: str, style: Any) -> None:
    result = evaluate(ExpertPlayer(style), level, missions=scaled(100, 3), worlds=30)
    assert result.success_rate == result.high == 1.0 and result.successes == result.missions
    assert result.mean_success_length == result.mean_length
    assert len(result.failed_seeds) == 0


def test_the_expert_plays_as_it_demonstrates() -> None:
    from babyai.expert.expert import ExpertBatch

    missions = scaled(64, 3)
    engine = Engine("GoToLocal", missions)
    engine.reset(50)
    _, lengths, rewards = ExpertBatch(engine).demonstrate()
    result = evaluate(ExpertPlayer(), "GoToLocal", missions=missions, first_seed=50, worlds=7)
    assert result.lengths.tolist() == lengths.tolist() and result.rewards.tolist() == rewards.tolist()


@pytest.mark.compiled
def test_a_random_player_rarely_succeeds() -> None:
    result = evaluate(RandomPlayer(), "PutNextLocal", missions=500)
    assert result.success_rate < 0.1 and result.low < result.success_rate < result.high < 0.15
    assert not result.proves(0.1) and result.proves(0.001)
    assert result.mean_length > 100
    another = evaluate(RandomPlayer(1), "PutNextLocal", missions=500)
    assert another.lengths.tolist() != result.lengths.tolist()


def test_figures_follow_from_the_missions() -> None:
    result = evaluate(RandomPlayer(), "GoToObjS4", missions=MISSIONS)
    won = result.rewards > 0
    assert 0 < won.sum() < MISSIONS
    assert result.first_seed == TEST_SEED and result.level == "GoToObjS4"
    assert (result.successes, result.success_rate) == (won.sum(), won.mean())
    assert (result.mean_reward, result.std_reward) == (result.rewards.mean(), result.rewards.std())
    assert (result.mean_length, result.std_length) == (result.lengths.mean(), result.lengths.std())
    assert result.mean_success_length == result.lengths[won].mean()
    assert result.failed_seeds.tolist() == [TEST_SEED + k for k in range(MISSIONS) if not won[k]]


def test_results_can_be_written_as_json() -> None:
    result = evaluate(RandomPlayer(), "GoToObjS4", missions=4, first_seed=np.int64(9))  # pyright: ignore[reportArgumentType]
    written = json.loads(json.dumps(result.to_dict()))
    assert written["missions"] == 4 and written["first_seed"] == 9
    assert not {"rewards", "lengths", "unreadable_answers"} & set(written)
    again = Evaluation(**written, rewards=result.rewards, lengths=result.lengths)
    assert again == result


def test_without_success_there_is_no_mean_length_of_successes() -> None:
    class Idler:
        def begin(self, engine: Engine) -> None: ...

        def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
            return np.zeros(engine.num_worlds, dtype=np.int64)

    result = evaluate(Idler(), "GoToObjS4", missions=3, first_seed=0)
    assert (result.successes, result.low, result.mean_success_length) == (0, 0.0, None)
    assert result.lengths.tolist() == [16, 16, 16]


def test_progress_counts_missions() -> None:
    counts: list[tuple[int, int]] = []
    evaluate(RandomPlayer(), "GoToObjS4", missions=12, worlds=3, progress=lambda *count: counts.append(count))
    assert counts[-1] == (12, 12) and counts == sorted(counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missions": 0}, "mission.*world.*0 and None"),
        ({"worlds": 0}, "mission.*world.*512 and 0"),
        ({"first_seed": -1}, "-1"),
        ({"first_seed": 2**63 - 2, "missions": 3}, "9223372036854775808"),
        ({"rules": "none"}, "'none'"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(RandomPlayer(), "GoToObjS4", **options)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'GoToLocl'.*'GoToLocal'"):
        evaluate(RandomPlayer(), "GoToLocl")
