"""What only a GPU can show: compiled and replayed from CUDA graphs, learners compute what they compute step by step."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.actor import Actor
from babyai.agents.config import AgentConfig
from babyai.agents.cuda_graph import CudaGraphFunction, UndeclaredMutationError
from babyai.agents.custom import example_batch
from babyai.agents.device import Precision, place_model
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.batch import Batch
from babyai.engine import Engine
from babyai.training.imitation import ImitationLearner
from babyai.training.options import PPOHyperparameters
from babyai.training.ppo import PPO
from babyai.training.rollout import Rollout
from babyai.tree import tree_leaves
from tests.training.tiny import Tiny, TwoMemories

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch.compile warns about itself.
    pytest.mark.filterwarnings("ignore"),
]
STEPS = 8
LANES = 16
MISSIONS = 16
WORDS = 8
CUDA = torch.device("cuda")
# Precision, relative tolerance of the loss, and how similar the gradients must be.
PRECISIONS = [("float32", 2e-3, 0.9999), ("bf16", 0.1, 0.98)]


def make_agent(size: str) -> nn.Module:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"memory_dim": 64} if size == "big" else {}
    return place_model(FilmLSTM(AgentConfig.of(size=size, **settings)), CUDA)


def make_own(policy_class: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return place_model(policy_class(), CUDA)


def draw_batch(seed: int) -> Batch:
    """A random batch on the GPU."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator, dtype=torch.uint8).cuda()

    starts = draw(0, 8, STEPS, LANES) == 0
    last_actions = torch.where(starts, -1, draw(0, 7, STEPS, LANES).to(torch.int8))
    return Batch(
        images=draw(0, 6, STEPS, LANES, 7, 7, 3),
        directions=draw(0, 4, STEPS, LANES),
        last_actions=last_actions,
        missions=draw(1, 30, MISSIONS, WORDS),
        mission_index=draw(0, MISSIONS, STEPS, LANES).int(),
        starts=starts,
        labels=draw(0, 7, STEPS, LANES),
    )


def parameters_of(policy: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


def gradients_of(policy: nn.Module) -> Tensor:
    # Imitation does not train the critic: compiled, it has gradients of zeros, and none otherwise.
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.parameters()]
    return torch.cat([gradient.flatten() for gradient in gradients])


# ------------------------------------------------------------ learning


def assert_captured_steps_equal_plain_steps(
    captured: ImitationLearner, plain: ImitationLearner, tolerance: float, similar: float
) -> None:
    """Makes six gradient steps with both."""
    policy = captured.learner.policy
    before = parameters_of(policy)
    losses = []
    for step in range(6):
        batch = draw_batch(step)
        captured.learn(batch)
        plain.learn(batch)
        losses.append([core.learner.metrics()["loss"] for core in (captured, plain)])
        if step == 0:
            ours = gradients_of(policy)
            theirs = gradients_of(plain.learner.policy)
            assert nn.functional.cosine_similarity(ours, theirs, 0) > similar
    np.testing.assert_allclose([one for one, _ in losses], [other for _, other in losses], rtol=tolerance)
    learned = parameters_of(policy)
    expected = parameters_of(plain.learner.policy)
    assert (learned - before).norm() > 0
    # Adam divides by the size of the gradient: where that is almost nothing, its sign decides the step.
    assert (learned - expected).norm() < 0.4 * (expected - before).norm()
    for ours, theirs in zip(tree_leaves(captured.state), tree_leaves(plain.state), strict=True):
        assert (ours - theirs).abs().float().mean() < 0.05


@pytest.mark.parametrize("size", ["small", "big"])
@pytest.mark.parametrize(("precision", "tolerance", "similar"), PRECISIONS)
def test_captured_imitation_is_imitation(size: str, precision: Precision, tolerance: float, similar: float) -> None:
    captured, plain = (
        ImitationLearner(make_agent(size), LANES, precision=precision, cuda_graphs=graphs) for graphs in (True, False)
    )
    assert_captured_steps_equal_plain_steps(captured, plain, tolerance, similar)


