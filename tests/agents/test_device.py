"""Which precision is the default where."""

import pytest
import torch

from babyai.agents import device as devices
from babyai.agents.device import find_precision, has_bf16_instructions

CPU = torch.device("cpu")
GPU = torch.device("cuda")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx512_bf16": True, "avx2": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True}, False), ({}, False)],
)
def test_bf16_instructions_are_found(
    capabilities: dict[str, bool], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert has_bf16_instructions() is expected


def test_torch_without_the_query_means_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not has_bf16_instructions()


@pytest.mark.parametrize("fast", [False, True])
def test_training_uses_bf16_where_it_is_fast(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_bf16_instructions", lambda: fast)
    assert find_precision(None, CPU, training=True) == ("bf16" if fast else "float32")
    assert find_precision(None, CPU) == "float32"
    assert find_precision(None, GPU) == find_precision(None, GPU, training=True) == "bf16"
    assert find_precision("float32", GPU, training=True) == "float32"
    assert find_precision("bf16", CPU) == "bf16"
    with pytest.raises(ValueError, match="'fp8'"):
        find_precision("fp8", CPU)
