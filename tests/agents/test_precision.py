"""Mixed precision: bf16 computes nearly the same, and the weights that are optimized stay in float32."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from babyai.agents.actor import Actor
from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import Unrolled, unroll
from babyai.agents.precision import MixedPrecision
from babyai.tree import tree_leaves
from tests.agents.own_policies import POLICIES, Recurrent
from tests.agents.random_batches import N, random_batch


def loss_of(unrolled: Unrolled) -> Tensor:
    target = torch.linspace(-1, 1, unrolled.logits.numel()).view_as(unrolled.logits)
    return (unrolled.logits - target).square().mean() + unrolled.values.square().mean()


def compute(mixed: MixedPrecision) -> tuple[Unrolled, dict[str, Tensor]]:
    """What a learner computes: the outputs and the gradients of the float32 weights."""
    with mixed.autocast():
        unrolled = unroll(mixed.compute, random_batch(), mixed.model.initial_state(N))
    mixed.backward(loss_of(unrolled))
    return unrolled, {name: p.grad for name, p in mixed.model.named_parameters() if p.grad is not None}


def assert_nearly_equal(policy: nn.Module) -> None:
    full, full_gradients = compute(MixedPrecision(policy, "float32"))
    full_gradients = {name: gradient.clone() for name, gradient in full_gradients.items()}
    half, half_gradients = compute(MixedPrecision(policy, "bf16"))
    assert half.logits.dtype == torch.float32
    assert half.values.dtype == torch.float32
    assert [leaf.dtype for leaf in tree_leaves(half.state)] == [leaf.dtype for leaf in tree_leaves(full.state)]
    assert not torch.equal(half.logits, full.logits)
    torch.testing.assert_close(half.logits, full.logits, atol=0.05, rtol=0.05)
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert half_gradients.keys() == full_gradients.keys()
    for name, expected in full_gradients.items():
        assert half_gradients[name].dtype == torch.float32
        near = cosine_similarity(half_gradients[name].flatten(), expected.flatten(), 0)
        assert near > 0.97 or expected.norm() < 1e-6, f"{name}: {near}"


@pytest.mark.parametrize("settings", [{}, {"size": "big", "memory_dim": 24, "word_dim": 16}], ids=["small", "big"])
def test_bf16_computes_nearly_the_same_gradients_in_float32(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    assert_nearly_equal(FilmLSTM(AgentConfig.of(**settings)).eval())


@pytest.mark.parametrize("own", POLICIES)
def test_a_policy_of_ones_own_computes_in_bf16_by_autocast(own: type[Recurrent]) -> None:
    torch.manual_seed(0)
    policy = own()
    mixed = MixedPrecision(policy, "bf16")
    assert mixed.compute is policy
    assert mixed.half_weights() == []
    with mixed.autocast():
        assert policy.actor(torch.zeros(1, policy.actor.in_features)).dtype == torch.bfloat16
    with MixedPrecision(policy, "float32").autocast():
        assert policy.actor(torch.zeros(1, policy.actor.in_features)).dtype == torch.float32
    assert_nearly_equal(policy)


def test_the_copy_that_computes_follows_the_float32_weights() -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of()).eval()
    mixed = MixedPrecision(model, "bf16")
    assert {parameter.dtype for parameter in mixed.compute.parameters()} == {torch.float32, torch.bfloat16}
    before, _ = compute(mixed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25)
    mixed.update_weights()
    for computing, full in zip(mixed.compute.parameters(), model.parameters(), strict=True):
        assert torch.equal(computing.float(), full.to(computing.dtype).float())
    assert not torch.allclose(compute(mixed)[0].logits, before.logits, atol=0.05)
    assert MixedPrecision(model, "float32").compute is model


def test_batch_normalization_statistics_are_shared_and_in_float32() -> None:
    model = FilmLSTM(AgentConfig.of()).train()
    mixed = MixedPrecision(model, "bf16")
    before = model.film1.norm1.running_mean.clone()
    compute(mixed)
    assert model.film1.norm1.running_mean.dtype == torch.float32
    assert not torch.equal(model.film1.norm1.running_mean, before)
    assert mixed.compute.film1.norm1.running_mean is model.film1.norm1.running_mean


def test_a_part_that_the_loss_does_not_use_gets_no_gradient() -> None:
    model = FilmLSTM(AgentConfig.of()).eval()
    mixed = MixedPrecision(model, "bf16")
    unrolled = unroll(mixed.compute, random_batch(), model.initial_state(N))
    mixed.backward(unrolled.logits.square().mean())
    without = {name.partition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {"critic"}


@pytest.mark.parametrize("own", POLICIES)
def test_a_policy_of_ones_own_acts_in_bf16(own: type[Recurrent]) -> None:
    torch.manual_seed(0)
    policy = own()
    initial = [leaf.dtype for leaf in tree_leaves(policy.initial_state(N))]
    actor = Actor(policy, N, precision="bf16")
    batch = random_batch().map(Tensor.numpy)
    missions = np.zeros((N, 72), dtype=np.uint8)
    for step in range(3):
        actions = actor.act(batch.images[step], missions, batch.directions[step], batch.starts[step])
        assert actions.shape == (N,)
    assert [leaf.dtype for leaf in tree_leaves(actor.state)] == initial