@pytest.mark.parametrize("policy_class", [Tiny, TwoMemories])
@pytest.mark.parametrize(("precision", "tolerance", "similar"), PRECISIONS)
def test_a_captured_policy_of_ones_own_learns_like_a_plain_one(
    policy_class: type[nn.Module], precision: Precision, tolerance: float, similar: float
) -> None:
    """In bf16 it runs under autocast."""
    captured, plain = (
        ImitationLearner(make_own(policy_class), LANES, precision=precision, cuda_graphs=graphs)
        for graphs in (True, False)
    )
    assert captured.learn.enabled and not plain.learn.enabled
    assert_captured_steps_equal_plain_steps(captured, plain, tolerance, similar)


def test_capturing_changes_nothing_by_itself() -> None:
    """The warm-up runs are undone: after one captured step, there has been one step."""
    captured, plain = (ImitationLearner(make_own(Tiny), LANES, cuda_graphs=graphs) for graphs in (True, False))
    for core in (captured, plain):
        core.learn(draw_batch(0))
    assert captured.learner.totals[0] == plain.learner.totals[0] == 1
    ours, theirs = (
        [float(state["step"]) for state in core.learner.optimizer.state.values()] for core in (captured, plain)
    )
    assert ours == theirs and max(ours) == 1
    torch.testing.assert_close(captured.state, plain.state, atol=1e-4, rtol=1e-4)


def test_the_learning_rate_changes_inside_a_cuda_graph() -> None:
    core = ImitationLearner(make_own(Tiny), LANES)
    core.learn(draw_batch(0))
    core.learner.set_learning_rate(0.0)
    before = parameters_of(core.learner.policy)
    core.learn(draw_batch(1))
    assert torch.equal(parameters_of(core.learner.policy), before)


# ------------------------------------------------------------ policies that cannot be captured


class Synchronizing(Tiny):
    """Branches on the host on what is on the device."""

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if observation["direction"].sum().item() < 0:
            state = state + 1
        return super().forward(observation, state)


