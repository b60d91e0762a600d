"""The LSTM equals torch's, and hand-written gradients equal those of autograd."""

import pytest
import torch
from torch import Tensor, nn

from babyai.agents.film_lstm.lstm import SharedLinear, keep_mask, lstm_scan, lstm_step

T = 6
N = 4
INPUTS = 5
UNITS = 3


@pytest.fixture
def cell() -> nn.LSTMCell:
    torch.manual_seed(0)
    return nn.LSTMCell(INPUTS, UNITS).double()


def test_a_step_equals_torchs(cell: nn.LSTMCell) -> None:
    x = torch.randn(N, INPUTS, dtype=torch.float64)
    state = tuple(torch.randn(2, N, UNITS, dtype=torch.float64))
    torch.testing.assert_close(lstm_step(cell, x, *state), cell(x, state))


def test_a_step_keeps_its_state_in_float32_with_weights_in_bf16() -> None:
    torch.manual_seed(0)
    cell = nn.LSTMCell(INPUTS, UNITS)
    x = torch.randn(N, INPUTS)
    state = tuple(torch.randn(2, N, UNITS))
    expected = cell(x, state)
    given = lstm_step(cell.bfloat16(), x, *state)
    assert [part.dtype for part in given] == [torch.float32] * 2
    torch.testing.assert_close(given, expected, atol=0.02, rtol=0.02)


def test_keep_mask_is_false_where_episodes_start() -> None:
    starts = torch.tensor([[True, False], [False, True]])
    assert keep_mask(starts)[..., 0].tolist() == [[False, True], [True, False], [True, True]]


def scan_by_torch(cell: nn.LSTMCell, x: Tensor, starts: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for x_now, starts_now in zip(x, starts, strict=True):
        keep = ~starts_now[:, None]
        h, c = cell(x_now, (h * keep, c * keep))
        outputs.append(h)
    return torch.stack(outputs), h, c


def test_a_scan_equals_torchs_steps_and_has_their_gradients(cell: nn.LSTMCell) -> None:
    x = torch.randn(T, N, INPUTS, dtype=torch.float64)
    starts = torch.rand(T, N) < 0.3
    assert starts.any()
    h, c = torch.randn(2, N, UNITS, dtype=torch.float64)

    def scan() -> tuple[Tensor, Tensor, Tensor]:
        inputs = nn.functional.linear(x, cell.weight_ih, cell.bias_ih + cell.bias_hh)
        return lstm_scan(inputs, starts, h, c, cell.weight_hh)

    def loss(outputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return sum((part * torch.linspace(-1, 2, part.numel()).view_as(part)).sum() for part in outputs)

    torch.testing.assert_close(scan(), scan_by_torch(cell, x, starts, h, c))
    weights = list(cell.parameters())
    expected = torch.autograd.grad(loss(scan_by_torch(cell, x, starts, h, c)), weights)
    torch.testing.assert_close(torch.autograd.grad(loss(scan()), weights), expected)


def test_the_gradient_of_a_scan_equals_finite_differences(cell: nn.LSTMCell) -> None:
    inputs = torch.randn(T, N, 4 * UNITS, dtype=torch.float64, requires_grad=True)
    starts = torch.rand(T, N) < 0.3
    h, c = torch.randn(2, N, UNITS, dtype=torch.float64)
    weight = cell.weight_hh.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda i, w: lstm_scan(i, starts, h, c, w), (inputs, weight))


def test_no_gradient_flows_into_the_state_before_a_scan(cell: nn.LSTMCell) -> None:
    inputs = torch.randn(T, N, 4 * UNITS, dtype=torch.float64)
    h, c = torch.randn(2, N, UNITS, dtype=torch.float64).requires_grad_()
    outputs, _, _ = lstm_scan(inputs, torch.zeros(T, N, dtype=torch.bool), h, c, cell.weight_hh)
    assert torch.autograd.grad(outputs.sum(), (h, c), allow_unused=True) == (None, None)


def test_a_shared_linear_layer_learns_from_every_use_once() -> None:
    torch.manual_seed(0)
    weight, bias, x = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 2), (3,), (4, 2)))

    def use(shared: bool) -> Tensor:
        linear = SharedLinear(weight, bias) if shared else (lambda y: nn.functional.linear(y, weight, bias))
        return linear(linear(x)[:, :2].tanh()).square().sum() + linear(x.detach()).sum()

    torch.testing.assert_close(use(shared=True), use(shared=False))
    for leaf in (weight, bias, x):
        (expected,) = torch.autograd.grad(use(shared=False), leaf)
        (given,) = torch.autograd.grad(use(shared=True), leaf)
        torch.testing.assert_close(given, expected)
    loss = use(shared=True)
    # Neither what another gradient left behind nor an earlier call counts again.
    torch.autograd.grad(loss, x, retain_graph=True)
    for _ in range(2):
        given = torch.autograd.grad(loss, (weight, bias), retain_graph=True)
        torch.testing.assert_close(given, torch.autograd.grad(use(shared=False), (weight, bias)))
