"""Whether two runs came to the same end, to the bit."""

from pathlib import Path
from typing import Any

import torch

from babyai.agents.tensors import read_tensors
from babyai.training.checkpoints import read_state
from babyai.training.run import read_rows

TIMES = ("seconds", "frames_per_second", "validation_seconds")


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return value


def newest(folder: Path) -> Path:
    return max(path for path in (folder / "checkpoints").iterdir() if path.name.isdecimal())


def weights(folder: Path, name: str | None = None) -> dict[str, torch.Tensor]:
    """Of the checkpoint of that name, or the newest."""
    return read_tensors(folder / "checkpoints" / name if name else newest(folder))


def assert_equal_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


def assert_same_run(first: Path, second: Path) -> None:
    """Rows, weights, optimizer, generators and positions are equal; times need not be."""
    assert [without_times(row) for row in read_rows(first)] == [without_times(row) for row in read_rows(second)]
    one, other = newest(first), newest(second)
    assert one.name == other.name
    for name in ("model", "training"):
        assert_equal_tensors(read_tensors(one, name), read_tensors(other, name))
    assert read_state(one)["state"] == read_state(other)["state"]
    assert_equal_tensors(weights(first, "best"), weights(second, "best"))
