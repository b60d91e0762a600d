"""Agents as players, against a plain loop over the policy, and random players."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import WORLDS_ON_CPU, AgentPlayer, ExpertPlayer, RandomPlayer, draw_uniforms
from tests.scale import scaled

LEVEL = "GoToObjS4"
MISSIONS = 10


def make_policy(architecture: str = "bow_endpool_res", seed: int = 0, **settings: Any) -> FilmLSTM:
    """A small agent that has not learned, but whose actions depend on what it sees and remembers."""
    torch.manual_seed(seed)
    policy = FilmLSTM(AgentConfig.of(architecture, memory_dim=16, **settings))
    assert policy.lstm is not None
    with torch.no_grad():
        for parameter in policy.lstm.parameters():
            parameter *= 8
    return policy


class Recorded:
    """A player, and its actions in each mission."""

    def __init__(self, player: Any) -> None:
        self.player = player
        self.actions: dict[int, list[int]] = {}
        self.model = player.model
        self.best_worlds = player.best_worlds

    def begin(self, engine: Engine) -> None:
        self.player.begin(engine)

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        actions = self.player.act(engine, starts)
        for k in np.flatnonzero(~engine.done):
            self.actions.setdefault(int(engine.worlds[k].seed), []).append(int(actions[k]))
        return actions


def play(player: AgentPlayer, worlds: int | None = None, missions: int = MISSIONS) -> dict[int, list[int]]:
    """The actions of each mission, by its seed."""
    recorded = Recorded(player)
    result = evaluate(recorded, LEVEL, missions=missions, first_seed=3, worlds=worlds)
    assert [len(recorded.actions[3 + k]) for k in range(missions)] == result.lengths.tolist()
    return recorded.actions


@torch.no_grad()
def play_plainly(policy: FilmLSTM) -> dict[int, list[int]]:
    """A policy's argmax actions, one mission after the other."""
    policy.eval()
    actions: dict[int, list[int]] = {}
    for seed in range(3, 3 + MISSIONS):
        engine = Engine(LEVEL)
        engine.reset([seed])
        state = policy.initial_state(1)
        last_action = -1
        while not engine.done[0]:
            observation = {
                "image": torch.from_numpy(engine.images),
                "mission": torch.from_numpy(engine.missions),
                "direction": torch.from_numpy(engine.directions),
                "last_action": torch.tensor([last_action]),
            }
            logits, _, state = policy(observation, state)
            last_action = int(logits.argmax())
            engine.step([last_action])
            actions.setdefault(seed, []).append(last_action)
    return actions


class Steady(nn.Module):
    """A policy of one's own: always the same logits, and a record of what it was given."""

    def __init__(self, logits: list[float], pixels: bool = False) -> None:
        super().__init__()
        self.pixels = pixels
        self.shapes: set[tuple[int, ...]] = set()
        self.modes: set[bool] = set()
        self.register_buffer("logits", torch.tensor(logits))

    def initial_state(self, n: int) -> Tensor:
        return torch.zeros(n, 1)

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.shapes.add(tuple(observation["image"].shape))
        self.modes.add(self.training)
        logits = self.get_buffer("logits").expand(len(state), -1)
        return logits, state[:, 0], state


# ------------------------------------------------------------ agents


@pytest.mark.parametrize("worlds", [1, 3, MISSIONS])
def test_an_agent_plays_as_its_policy_does(worlds: int) -> None:
    policy = make_policy(seed=4, last_action=True, direction=True)
    expected = play_plainly(policy)
    assert play(AgentPlayer(policy), worlds) == expected
    # Otherwise mixed-up recurrent states would not show.
    assert len({tuple(actions) for actions in expected.values()}) > 3


def test_sampled_actions_do_not_depend_on_the_number_of_worlds() -> None:
    player = AgentPlayer(make_policy(), sample=True, seed=7)
    expected = play(player, 1)
    assert play(player, 4) == play(player, MISSIONS) == play(player, 4) == expected
    assert play(AgentPlayer(player.model, sample=True, seed=8), 4) != expected
    assert play(AgentPlayer(player.model), 4) != expected


def test_actions_are_sampled_from_the_policy() -> None:
    logits = [0.0, 1.0, -1.0, 0.5, -50.0, 0.0, -0.5]
    count = scaled(20_000, 2000)
    engine = Engine(LEVEL, count)
    engine.reset(0)
    player = AgentPlayer(Steady(logits), sample=True)
    player.begin(engine)
    actions = player.act(engine, np.ones(count, dtype=bool))
    expected = torch.tensor(logits).softmax(0).numpy()
    frequencies = np.bincount(actions, minlength=7) / count
    assert np.abs(frequencies - expected).max() < 4 * np.sqrt(0.25 / count)
    assert frequencies[4] == 0


def test_new_weights_are_used_by_the_next_evaluation() -> None:
    policy = make_policy(seed=2)
    other = make_policy(seed=5)
    player = AgentPlayer(policy)
    before = play(player, 5)
    policy.load_state_dict(other.state_dict())
    assert play(player, 5) == play(AgentPlayer(other), 5) != before


