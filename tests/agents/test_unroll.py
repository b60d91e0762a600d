"""Unrolling a chunk fast gives what the plain loop gives, gradients included."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from babyai.agents.config import ARCHITECTURES, AgentConfig
from babyai.agents.model import Model, Perceived, step_lstm
from babyai.agents.precision import Working
from babyai.agents.recurrence import SharedProduct, remember_all
from babyai.agents.unroll import Steps, Unrolled, Unroller, unroll_plainly

T, N, M, L = 6, 4, 7, 9


def draw_steps(config: AgentConfig, seed: int = 0) -> Steps:
    generator = torch.Generator().manual_seed(seed)
    shape, most = ((56, 56, 3), 256) if config.pixels else ((7, 7, 3), 6)
    missions = torch.randint(1, 33, (M, L), generator=generator).to(torch.uint8)
    missions[:, 5:] *= torch.rand(M, 1, generator=generator) < 0.5
    return Steps(
        images=torch.randint(0, most, (T, N, *shape), generator=generator).to(torch.uint8),
        directions=torch.randint(0, 4, (T, N), generator=generator),
        last_actions=torch.randint(-1, 7, (T, N), generator=generator),
        first=torch.rand(T, N, generator=generator) < 0.3,
        missions=missions,
        mission_index=torch.randint(0, M, (T, N), generator=generator).int(),
    )


def first_of(steps: Steps) -> Steps:
    return replace(steps, **{name: getattr(steps, name)[:1] for name in vars(steps) if name != "missions"})


def gradients(model: nn.Module, logits: Tensor, values: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    target = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    ((logits - target).square().mean() + values.square().mean()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"size": "big", "memory_dim": 24, "word_dim": 16},
        {"memory_dim": 0},
        {"direction": True, "last_action": True},
        {"size": "big", "memory_dim": 24, "word_dim": 16, "direction": True, "last_action": True},
        {"instruction": False},
    ],
    ids=["small", "big", "no memory", "told more", "big, told more", "told nothing"],
)
def test_whole_chunks_give_what_single_steps_give(architecture: str, settings: dict) -> None:
    """With batch norm in evaluation mode, so that what it averages over makes no difference."""
    torch.manual_seed(0)
    model = Model(AgentConfig.of(architecture, **settings)).eval()
    steps = draw_steps(model.config)
    memory = torch.randn(N, 2 * model.config.memory_dim)
    plain, fast = unroll_plainly(model, steps, memory), Unroller(model)(steps, memory)
    for expected, given in zip(plain, fast, strict=True):
        torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    # Who only acts goes a shorter way.
    with torch.no_grad():
        for expected, given in zip(
            unroll_plainly(model, first_of(steps), memory), Unroller(model)(first_of(steps), memory), strict=True
        ):
            torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)
    expected_gradients = gradients(model, plain.logits, plain.values)
    given_gradients = gradients(model, fast.logits, fast.values)
    assert given_gradients.keys() == expected_gradients.keys() and len(given_gradients) > 20
    for name, expected in expected_gradients.items():
        torch.testing.assert_close(given_gradients[name], expected, atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("size", ["small", "big"])
def test_parts_can_be_compiled(size: str) -> None:
    """Which needs a compiler, and time; here torch is told to leave it at that."""
    torch.manual_seed(0)
    model = Model(AgentConfig.of(size=size, memory_dim=24)).eval()
    steps, memory = draw_steps(model.config), torch.randn(N, 48)
    with torch.compiler.set_stance("force_eager"):
        given = Unroller(model, compiled=True)(steps, memory)
    for one, other in zip(given, Unroller(model)(steps, memory), strict=True):
        assert torch.equal(one, other)


def test_batch_norm_averages_over_the_chunk_or_over_a_step() -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of()).train()
    steps, memory = draw_steps(model.config), model.initial_memory(N)
    whole, single = Unroller(model, "chunk")(steps, memory), Unroller(model, "step")(steps, memory)
    assert torch.equal(single.logits, unroll_plainly(model, steps, memory).logits)
    assert not torch.allclose(whole.logits, single.logits, atol=1e-3)
    torch.testing.assert_close(Unroller(model)(first_of(steps), memory).logits, single.logits[:1])


def unroll_by_hand(model: Model, steps: Steps, memory: Tensor) -> Unrolled:
    """Norms see what they see in `Unroller`, but everything else is left to autograd."""
    index = steps.mission_index.flatten()
    words, tokens = model.read(steps.missions)[index.long()], steps.missions[index.long()]
    perceived = Perceived(*model.view(steps.images.flatten(0, 1)), words, tokens, None)
    looked = None if model.config.attention else model.look(perceived, model.listen(perceived, memory))
    logits, values = [], []
    for step, first in enumerate(steps.first):
        memory, lanes = memory * ~first[:, None], slice(step * N, step * N + N)
        if looked is None:
            at_step = model.respond(Perceived(*(part[lanes] for part in perceived[:4]), None), memory)
        else:
            assert model.memory is not None
            memory = torch.cat(step_lstm(model.memory, looked[lanes], *memory.chunk(2, 1)), 1)
            at_step = *model.decide(memory.chunk(2, 1)[0]), memory
        logits.append(at_step[0])
        values.append(at_step[1])
        memory = at_step[2]
    return Unrolled(torch.stack(logits), torch.stack(values), memory)


@pytest.mark.parametrize("settings", [{"memory_dim": 24}, {"size": "big", "memory_dim": 24}], ids=["small", "big"])
@pytest.mark.parametrize("architecture", ["original", "bow_endpool_res"])
def test_gradients_are_those_of_autograd_also_in_training(architecture: str, settings: dict) -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of(architecture, word_dim=16, **settings)).double().train()
    steps, memory = draw_steps(model.config), torch.randn(N, 48, dtype=torch.float64)
    given, expected = Unroller(model)(steps, memory), unroll_by_hand(model, steps, memory)
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=1e-6, rtol=1e-6)
    given_gradients = gradients(model, given.logits, given.values)
    expected_gradients = gradients(model, expected.logits, expected.values)
    assert given_gradients.keys() == expected_gradients.keys() and len(given_gradients) > 20
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(given_gradients[name], gradient, atol=1e-7, rtol=1e-5, msg=name)


def test_a_shared_product_learns_from_every_use_once() -> None:
    torch.manual_seed(0)
    weight, bias, x = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 2), (3,), (4, 2)))

    def use(shared: bool) -> Tensor:
        product = SharedProduct(weight, bias) if shared else (lambda y: nn.functional.linear(y, weight, bias))
        return product(product(x)[:, :2].tanh()).square().sum() + product(x.detach()).sum()

    for each in (weight, bias, x):
        expected = torch.autograd.grad(use(shared=False), each)[0]
        torch.testing.assert_close(torch.autograd.grad(use(shared=True), each)[0], expected)
    loss = use(shared=True)
    # Neither what another gradient left behind nor an earlier call counts again.
    torch.autograd.grad(loss, x, retain_graph=True)
    for _ in range(2):
        given = torch.autograd.grad(loss, (weight, bias), retain_graph=True)
        torch.testing.assert_close(given, torch.autograd.grad(use(shared=False), (weight, bias)))


def test_the_recurrence_is_that_of_torch_and_has_its_gradient() -> None:
    torch.manual_seed(0)
    cell = nn.LSTMCell(5, 3).double()
    inputs, first = torch.randn(T, N, 5, dtype=torch.float64), torch.rand(T, N) < 0.3
    memory = torch.randn(N, 6, dtype=torch.float64)
    h, c = memory.chunk(2, 1)
    expected = []
    for x, begins in zip(inputs, first, strict=True):
        h, c = cell(x, (h * ~begins[:, None], c * ~begins[:, None]))
        expected.append(h)
    gates = nn.functional.linear(inputs, cell.weight_ih, cell.bias_ih + cell.bias_hh)
    states, after = remember_all(gates, first, memory, cell.weight_hh)
    torch.testing.assert_close(states, torch.stack(expected))
    torch.testing.assert_close(after, torch.cat([h, c], 1))

    gates, weight = gates.detach().requires_grad_(), cell.weight_hh.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda g, w: remember_all(g, first, memory, w), (gates, weight))


@pytest.mark.parametrize("size", ["small", "big"])
def test_bf16_computes_nearly_the_same_and_learns_in_float32(size: str) -> None:
    torch.manual_seed(0)
    settings = {"memory_dim": 24, "word_dim": 16} if size == "big" else {}
    model = Model(AgentConfig.of(size=size, **settings)).eval()
    working = Working(model, "bf16")
    steps, memory = draw_steps(model.config), model.initial_memory(N)
    plain = Unroller(model)(steps, memory)
    expected = gradients(model, plain.logits, plain.values)
    expected = {name: gradient.clone() for name, gradient in expected.items()}
    working.forget_gradients()
    half = Unroller(working.model)(steps, memory)
    assert half.logits.dtype == torch.float32 and not torch.equal(half.logits, plain.logits)
    torch.testing.assert_close(half.logits, plain.logits, atol=0.05, rtol=0.05)
    gradients(working.model, half.logits, half.values)
    working.hand_back()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        if name in expected:
            assert parameter.grad is not None
            near = torch.nn.functional.cosine_similarity(parameter.grad.flatten(), expected[name].flatten(), 0)
            assert near > 0.97 or expected[name].norm() < 1e-6, f"{name}: {near}"


def test_bf16_follows_the_weights_that_are_kept() -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of()).eval()
    working = Working(model, "bf16")
    assert {p.dtype for p in working.model.parameters()} == {torch.float32, torch.bfloat16}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25)
    working.refresh()
    for computing, kept in zip(working.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(computing.float(), kept.to(computing.dtype).float())
    assert Working(model, "float32").model is model
