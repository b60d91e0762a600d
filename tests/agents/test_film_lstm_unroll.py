"""Unrolling many steps at once equals one step after the other, gradients included."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from babyai.agents.config import ARCHITECTURES, AgentConfig
from babyai.agents.film_lstm.lstm import lstm_step
from babyai.agents.film_lstm.model import Encoded, FilmLSTM
from babyai.agents.policy import Unrolled, unroll, unroll_steps
from babyai.batch import Batch
from tests.agents.random_batches import N, T, first_steps, gradients, random_batch, random_state

BIG = {"size": "big", "memory_dim": 24, "word_dim": 16}
ALL_INPUTS = {"direction": True, "last_action": True}


def assert_close(given: Unrolled, expected: Unrolled, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(tuple(given), tuple(expected), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "settings",
    [
        *({}, pytest.param(BIG, marks=pytest.mark.long), {"memory_dim": 0}),
        *(pytest.param(ALL_INPUTS, marks=pytest.mark.long), BIG | ALL_INPUTS, {"instruction": False}),
    ],
    ids=["small", "big", "no memory", "all inputs", "big, all inputs", "no instruction"],
)
def test_unrolling_equals_one_step_after_the_other(architecture: str, settings: dict[str, Any]) -> None:
    """With batch normalization in evaluation mode, so that it does not matter what it averages over.

    In float64, because rounding decides which of two almost equal pixels max-pooling takes the gradient of.
    """
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of(architecture, **settings)).double().eval()
    batch = random_batch(model.pixels)
    state = random_state(model, torch.float64)
    expected = unroll_steps(model, batch, state)
    given = unroll(model, batch, state)
    assert given.logits.shape == (T, N, 7)
    assert given.values.shape == (T, N)
    assert_close(given, expected, 1e-6)
    one_step = first_steps(batch, 1)
    with torch.no_grad():
        assert_close(unroll(model, one_step, state), unroll_steps(model, one_step, state), 1e-6)
    expected_gradients = gradients(model, expected.logits, expected.values)
    given_gradients = gradients(model, given.logits, given.values)
    assert given_gradients.keys() == expected_gradients.keys()
    assert len(given_gradients) > 20
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(given_gradients[name], gradient, atol=1e-7, rtol=1e-5, msg=name)


@pytest.mark.parametrize("settings", [{}, BIG], ids=["small", "big"])
def test_two_halves_of_a_batch_equal_the_whole(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of(**settings)).eval()
    batch = random_batch()
    state = random_state(model)
    whole = unroll(model, batch, state)
    first = unroll(model, first_steps(batch, 2), state)
    rest = unroll(model, batch.map_steps(lambda array: array[2:]), first.state)
    halves = Unrolled(torch.cat([first.logits, rest.logits]), torch.cat([first.values, rest.values]), rest.state)
    assert_close(halves, whole)


def test_batch_normalization_averages_over_the_batch_or_over_a_step() -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of()).train()
    batch = random_batch()
    state = model.initial_state(N)
    by_batch = unroll(model, batch, state)
    by_step = unroll(model, batch, state, step_by_step=True)
    assert torch.equal(by_step.logits, unroll_steps(model, batch, state).logits)
    assert not torch.allclose(by_batch.logits, by_step.logits, atol=1e-3)
    # A batch of one step is the same either way.
    torch.testing.assert_close(unroll(model, first_steps(batch, 1), state).logits, by_step.logits[:1])


def unroll_by_autograd(model: FilmLSTM, batch: Batch, state: Any) -> Unrolled:
    """Batch normalization averages over the same as in `FilmLSTM.unroll`, but all gradients are left to autograd."""
    index = batch.mission_index.flatten().long()
    image, convolved = model.encode_image(batch.images.flatten(0, 1))
    encoded = Encoded(image, convolved, model.instruction_encoder(batch.missions)[index], batch.missions[index], None)
    features = None
    if not model.config.attention:
        features = model.apply_film(encoded, model.instruction_vector(encoded, state))
    logits = []
    values = []
    for step, starts in enumerate(batch.starts):
        lanes = slice(step * N, step * N + N)
        state = tuple(part * ~starts[:, None] for part in state)
        if features is None:
            step_encoded = Encoded(*(part[lanes] for part in encoded[:4]), None)
            step_logits, step_values, state = model.step(step_encoded, state)
        else:
            assert model.lstm is not None
            state = lstm_step(model.lstm, features[lanes], *state)
            step_logits, step_values = model.heads(state[0])
        logits.append(step_logits)
        values.append(step_values)
    return Unrolled(torch.stack(logits), torch.stack(values), state)


def running_statistics(model: FilmLSTM) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers() if "running" in name}


@pytest.mark.parametrize("settings", [{"memory_dim": 24}, {"size": "big", "memory_dim": 24}], ids=["small", "big"])
@pytest.mark.parametrize("architecture", ["original", "bow_endpool_res"])
def test_gradients_equal_autograd_in_training_mode(architecture: str, settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = FilmLSTM(AgentConfig.of(architecture, word_dim=16, **settings)).double().train()
    batch = random_batch()
    state = random_state(model, torch.float64)
    plain = deepcopy(model)
    before = running_statistics(model)
    given = unroll(model, batch, state)
    expected = unroll_by_autograd(plain, batch, state)
    assert_close(given, expected, 1e-6)
    after = running_statistics(model)
    assert all(not torch.equal(after[name], before[name]) for name in before)
    torch.testing.assert_close(after, running_statistics(plain))
    given_gradients = gradients(model, given.logits, given.values)
    expected_gradients = gradients(plain, expected.logits, expected.values)
    assert given_gradients.keys() == expected_gradients.keys()
    assert len(given_gradients) > 20
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(given_gradients[name], gradient, atol=1e-7, rtol=1e-5, msg=name)
