"""`benchmarks.quickstart_precision`: products are rounded as the instructions round them, and both precisions train."""

import pytest
import torch

from babyai import quickstart
from babyai.quickstart import Recipe
from benchmarks.quickstart_precision import EmulatedBf16, Settings, measure, table


def test_emulated_products_are_rounded_products() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, image, kernel = (
        torch.randn(shape, generator=generator, dtype=torch.bfloat16, requires_grad=True)
        for shape in ((5, 7), (7, 3), (2, 4, 6, 6), (3, 4, 3, 3))
    )
    with EmulatedBf16():
        product = a @ b
        convolved = torch.nn.functional.conv2d(image, kernel)
        (product.sum() + convolved.sum()).backward()
        out = torch.mm(a.detach(), b.detach(), out=torch.empty(5, 3, dtype=torch.bfloat16))
        assert torch.mm(a.detach().float(), b.detach().float()).dtype == torch.float32
    assert torch.equal(product, (a.float() @ b.float()).bfloat16()) and torch.equal(product, out)
    assert torch.equal(convolved, torch.nn.functional.conv2d(image.float(), kernel.float()).bfloat16())
    wide = kernel.detach().float().requires_grad_()
    torch.nn.functional.conv2d(image.detach().float(), wide).sum().backward()
    assert wide.grad is not None and kernel.grad is not None
    assert torch.equal(kernel.grad, wide.grad.bfloat16())


@pytest.mark.long
@pytest.mark.compiled
def test_both_precisions_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickstart, "_film", lambda *_: None)
    results = measure(Settings(seeds=2, recipe=Recipe(demos=40, updates=6, lanes=2, steps=5, missions=6)))
    assert {len(rates) for rates in results["success_rates"].values()} == {2} and 0 <= results["p"] <= 1
    text = table(results)
    assert "| float32 " in text and "| bf16 " in text and "Welch's test" in text
