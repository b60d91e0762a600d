"""Whether two runs ended the same, to the bit."""

from pathlib import Path
from typing import Any

import torch

from babyai.agents.checkpoint import read_tensors
from babyai.training.run import read_checkpoint, read_rows

TIMES = ("seconds", "frames_per_second", "validation_seconds")


def without_times(value: Any) -> Any:
    """Rows without the measurements that differ from run to run."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return value


def newest(folder: Path) -> Path:
    """The newest checkpoint of a run."""
    return max(path for path in (folder / "checkpoints").iterdir() if path.name.isdecimal())


def best(folder: Path) -> Path:
    """The best checkpoint of a run."""
    [path] = (folder / "checkpoints").glob("best-*")
    return path


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The agent's weights in a checkpoint."""
    return read_tensors(checkpoint / "model.safetensors")[0]


def assert_equal_tensors(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


def assert_same_run(first: Path, second: Path) -> None:
    """Rows, weights, optimizer, generators and positions are equal; times need not be."""
    assert [without_times(row) for row in read_rows(first)] == [without_times(row) for row in read_rows(second)]
    ours = read_checkpoint(newest(first))
    theirs = read_checkpoint(newest(second))
    assert ours.folder.name == theirs.folder.name
    assert_equal_tensors(ours.model, theirs.model)
    assert_equal_tensors(ours.tensors, theirs.tensors)
    assert ours.state == theirs.state
    assert best(first).name == best(second).name
    assert_equal_tensors(weights(best(first)), weights(best(second)))
