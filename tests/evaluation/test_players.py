"""Agents as players, beside a plain loop over the model, and chance."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.config import AgentConfig
from babyai.agents.model import Model
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import WORLDS_ON_CPU, AgentPlayer, ExpertPlayer, RandomPlayer, draw_uniforms
from tests.scale import scaled

LEVEL = "GoToObjS4"
MISSIONS = 10


def make_model(architecture: str = "bow_endpool_res", seed: int = 0, **settings: Any) -> Model:
    """A small agent that knows nothing, but hears and sees enough not to do the same thing all the time."""
    torch.manual_seed(seed)
    model = Model(AgentConfig.of(architecture, memory_dim=16, **settings))
    assert model.memory is not None
    with torch.no_grad():
        for parameter in model.memory.parameters():
            parameter *= 8
    return model


class Recorded:
    """A player, and what it did in each mission."""

    def __init__(self, player: Any) -> None:
        self.player, self.actions = player, {}
        self.model, self.best_worlds = player.model, player.best_worlds

    def begin(self, engine: Engine) -> None:
        self.player.begin(engine)

    def act(self, engine: Engine, first: np.ndarray) -> np.ndarray:
        actions = self.player.act(engine, first)
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
def play_plainly(model: Model) -> dict[int, list[int]]:
    """The likeliest actions of a model, one mission after the other."""
    model.eval()
    actions: dict[int, list[int]] = {}
    for seed in range(3, 3 + MISSIONS):
        engine = Engine(LEVEL)
        engine.reset([seed])
        memory, last = model.initial_memory(1), -1
        while not engine.done[0]:
            seen = {
                "image": torch.from_numpy(engine.images),
                "mission": torch.from_numpy(engine.missions),
                "direction": torch.from_numpy(engine.directions),
                "last_action": torch.tensor([last]),
            }
            logits, _, memory = model(seen, memory)
            last = int(logits.argmax())
            engine.step([last])
            actions.setdefault(seed, []).append(last)
    return actions


class Steady(nn.Module):
    """A researcher's own model: always the same chances, and a record of what it was shown."""

    def __init__(self, logits: list[float], pixels: bool = False) -> None:
        super().__init__()
        self.pixels, self.shapes, self.modes = pixels, set(), set()
        self.register_buffer("logits", torch.tensor(logits))

    def initial_memory(self, count: int, device: Any = None) -> Tensor:
        return torch.zeros(count, 1, device=device)

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.shapes.add(tuple(observation["image"].shape))
        self.modes.add(self.training)
        logits = self.get_buffer("logits").expand(len(memory), -1)
        return logits, memory[:, 0], memory


# ------------------------------------------------------------ agents


@pytest.mark.parametrize("worlds", [1, 3, MISSIONS])
def test_an_agent_plays_as_its_model_says(worlds: int) -> None:
    model = make_model(seed=4, last_action=True, direction=True)
    expected = play_plainly(model)
    assert play(AgentPlayer(model), worlds) == expected
    # Otherwise it could not show where memories are mixed up.
    assert len({tuple(actions) for actions in expected.values()}) > 3


def test_drawn_actions_do_not_depend_on_the_number_of_worlds() -> None:
    player = AgentPlayer(make_model(), sample=True, seed=7)
    expected = play(player, 1)
    assert play(player, 4) == play(player, MISSIONS) == play(player, 4) == expected
    assert play(AgentPlayer(player.model, sample=True, seed=8), 4) != expected
    assert play(AgentPlayer(player.model), 4) != expected


def test_actions_are_drawn_from_the_policy() -> None:
    logits = [0.0, 1.0, -1.0, 0.5, -50.0, 0.0, -0.5]
    model, count = Steady(logits), scaled(20_000, 2000)
    engine = Engine(LEVEL, count)
    engine.reset(0)
    player = AgentPlayer(model, sample=True)
    player.begin(engine)
    actions = player.act(engine, np.ones(count, dtype=bool))
    expected = torch.tensor(logits).softmax(0).numpy()
    frequencies = np.bincount(actions, minlength=7) / count
    assert np.abs(frequencies - expected).max() < 4 * np.sqrt(0.25 / count)
    assert frequencies[4] == 0


def test_new_weights_are_used_by_the_next_evaluation() -> None:
    model, other = make_model(seed=2), make_model(seed=5)
    player = AgentPlayer(model)
    before = play(player, 5)
    model.load_state_dict(other.state_dict())
    assert play(player, 5) == play(AgentPlayer(other), 5) != before


def test_evaluation_mode_is_only_borrowed() -> None:
    model = make_model().train()
    model.see.eval()
    modes = [module.training for module in model.modules()]
    averages = {name: value.clone() for name, value in model.named_buffers()}
    play(AgentPlayer(model), 5)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, averages[name]) for name, value in model.named_buffers())

    steady = Steady([0.0] * 7).train()
    play(AgentPlayer(steady), 5)
    assert steady.modes == {False} and steady.training

    steady.forward = None  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        play(AgentPlayer(steady), 5)
    assert steady.training


def test_a_model_sees_pixels_if_it_wants_to() -> None:
    tiles, pixels = Steady([0.0] * 7), Steady([0.0] * 7, pixels=True)
    play(AgentPlayer(tiles), 5)
    play(AgentPlayer(pixels), 5)
    assert tiles.shapes == {(5, 7, 7, 3)} and pixels.shapes == {(5, 56, 56, 3)}


def test_an_agent_of_pixels_plays() -> None:
    player = AgentPlayer(make_model("pixels_endpool_res"))
    assert play(player, 1, missions=3) == play(player, 3, missions=3)


def test_bf16_plays_too() -> None:
    player = AgentPlayer(make_model(), precision="bf16")
    assert len(play(player, 5)) == MISSIONS


def test_as_many_worlds_as_pay_off() -> None:
    model = Steady([0.0] * 7)
    play(AgentPlayer(model), None, missions=WORLDS_ON_CPU + 5)
    assert model.shapes == {(WORLDS_ON_CPU, 7, 7, 3)}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no GPU"):
        AgentPlayer(make_model(), device="cuda")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        AgentPlayer(make_model(), precision="half")  # pyright: ignore[reportArgumentType]


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown style 'student'"):
        evaluate(ExpertPlayer("student"), LEVEL, missions=1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("player", [AgentPlayer(Steady([0.0] * 7)), ExpertPlayer()])
def test_nobody_acts_before_the_beginning(player: Any) -> None:
    engine = Engine(LEVEL)
    engine.reset(0)
    with pytest.raises(RuntimeError, match="call begin"):
        player.act(engine, np.array([True]))


# ------------------------------------------------------------ chance


def test_chances_are_even_and_unrelated() -> None:
    count, steps = scaled(4000, 400), 8
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


def test_chance_takes_every_action() -> None:
    count = scaled(7000, 700)
    engine = Engine(LEVEL, count)
    engine.reset(0)
    actions = RandomPlayer(-3).act(engine, np.ones(count, dtype=bool))
    assert actions.dtype == np.int64
    assert np.abs(np.bincount(actions, minlength=7) / count - 1 / 7).max() < 4 * np.sqrt(0.13 / count)
