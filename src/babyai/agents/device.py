"""Devices and precisions."""

from typing import Literal

import torch
from torch import nn

Precision = Literal["float32", "bf16"]
PRECISIONS: tuple[str, ...] = Precision.__args__  # pyright: ignore[reportAttributeAccessIssue]


def find_device(name: str = "auto") -> torch.device:
    """The torch device of that name; "auto" is the GPU if there is one.

    Raises:
        ValueError: There is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}; use 'auto', 'cpu', 'cuda' or 'cuda:<index>'")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"torch finds no GPU, so the device {name!r} is not available; use 'cpu' or 'auto'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"no device {name!r}: this machine has {torch.cuda.device_count()} GPU(s)")
    return device


def find_precision(name: str | None, device: torch.device, *, training: bool = False) -> Precision:
    """The precision of that name.

    Args:
        name: "float32" or "bf16". None means bf16 on a GPU and, to train, on a processor with instructions for it;
            float32 elsewhere.
        device: Where the model is.
        training: Whether it is to be trained.
    """
    if name is None:
        return "bf16" if device.type == "cuda" or (training and has_bf16_instructions()) else "float32"
    if name not in PRECISIONS:
        raise ValueError(f"unknown precision {name!r}; choose from {', '.join(PRECISIONS)}")
    return name  # pyright: ignore[reportReturnType]


def has_bf16_instructions() -> bool:
    """Whether this processor multiplies in bf16: AVX-512 BF16 or AMX. Without them, bf16 is slower than float32."""
    # Versions of torch without this function train in float32.
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def place_model(model: nn.Module, device: torch.device) -> nn.Module:
    """Moves a model to a device, with channels-last convolution weights, which are fastest."""
    return model.to(device=device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
