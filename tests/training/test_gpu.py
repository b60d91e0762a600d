"""What only a GPU can show: compiled and recorded, the learners do what they do step by step."""

import numpy as np
import pytest
import torch

from babyai.agents.actor import Actor
from babyai.agents.config import AgentConfig
from babyai.agents.device import Precision, place_model
from babyai.agents.model import Model
from babyai.engine import Engine
from babyai.training.feed import Fed
from babyai.training.learner import ImitationLearner
from babyai.training.ppo import PPO, PPOSettings
from babyai.training.rollout import Rollout
from babyai.training.side_by_side import own_stream, take_turns
from babyai.training.turns import Turns, finish, waiting

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),
]
T, N, M, L = 8, 16, 16, 8


def make_model(size: str) -> torch.nn.Module:
    torch.manual_seed(0)
    settings = {"memory_dim": 64} if size == "big" else {}
    return place_model(Model(AgentConfig.of(size=size, **settings)), torch.device("cuda"))


def draw_chunk(seed: int) -> Fed:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator, dtype=torch.uint8).cuda()

    actions, first = draw(0, 7, T, N), draw(0, 8, T, N) == 0
    return Fed(
        *(draw(0, 6, T, N, 7, 7, 3), draw(0, 4, T, N), actions, actions, first),
        *(draw(1, 30, M, L), draw(0, M, T, N).int()),
    )


def gradients_of(model: torch.nn.Module) -> torch.Tensor:
    # The critic learns nothing by imitation: compiled, it has a gradient of zeros, and none otherwise.
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


@pytest.mark.parametrize("size", ["small", "big"])
@pytest.mark.parametrize(("precision", "near", "alike"), [("float32", 2e-3, 0.9999), ("bf16", 0.1, 0.98)])
def test_recorded_learning_is_learning(size: str, precision: Precision, near: float, alike: float) -> None:
    learners = [ImitationLearner(make_model(size), N, precision=precision, fast=fast) for fast in (True, False)]
    before = torch.cat([p.detach().flatten() for p in learners[0].model.parameters()])
    losses = [[], []]
    for step in range(6):
        for each, learner in zip(losses, learners, strict=True):
            learner.learn(draw_chunk(step))
            each.append(learner.measures()["loss"])
        if step == 0:
            similarity = torch.nn.functional.cosine_similarity(*(gradients_of(each.model) for each in learners), 0)
    np.testing.assert_allclose(losses[0], losses[1], rtol=near)
    assert similarity > alike
    fast, plain = (torch.cat([p.detach().flatten() for p in learner.model.parameters()]) for learner in learners)
    assert (fast - before).norm() > 0
    # Adam divides by the size of the gradient, so where that is next to nothing, its sign decides the step.
    assert (fast - plain).norm() < 0.4 * (plain - before).norm()


def test_recorded_ppo_is_ppo() -> None:
    runs = []
    for fast in (True, False):
        settings = PPOSettings(worlds=16, steps=8, recurrence=4)
        engine = Engine("GoToLocal", settings.worlds)
        engine.reset(0)
        runs.append(PPO(make_model("small"), engine, settings, precision="float32", fast=fast))
    rollouts = [run.update() for run in runs]
    same = rollouts[0].chunk.actions == rollouts[1].chunk.actions
    assert same.mean() > 0.98
    np.testing.assert_allclose(rollouts[0].values[0], rollouts[1].values[0], rtol=0.01, atol=0.01)
    measures = [run.measures() for run in runs]
    if same.all():
        for name, value in measures[1].items():
            assert measures[0][name] == pytest.approx(value, rel=0.05, abs=0.05), name


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_runs_side_by_side_are_runs_alone(precision: Precision) -> None:
    """Recordings that are replayed at once must not share scratch memory. Three float32 runs once hung the GPU."""

    def play(seed: int) -> Turns[list[Rollout]]:
        settings = PPOSettings()
        engine = Engine("GoToLocal", settings.worlds)
        engine.reset(100 * seed)
        ppo = PPO(make_model("small"), engine, settings, seed=seed, precision=precision)
        rollouts = []
        for _ in range(4):
            rollouts.append((yield from ppo.updating()))
        yield from waiting(ppo.device)
        return rollouts

    alone = [finish(play(seed)) for seed in range(3)]
    together = take_turns([play(seed) for seed in range(3)], [own_stream("cuda") for _ in range(3)])
    for expected, rollouts in zip(alone, together, strict=True):
        for one, other in zip(expected, rollouts, strict=True):
            # An action drawn otherwise because of rounding changes all that follows in its world.
            assert (one.chunk.actions == other.chunk.actions).mean() > 0.9


@pytest.mark.parametrize("size", ["small", "big"])
def test_recorded_acting_is_acting(size: str) -> None:
    model = make_model(size).eval()
    engine = Engine("GoToLocal", N)
    engine.reset(0)
    fast = Actor(model, N, device="cuda")
    plain = Actor(model, N, device="cuda")
    plain._steps[False].enabled = False
    first = np.ones(N, dtype=bool)
    agreed = []
    for _ in range(30):
        seen = engine.images, engine.missions, engine.directions, first
        actions, expected = fast.act(*seen), plain.act(*seen)
        agreed.append((actions == expected).mean())
        engine.step(expected)
        first = engine.reset_done()
    assert np.mean(agreed) > 0.99
    torch.testing.assert_close(fast.memory, plain.memory, atol=1e-2, rtol=1e-2)


def test_drawing_and_not_drawing_are_recorded_apart() -> None:
    model = make_model("small").eval()
    engine = Engine("GoToLocal", 256)
    engine.reset(0)
    actor = Actor(model, 256, device="cuda")
    seen = engine.images, engine.missions, engine.directions, np.ones(256, dtype=bool)
    likeliest = actor.act(*seen)
    actor.sample = True
    drawn = [actor.act(*seen) for _ in range(2)]
    assert not np.array_equal(drawn[0], likeliest) and not np.array_equal(*drawn)
    actor.sample = False
    assert np.array_equal(actor.act(*seen), likeliest)