def test_evaluation_mode_ends_with_the_evaluation() -> None:
    policy = make_policy().train()
    policy.image_encoder.eval()
    modes = [module.training for module in policy.modules()]
    statistics = {name: value.clone() for name, value in policy.named_buffers()}
    play(AgentPlayer(policy), 5)
    assert [module.training for module in policy.modules()] == modes
    assert all(torch.equal(value, statistics[name]) for name, value in policy.named_buffers())

    steady = Steady([0.0] * 7).train()
    play(AgentPlayer(steady), 5)
    assert steady.modes == {False} and steady.training

    steady.forward = None  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        play(AgentPlayer(steady), 5)
    assert steady.training


class HalfSteady(Steady):
    """Computes in the dtype of its weights, so that mixed precision makes a copy of it."""

    def __init__(self, modes: set[bool]) -> None:
        super().__init__([0.0] * 7)
        self.scale = nn.Parameter(torch.ones(()))
        self.dropout = nn.Dropout(0.5)
        # A copy has a set of its own, but it shares this hook.
        self.dropout.register_forward_pre_hook(lambda module, _: modes.add(module.training))

    def float32_modules(self) -> list[nn.Module]:
        return []

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, value, state = super().forward(observation, state)
        return self.dropout(logits * self.scale.float()), value, state


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_evaluation_mode_reaches_the_policy_that_computes(precision: Any) -> None:
    modes: set[bool] = set()
    policy = HalfSteady(modes).train()
    play(AgentPlayer(policy, precision=precision), 5)
    assert modes == {False}
    # Also when the policy has been trained since.
    player = AgentPlayer(policy.eval(), precision=precision)
    play(player, 5)
    policy.train()
    play(player, 5)
    assert modes == {False}


def test_a_policy_gets_the_observations_it_reads() -> None:
    symbolic = Steady([0.0] * 7)
    pixels = Steady([0.0] * 7, pixels=True)
    play(AgentPlayer(symbolic), 5)
    play(AgentPlayer(pixels), 5)
    assert symbolic.shapes == {(5, 7, 7, 3)} and pixels.shapes == {(5, 56, 56, 3)}


def test_an_agent_that_reads_pixels_plays() -> None:
    player = AgentPlayer(make_policy("pixels_endpool_res"))
    assert play(player, 1, missions=3) == play(player, 3, missions=3)


def test_an_agent_plays_in_bf16() -> None:
    player = AgentPlayer(make_policy(), precision="bf16")
    assert len(play(player, 5)) == MISSIONS


def test_the_default_number_of_worlds_suits_the_cpu() -> None:
    policy = Steady([0.0] * 7)
    play(AgentPlayer(policy), None, missions=WORLDS_ON_CPU + 5)
    assert policy.shapes == {(WORLDS_ON_CPU, 7, 7, 3)}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'cuda'.*'cpu'"):
        AgentPlayer(make_policy(), device="cuda")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'half'.*float32"):
        AgentPlayer(make_policy(), precision="half")  # pyright: ignore[reportArgumentType]


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="'student'"):
        evaluate(ExpertPlayer("student"), LEVEL, missions=1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("player", [AgentPlayer(Steady([0.0] * 7)), ExpertPlayer()])
def test_acting_before_begin_is_an_error(player: Any) -> None:
    engine = Engine(LEVEL)
    engine.reset(0)
    with pytest.raises(RuntimeError, match="begin"):
        player.act(engine, np.array([True]))


# ------------------------------------------------------------ random players


def test_random_numbers_are_uniform_and_uncorrelated() -> None:
    count = scaled(4000, 400)
    steps = 8
    engine = Engine(LEVEL, count)
    engine.reset(2 * 10**9)
    drawn = []
    for _ in range(steps):
        drawn.append(draw_uniforms(engine, 0))
        engine.step(np.full(count, 6))
    every = np.array(drawn)
    assert every.dtype == np.float32 and every.min() >= 0 and every.max() < 1
    assert len(np.unique(every)) > 0.99 * every.size
    spread = 4 / np.sqrt(every.size)
    assert abs(every.mean() - 1 / 2) < spread and abs(every.var() - 1 / 12) < spread
    # Neither from step to step, nor from one mission to the next, nor with another seed.
    for one, other in [(every[1:], every[:-1]), (every[:, 1:], every[:, :-1]), (every[0], draw_again(count))]:
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(one.size)


def draw_again(count: int) -> np.ndarray:
    engine = Engine(LEVEL, count)
    engine.reset(2 * 10**9)
    return draw_uniforms(engine, 1)


def test_a_random_player_takes_every_action() -> None:
    count = scaled(7000, 700)
    engine = Engine(LEVEL, count)
    engine.reset(0)
    actions = RandomPlayer(-3).act(engine, np.ones(count, dtype=bool))
    assert actions.dtype == np.int64
    assert np.abs(np.bincount(actions, minlength=7) / count - 1 / 7).max() < 4 * np.sqrt(0.13 / count)
