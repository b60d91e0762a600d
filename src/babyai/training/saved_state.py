"""Checks what a checkpoint holds as JSON: it may come from elsewhere."""

from numbers import Number
from typing import Any


def check_structure(saved: Any, fresh: Any, path: str = "state") -> None:
    """Raises a ValueError unless saved JSON has the structure of the state of an algorithm that has just started.

    Args:
        saved: From the checkpoint.
        fresh: What it will replace. None, and the elements of an empty list, may be anything.
        path: Where this is, for the message.
    """
    if isinstance(fresh, dict):
        if not isinstance(saved, dict) or saved.keys() != fresh.keys():
            raise ValueError(f"{path} should have the keys {', '.join(map(str, fresh))}")
        for key, value in fresh.items():
            check_structure(saved[key], value, f"{path}.{key}")
    elif isinstance(fresh, list | tuple):
        if not isinstance(saved, list):
            raise ValueError(f"{path} should be a list")
        for index, element in enumerate(saved if fresh else []):
            check_structure(element, fresh[0], f"{path}[{index}]")
    elif fresh is not None and _kind(saved) != _kind(fresh):
        raise ValueError(f"{path} should be a {_kind(fresh)}, not {saved!r:.60}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, Number) else type(value).__name__
