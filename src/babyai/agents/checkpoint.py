"""Agents as folders: `config.json` says what an agent is, `model.safetensors` holds its weights.

Other files may lie beside them, as a run's optimizer does. A checkpoint appears whole or not at all, and loading one
never runs code that came with it.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from babyai import __version__
from babyai.agents.config import AnyConfig, read_config
from babyai.agents.custom import build_model, trusted_class
from babyai.agents.folders import CONFIG, FORMAT, PathLike, atomic_folder, find_checkpoint, read_settled
from babyai.agents.tensors import CheckpointError, Dtype, read_json, read_tensors, save_tensors, write_file

__all__ = [
    "CheckpointError",
    "atomic_folder",
    "find_checkpoint",
    "load_config",
    "load_model",
    "load_tensors",
    "load_weights",
    "save_model",
    "save_tensors",
    "write_model",
]
FORMAT_VERSION = 1
# How many misfits a message names.
SHOWN = 5


def save_model(
    folder: PathLike,
    model: nn.Module,
    config: AnyConfig,
    *,
    dtype: Dtype = "float32",
    max_part_bytes: int | None = None,
) -> None:
    """Makes `folder` the checkpoint of a model; an older one is replaced, and survives any error.

    Args:
        folder: Its place.
        model: On any device.
        config: What the model was made with.
        dtype: "float32" or, in half the space, "bf16".
        max_part_bytes: No file is larger.

    Raises:
        FileExistsError: There is something at that place that is no checkpoint.
        OSError: The disk is full, or cannot be written to.
    """
    with atomic_folder(folder) as new:
        write_model(new, model, config, dtype=dtype, max_part_bytes=max_part_bytes)


def write_model(
    folder: Path, model: nn.Module, config: AnyConfig, *, dtype: Dtype = "float32", max_part_bytes: int | None = None
) -> None:
    """Writes the files of a checkpoint into a folder that `atomic_folder` gave; others may be written beside them."""
    # A compiled model names its tensors otherwise than the model that it wraps.
    plain = getattr(model, "_orig_mod", model)
    save_tensors(folder, plain.state_dict(), dtype=dtype, max_part_bytes=max_part_bytes)
    says = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "babyai_version": __version__,
        "parameters": sum(parameter.numel() for parameter in plain.parameters()),
        "dtype": dtype,
        "agent": asdict(config),
    }
    write_file(folder / CONFIG, f"{json.dumps(says, indent=1)}\n".encode())


def load_model(
    folder: PathLike, *, model_class: type[nn.Module] | str | None = None, trust: bool = False
) -> tuple[nn.Module, AnyConfig]:
    """The model of a checkpoint, in float32 on the CPU, and what it was made with.

    Args:
        folder: A checkpoint, or a run: of that the best one, or else the newest.
        model_class: The class of a model of your own, or its import path.
        trust: Import the class that the checkpoint names. That runs code; without it, loading never does.

    Raises:
        FileNotFoundError: There is no checkpoint.
        CheckpointError: It is damaged, newer than this program, or of weights that do not fit.
    """
    config, tensors = read_settled(folder, lambda place: (_read_config(place), read_tensors(place, dtype="float32")))
    own = trusted_class(config, str(folder), model_class, trust)
    # Weights that are replaced at once must not change what is drawn afterwards.
    with torch.random.fork_rng(devices=[]):
        model = build_model(config, own)
    fit_tensors(model, tensors, f"the checkpoint at {folder}")
    return model, config


def load_config(folder: PathLike) -> AnyConfig:
    """What the agent of a checkpoint or run was made with."""
    return read_settled(folder, _read_config)


def load_tensors(folder: PathLike, name: str = "model", *, dtype: Dtype | None = None) -> dict[str, Tensor]:
    """The tensors of that name in a checkpoint; "float32" widens those written as bf16."""
    return read_settled(folder, lambda place: read_tensors(place, name, dtype))


def load_weights(model: nn.Module, folder: PathLike) -> None:
    """Gives a model the weights of a checkpoint, which must be of its sizes."""
    fit_tensors(model, load_tensors(folder, dtype="float32"), f"the checkpoint at {folder}")


def fit_tensors(model: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Gives a model these weights, if all of them fit.

    Raises:
        CheckpointError: They do not; nothing has been changed.
    """
    plain = getattr(model, "_orig_mod", model)
    own = plain.state_dict()
    faults = [
        f"{key} is {_shape(tensors.get(key))} there and {_shape(own.get(key))} here"
        for key in [*own, *(key for key in tensors if key not in own)]
        if key not in own or key not in tensors or own[key].shape != tensors[key].shape
    ]
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise CheckpointError(f"{source} is of other sizes than this model: {'; '.join(faults[:SHOWN])}{more}")
    plain.load_state_dict(tensors)


def _shape(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else str(tuple(tensor.shape))


def _read_config(place: Path) -> AnyConfig:
    path = place / CONFIG
    says = read_json(path)
    version = says.get("format_version")
    if says.get("format") != FORMAT or not isinstance(version, int):
        raise CheckpointError(f"{path} does not describe an agent of babyai")
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{place} was written by babyai {says.get('babyai_version')} in format {version}; babyai {__version__} "
            f"reads formats up to {FORMAT_VERSION}: install a newer babyai"
        )
    try:
        return read_config(says.get("agent"))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
