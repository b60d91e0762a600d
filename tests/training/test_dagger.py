"""DAgger: the agent's lanes are real episodes, each step labeled with the teacher's action."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import observation_kind, unroll
from babyai.batch import OBSERVATION_FIELDS, Batch
from babyai.demos.replay import Replay
from babyai.demos.sources import ExpertSource
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import Rules, find_level
from babyai.seeds import FIRST_ROLL_IN_SEED, SEEDS_PER_RUN, VALIDATION_SEED, roll_in_seed
from babyai.training import dagger_rollouts
from babyai.training.dagger import train
from babyai.training.dagger_rollouts import DaggerBatches, LabeledRollouts
from babyai.training.prefetch import Prefetcher
from babyai.training.run import read_rows
from babyai.tree import tree_leaves
from tests.training.same import assert_same_run
from tests.training.short_runs import PAPER, Pretend, dagger_options
from tests.training.tiny import Tiny

# Lanes of demonstrations, and worlds that the agent plays.
SHOWN = 2
PLAYED = 3
STEPS = 12
# In these levels the agent can open a box that the mission asks for, and then it is gone.
LEVELS = ["PutNextLocalS5N3", "PutNextS4N1"]


def make_policy(architecture: str = "", **settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    if not architecture:
        return Tiny()
    policy = FilmLSTM(AgentConfig.of(architecture, memory_dim=16, **settings))
    assert policy.lstm is not None
    # The state of a new network hardly depends on what it sees; this one's does.
    with torch.no_grad():
        for parameter in policy.lstm.parameters():
            parameter *= 8
    return policy


def make_batches(policy: torch.nn.Module, levels: list[str] = LEVELS, **settings: Any) -> DaggerBatches:
    source = ExpertSource(levels, block=8)
    replay = Replay(source, steps=STEPS, lanes=SHOWN, kind=observation_kind(policy))
    rollouts = LabeledRollouts(policy, PLAYED, source.levels, first_seed=FIRST_ROLL_IN_SEED, **settings)
    return DaggerBatches(replay, rollouts)


def copy(batch: Batch) -> Batch:
    """The batch in memory of its own."""
    return batch.map(np.copy)


class Cell(NamedTuple):
    """One step of one lane."""

    image: np.ndarray
    direction: int
    mission: np.ndarray
    label: int
    action: int
    last_action: int
    start: bool
    reward: float
    terminated: bool
    truncated: bool
    level: int
    seed: int


def iter_cells(batches: list[Batch], lane: int) -> Iterator[Cell]:
    """All steps of a lane."""
    for batch in batches:
        for step, row in enumerate(batch.mission_index[:, lane]):
            at = (step, lane)
            yield Cell(
                batch.images[at],
                int(batch.directions[at]),
                batch.missions[row],
                int(batch.labels[at]),
                int(batch.actions[at]),
                int(batch.last_actions[at]),
                bool(batch.starts[at]),
                float(batch.rewards[at]),
                bool(batch.terminated[at]),
                bool(batch.truncated[at]),
                int(batch.levels[at]),
                int(batch.seeds[at]),
            )


# ------------------------------------------------------------ what the batches hold


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_every_step_is_one_of_an_episode_with_the_label_of_a_new_teacher(rules: Rules) -> None:
    levels = [find_level(name, rules) for name in LEVELS]
    rollouts = LabeledRollouts(make_policy(), 8, levels, rules=rules, first_seed=FIRST_ROLL_IN_SEED, seed=3)
    batches = [rollouts.play(STEPS) for _ in range(20)]
    seeds = []
    abandoned = 0
    ended = 0
    succeeded = 0
    for lane in range(8):
        engine = Engine(levels, rules=rules)
        expert = None
        done = True
        last_action = -1
        for cell in iter_cells(batches, lane):
            if cell.start:
                if expert is not None and not done:
                    assert expert.advise()[0] == -1
                    abandoned += 1
                engine.worlds.level = cell.level
                engine.reset([cell.seed])
                expert = ExpertBatch(engine, "teacher")
                seeds.append(cell.seed)
                last_action = -1
            assert expert is not None and cell.start == (engine.worlds[0].step_count == 0)
            assert np.array_equal(cell.image, engine.images[0]) and cell.direction == engine.directions[0]
            assert np.array_equal(cell.mission, engine.missions[0])
            assert cell.last_action == last_action
            assert cell.label == expert.advise()[0]
            engine.step([cell.action])
            assert cell.reward == np.float32(engine.rewards[0])
            assert (cell.terminated, cell.truncated) == (engine.terminated[0], engine.truncated[0])
            last_action = cell.action
            done = bool(engine.done[0])
            ended += done
            succeeded += cell.reward > 0
    metrics = rollouts.metrics()
    assert metrics["abandoned_episodes"] >= abandoned > 3 and metrics["played_episodes"] == ended > 0
    assert metrics["labeled_frames"] == 20 * STEPS * 8
    assert metrics["played_success"] == succeeded / ended < 1
    # Each episode occurs once; some may have been abandoned before their first step.
    assert len(set(seeds)) == len(seeds)
    assert set(seeds) <= set(range(FIRST_ROLL_IN_SEED, FIRST_ROLL_IN_SEED + rollouts._num_started))
    # Statistics start again after they have been read; frames are counted on.
    again = rollouts.metrics()
    assert again["played_episodes"] == again["abandoned_episodes"] == 0
    assert again["labeled_frames"] == metrics["labeled_frames"]


def test_the_first_lanes_are_the_replays() -> None:
    mixed = make_batches(make_policy())
    alone = Replay(ExpertSource(LEVELS, block=8), steps=STEPS, lanes=SHOWN)
    names = ("images", "directions", "last_actions", "actions", "labels", "rewards", "terminated", "truncated")
    for _ in range(6):
        batch = next(mixed)
        shown = next(alone)
        assert (batch.num_steps, batch.num_lanes) == (STEPS, SHOWN + PLAYED)
        for name in (*names, "starts", "levels", "seeds"):
            assert np.array_equal(getattr(batch, name)[:, :SHOWN], getattr(shown, name)), name
        assert np.array_equal(batch.missions[batch.mission_index[:, :SHOWN]], shown.missions[shown.mission_index])
        assert set(batch.mission_index.flatten().tolist()) == set(range(len(batch.missions)))
    mixed.close()
    alone.close()


def test_batches_can_be_written_to_a_buffer() -> None:
    plain = make_batches(make_policy())
    buffer = Batch.empty(STEPS, SHOWN + PLAYED, labels=np.uint8)
    same = make_batches(make_policy())
    buffered = DaggerBatches(same.replay, same.rollouts, buffer)
    for _ in range(3):
        expected = next(plain)
        batch = next(buffered)
        assert batch.images is buffer.images and batch.labels is buffer.labels
        for one, other in zip(tree_leaves(batch), tree_leaves(expected), strict=True):
            assert np.array_equal(one, other)
    plain.close()
    buffered.close()


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [("", {}), ("bow_endpool_res", {"last_action": True, "direction": True}), ("pixels_endpool_res", {})],
    ids=["own policy", "symbolic", "pixels"],
)
def test_unrolling_a_batch_leads_to_the_state_that_acted(architecture: str, settings: dict[str, Any]) -> None:
    policy: Any = make_policy(architecture, **settings)
    mixed = make_batches(policy)
    batches = Prefetcher(mixed, torch.device("cpu"), (*OBSERVATION_FIELDS, "actions", "labels"))
    policy.eval()
    state = policy.initial_state(SHOWN + PLAYED)
    for _ in range(4):
        batch = next(batches)
        with torch.no_grad():
            state = unroll(policy, batch, state).state
        for ours, acting in zip(tree_leaves(state), tree_leaves(mixed.rollouts.actor.state), strict=True):
            torch.testing.assert_close(ours[SHOWN:], acting, rtol=0, atol=2e-4)
        assert batch.starts.any() and not torch.equal(batch.actions, batch.labels)
    mixed.close()


def test_acting_leaves_the_policy_as_it_was() -> None:
    policy: Any = make_policy("bow_endpool_res")
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    modes: list[bool] = []
    policy.image_encoder.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    mixed = make_batches(policy)
    next(mixed)
    assert modes and not any(modes)
    assert all(module.training for module in policy.modules())
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
    mixed.close()


class Copied(Tiny):
    """Has dropout, and `float32_modules`, so that mixed precision makes a copy of it."""

    def __init__(self, modes: list[bool]) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.5)
        # The copy has this hook, too.
        self.dropout.register_forward_pre_hook(lambda module, _: modes.append(module.training))

    def float32_modules(self) -> list[torch.nn.Module]:
        return [self.tiles, self.words, self.encode, self.memory, self.actor, self.critic]

    def forward(self, observation: Any, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        _, value, state = super().forward(observation, state)
        return self.actor(self.dropout(state)), value, state


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_policy_acts_in_evaluation_mode(precision: Any) -> None:
    modes: list[bool] = []
    policy = Copied(modes).train()
    rollouts = LabeledRollouts(policy, PLAYED, [find_level("GoToObjS4")], precision=precision)
    rollouts.play(2)
    assert modes == [False] * 2 and policy.dropout.training


def test_acting_uses_the_newest_weights() -> None:
    policy: Any = make_policy("bow_endpool_res")
    mixed = make_batches(policy, precision="bf16", greedy=True)
    for action in (2, 5):
        with torch.no_grad():
            policy.actor[2].weight.zero_()
            policy.actor[2].bias.copy_(torch.arange(7) == action)
        assert (next(mixed).actions[:, SHOWN:] == action).all()
    mixed.close()


@pytest.mark.parametrize(("greedy", "varied"), [(False, True), (True, False)], ids=["sampled", "greedy"])
def test_actions_are_sampled_or_greedy(greedy: bool, varied: bool) -> None:
    mixed = make_batches(make_policy(), greedy=greedy)
    actions = {action for _ in range(3) for action in next(mixed).actions[:, SHOWN:].flatten().tolist()}
    mixed.close()
    assert (len(actions) == 7) == varied


# ------------------------------------------------------------ episodes


def test_levels_occur_as_weighted_and_seeds_stay_below_those_of_validation() -> None:
    levels = [find_level(name) for name in ("GoToObjS4", "GoToLocalS5N2")]
    rollouts = LabeledRollouts(Tiny(), 64, levels, weights=[1, 3], first_seed=VALIDATION_SEED - 500)
    seeds = []
    numbers = []
    for _ in range(40):
        rollouts._start_episodes(np.ones(64, dtype=bool))
        seeds += rollouts.engine.worlds.seed.tolist()
        numbers += rollouts.engine.worlds.level.tolist()
    assert 0.7 < np.mean(numbers) < 0.8
    assert set(seeds) == set(range(VALIDATION_SEED - 500, VALIDATION_SEED))


def test_runs_have_blocks_of_seeds_of_their_own() -> None:
    assert roll_in_seed(49) + SEEDS_PER_RUN <= VALIDATION_SEED
    assert roll_in_seed(50) == roll_in_seed(0) == FIRST_ROLL_IN_SEED
    assert len({roll_in_seed(seed) for seed in range(50)}) == 50


def test_episodes_without_advice_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    advise = ExpertBatch.advise
    calls = []

    def sometimes(self: ExpertBatch, taken: np.ndarray | None = None) -> np.ndarray:
        calls.append(1)
        advice = advise(self, taken)
        advice[1] = advice[1] if len(calls) > 4 else -1
        return advice

    monkeypatch.setattr(ExpertBatch, "advise", sometimes)
    mixed = make_batches(make_policy(), ["GoToObjS4"])
    batch = next(mixed)
    assert batch.starts[0].all()
    first = FIRST_ROLL_IN_SEED
    assert batch.seeds[0, SHOWN:].tolist() == [first, first + 6, first + 2]
    assert mixed.rollouts.metrics()["abandoned_episodes"] == 4
    mixed.close()


def test_a_level_without_any_advice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExpertBatch, "advise", lambda *_: np.full(PLAYED, -1))
    monkeypatch.setattr(dagger_rollouts, "MAX_ABANDONED", 5)
    rollouts = LabeledRollouts(Tiny(), PLAYED, [find_level("GoToObjS4")])
    with pytest.raises(RuntimeError, match=r"5 episodes.*GoToObjS4"):
        rollouts.play(1)


# ------------------------------------------------------------ positions


@pytest.mark.parametrize(("architecture", "levels"), [("", LEVELS), ("bow_endpool_res", ["GoToLocalS5N2"])])
def test_a_saved_position_leads_to_the_same_batches(architecture: str, levels: list[str]) -> None:
    settings = {"last_action": True} if architecture else {}
    one = make_batches(make_policy(architecture, **settings), levels)
    other = make_batches(make_policy(architecture, **settings), levels)
    for before in (1, 0, 2):
        for _ in range(before):
            next(one)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        for _ in range(3):
            for ours, theirs in zip(tree_leaves(copy(next(one))), tree_leaves(copy(next(other))), strict=True):
                assert np.array_equal(ours, theirs)
        assert one.state_dict() == other.state_dict()
        assert one.rollouts.frames == other.rollouts.frames
    one.close()
    other.close()
    fewer = LabeledRollouts(make_policy(), 2, [find_level(levels[0])])
    with pytest.raises(ValueError, match=r"3.*2"):
        fewer.load_state_dict(one.rollouts.state_dict())


def test_a_position_at_the_start_of_an_episode() -> None:
    # In this level, the object that the agent carries is seen on the floor until the first step.
    rules: Rules = "minigrid"
    level = find_level("PutNextS5N2Carrying", rules)
    one, other = (LabeledRollouts(make_policy(), PLAYED, [level], rules=rules, first_seed=first) for first in (50, 70))
    other.load_state_dict(one.state_dict())
    ours = one.play(STEPS)
    theirs = other.play(STEPS)
    assert np.array_equal(ours.images, theirs.images) and ours.starts[0].all()


# ------------------------------------------------------------ runs


@pytest.mark.compiled
def test_the_agent_learns_from_its_own_states(tmp_path: Path) -> None:
    # Two demonstrations teach next to nothing: what is learned comes from the labels.
    more = {"batch_size": 32, "epoch_length": 1600, "epochs": 4, "validation_episodes": 64}
    rows = train(dagger_options(tmp_path / "run", demos=2, roll_in_fraction=0.9, **more)).run.rows()
    assert rows[-1]["success"] > 0.8 and rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert rows[-1]["played_success"] > rows[0]["played_success"]


@pytest.mark.parametrize(("fraction", "expected"), [(0.25, 0.25), (0.001, None), (0.999, None)])
def test_rows_count_the_labeled_frames(
    fraction: float, expected: float | None, tmp_path: Path, pretend: Pretend
) -> None:
    calls = pretend([0.5])
    short = {"batch_size": 40, "recurrence": 4, "epoch_length": 80}
    first, last = train(dagger_options(tmp_path / "run", roll_in_fraction=fraction, **short)).run.rows()
    lanes = first["frames"] / 2 / 4
    playing = first["labeled_frames"] / 2 / 4
    # There is always a lane of each kind.
    assert 1 <= playing <= lanes - 1 and playing == int(playing)
    assert expected is None or playing == round(expected * lanes)
    assert last["labeled_frames"] == 2 * first["labeled_frames"]
    assert all(first_seed >= VALIDATION_SEED for _, first_seed in calls)


def test_a_batch_of_one_lane_becomes_two(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    rows = train(dagger_options(tmp_path / "run", batch_size=1, recurrence=20, epoch_length=3)).run.rows()
    assert rows[0]["frames"] == 3 * 20 * 2 and rows[0]["labeled_frames"] == 3 * 20


RUNS: dict[str, dict[str, Any]] = {
    "several levels": {"levels": ",".join(LEVELS), "level_weights": "1,2", "demos": 10},
    "endless demonstrations": {"demos": None, "endless": True},
    "the paper's agent": {**PAPER, "last_action": True, "epoch_length": 8},
}


@pytest.mark.parametrize(
    "settings",
    # Without the compiler, endless demonstrations take too long.
    [pytest.param(run, id=name, marks=pytest.mark.compiled if "endless" in run else ()) for name, run in RUNS.items()],
)
def test_a_resumed_run_ends_like_an_undisturbed_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    options = dagger_options(tmp_path / "whole", epochs=3, **settings)
    train(options)
    parts = replace(options, out=str(tmp_path / "parts"))
    train(replace(parts, epochs=1))
    train(replace(parts, epochs=2), resume=True)
    train(parts, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert read_rows(tmp_path / "whole")[-1]["labeled_frames"] > 0


def test_a_run_interrupted_in_the_middle_of_an_epoch_keeps_its_tallies(tmp_path: Path) -> None:
    options = dagger_options(tmp_path / "whole", epochs=2, demos=10, epoch_length=16)
    train(options)
    parts = replace(options, out=str(tmp_path / "parts"))
    for number in range(40):
        calls = iter(range(100))
        if not train(parts, resume=number > 0, stop=lambda calls=calls: next(calls) == 0).interrupted:
            break
    assert number > 3
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