def test_a_policy_that_cannot_be_captured_names_the_way_out() -> None:
    """In a process of its own, because a failed capture may leave torch's allocator in disorder."""
    script = (
        "from tests.training.test_gpu import *\nImitationLearner(make_own(Synchronizing), LANES).learn(draw_batch(0))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"RuntimeError: .*--no-cuda-graphs", done.stderr), done.stderr


def test_a_policy_that_cannot_be_captured_trains_without_cuda_graphs() -> None:
    core = ImitationLearner(make_own(Synchronizing), LANES, cuda_graphs=False)
    core.learn(draw_batch(0))
    assert np.isfinite(core.learner.metrics()["loss"])


class Counting(Tiny):
    """Counts its steps in a tensor that is no buffer, which nobody can know of."""

    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros((), device=CUDA)

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.count += 1
        return super().forward(observation, state)


def test_an_undeclared_mutation_of_a_captured_update_is_an_error() -> None:
    core = ImitationLearner(make_own(Counting), LANES)
    with pytest.raises(UndeclaredMutationError, match="mutated"):
        core.learn(draw_batch(0))


def test_an_incomplete_declaration_of_a_captured_function_is_an_error() -> None:
    total = torch.zeros(3, device=CUDA)
    add = CudaGraphFunction(total.add_, CUDA, lambda: [])
    with pytest.raises(UndeclaredMutationError, match=r"\(3,\) float32"):
        add(torch.ones(3))
    declared = CudaGraphFunction(total.add_, CUDA, lambda: [total])
    total.zero_()
    for expected in (1.0, 2.0, 3.0):
        declared(torch.ones(3))
        assert total.tolist() == [expected] * 3


# ------------------------------------------------------------ PPO


def make_ppo(seed: int, hyper: PPOHyperparameters, precision: Precision, cuda_graphs: bool = True) -> PPO:
    engine = Engine("GoToLocal", hyper.worlds)
    engine.reset(100 * seed)
    return PPO(make_agent("small"), engine, hyper, seed=seed, precision=precision, cuda_graphs=cuda_graphs)


def test_captured_ppo_is_ppo() -> None:
    hyper = PPOHyperparameters(worlds=16, steps=8, recurrence=4)
    captured, plain = (make_ppo(0, hyper, "float32", graphs) for graphs in (True, False))
    ours = captured.update()
    theirs = plain.update()
    same = ours.batch.actions == theirs.batch.actions
    assert same.mean() > 0.98
    np.testing.assert_allclose(ours.batch.values[0], theirs.batch.values[0], rtol=0.01, atol=0.01)
    metrics = captured.learner.metrics()
    if same.all():
        for name, value in plain.learner.metrics().items():
            assert metrics[name] == pytest.approx(value, rel=0.05, abs=0.05), name


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_runs_on_three_streams_are_runs_alone(precision: Precision) -> None:
    """Graphs that are replayed at the same time must not share scratch memory. Three float32 runs once hung the GPU."""
    hyper = PPOHyperparameters()
    updates = 4

    def play_alone() -> list[list[Rollout]]:
        return [[trainer.update() for _ in range(updates)] for trainer in make_trainers()]

    def make_trainers() -> list[PPO]:
        return [make_ppo(seed, hyper, precision) for seed in range(3)]

    alone = play_alone()
    again = play_alone()
    trainers = make_trainers()
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    together: list[list[Rollout]] = [[], [], []]
    # An update ends while its gradient steps are still being computed, and the next run's update starts beside them.
    for _ in range(updates):
        for rollouts, trainer, stream in zip(together, trainers, streams, strict=True):
            with torch.cuda.stream(stream):
                rollouts.append(trainer.update())
    torch.cuda.synchronize()
    # An action that rounding changes affects everything that follows in its world, so not even the same run twice is
    # equal throughout.
    assert agreement_of(alone, together) > agreement_of(alone, again) - 0.05
    for trainer in trainers:
        assert all(np.isfinite(value) for value in trainer.learner.metrics().values())


def agreement_of(runs: list[list[Rollout]], others: list[list[Rollout]]) -> float:
    """How many actions are the same in two groups of runs."""
    pairs = [(one, other) for run, twin in zip(runs, others, strict=True) for one, other in zip(run, twin, strict=True)]
    return float(np.mean([(one.batch.actions == other.batch.actions).mean() for one, other in pairs]))


# ------------------------------------------------------------ acting


@pytest.mark.parametrize("size", ["small", "big"])
def test_captured_acting_is_acting(size: str) -> None:
    policy = make_agent(size).eval()
    engine = Engine("GoToLocal", LANES)
    engine.reset(0)
    captured = Actor(policy, LANES, device="cuda")
    plain = Actor(policy, LANES, device="cuda", cuda_graphs=False)
    starts = np.ones(LANES, dtype=bool)
    agreement = []
    for _ in range(30):
        observation = (engine.images, engine.missions, engine.directions, starts)
        actions = captured.act(*observation)
        expected = plain.act(*observation)
        agreement.append((actions == expected).mean())
        engine.step(expected)
        starts = engine.reset_done()
    assert np.mean(agreement) > 0.99
    for ours, theirs in zip(tree_leaves(captured.state), tree_leaves(plain.state), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-2, rtol=1e-2)


def test_sampling_and_argmax_are_captured_separately() -> None:
    engine = Engine("GoToLocal", 256)
    engine.reset(0)
    actor = Actor(make_agent("small").eval(), 256, device="cuda")
    observation = (engine.images, engine.missions, engine.directions, np.ones(256, dtype=bool))
    argmax = actor.act(*observation)
    actor.sample = True
    first = actor.act(*observation)
    second = actor.act(*observation)
    assert not np.array_equal(first, argmax) and not np.array_equal(first, second)
    actor.sample = False
    assert np.array_equal(actor.act(*observation), argmax)


def test_a_captured_policy_of_ones_own_acts_like_a_plain_one() -> None:
    batch = example_batch(steps=4, lanes=LANES)
    policy = make_own(TwoMemories).eval()
    captured = Actor(policy, LANES, device="cuda")
    plain = Actor(policy, LANES, device="cuda", cuda_graphs=False)
    arrays = batch.map(np.asarray)
    for step in range(4):
        seen = arrays.observation(step)
        missions = np.zeros((LANES, 72), dtype=np.uint8)
        missions[:, : seen["mission"].shape[1]] = seen["mission"]
        observation = (seen["image"], missions, seen["direction"], arrays.starts[step])
        assert np.array_equal(captured.act(*observation), plain.act(*observation))
    for ours, theirs in zip(tree_leaves(captured.state), tree_leaves(plain.state), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
