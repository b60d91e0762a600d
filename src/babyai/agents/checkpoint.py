"""Agents as files: `model.safetensors` holds the weights and, in its metadata, the agent's configuration.

One file is replaced atomically, and loading one never runs code that came with it. A checksum detects damage.
"""

import difflib
import json
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load as deserialize
from safetensors.torch import save as serialize
from torch import Tensor, nn

import babyai
from babyai import __version__
from babyai.agents.config import AgentConfig, AnyConfig, read_config
from babyai.agents.custom import build_policy, trusted_class
from babyai.atomic_io import DISK_FULL, PathLike, atomic_file, check_regular

Dtype = Literal["float32", "bf16"]
DTYPES: tuple[str, ...] = Dtype.__args__  # pyright: ignore[reportAttributeAccessIssue]
MODEL = "model.safetensors"
# Where a run keeps its checkpoints, and how the name of its best one begins.
CHECKPOINTS = "checkpoints"
BEST = "best-"
# Agents that come with the package, and where they are in its repository.
SHIPPED = (Path(babyai.__file__).parent / "models", Path(babyai.__file__).parents[2] / "models")
FORMAT_VERSION = 1
# How many names an error message shows.
MAX_SHOWN = 5
# How often to look again for a checkpoint that a running process has just replaced by a newer one.
ATTEMPTS = 5

logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """Not a readable checkpoint, or one that does not fit; the message says what is wrong."""


# ------------------------------------------------------------ agents


def save_agent(folder: PathLike, model: nn.Module, config: AnyConfig, *, dtype: Dtype = "float32") -> None:
    """Writes an agent to `folder`; an older one there is replaced, and survives any error.

    Args:
        folder: Where to; created if needed.
        model: On any device.
        config: Its configuration.
        dtype: "float32" or, in half the space, "bf16".

    Raises:
        OSError: The disk is full or cannot be written to.
    """
    path = Path(folder) / MODEL
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_agent(path, model, config, dtype=dtype)
    except OSError as error:
        if error.errno is None:
            raise
        advice = "free some space and try again" if error.errno in DISK_FULL else "try again"
        before = "the previous one is untouched" if path.exists() else "nothing was written"
        raise OSError(error.errno, f"cannot write the agent {folder}: {error.strerror}; {before}: {advice}") from error


def write_agent(path: Path, model: nn.Module, config: AnyConfig, *, dtype: Dtype = "float32") -> None:
    """Writes an agent to one file, atomically."""
    # A compiled model prefixes the names of its tensors.
    plain = getattr(model, "_orig_mod", model)
    metadata = {
        "babyai_format": str(FORMAT_VERSION),
        "babyai_version": __version__,
        "parameters": str(sum(parameter.numel() for parameter in plain.parameters())),
        "agent": json.dumps(asdict(config)),
    }
    write_tensors(path, plain.state_dict(), metadata, dtype=dtype)


def load_policy(
    path: PathLike, *, model_class: type[nn.Module] | str | None = None, trust: bool = False
) -> tuple[nn.Module, AnyConfig]:
    """The policy of a checkpoint, in float32 on the CPU, and its configuration.

    Args:
        path: A checkpoint's folder or file, or a run's folder: of that the best checkpoint, or else the newest.
        model_class: The class of a policy of your own, or its import path.
        trust: Import the class that the checkpoint names. That runs code; without it, loading never does.

    Raises:
        FileNotFoundError: There is no checkpoint.
        CheckpointError: It is damaged, newer than this program, or its weights do not fit.
    """
    config, tensors = _read_agent(path)
    own = trusted_class(config, str(path), model_class, trust)
    check_fit(config, tensors, f"the checkpoint {path}")
    # Weights that are replaced right away must not advance the generator.
    with torch.random.fork_rng(devices=[]):
        policy = build_policy(config, own)
    load_tensors(policy, tensors, f"the checkpoint {path}")
    return policy, config


def load_config(path: PathLike) -> AnyConfig:
    """The configuration of the agent in a checkpoint or run."""
    return _read_agent(path)[0]


def load_weights(model: nn.Module, path: PathLike) -> None:
    """Gives a model the weights of a checkpoint or run, which must have the same shapes."""
    load_tensors(model, _read_agent(path)[1], f"the checkpoint {path}")


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Gives a model these weights if all of them fit.

    Raises:
        CheckpointError: They do not; nothing has been changed.
    """
    plain = getattr(model, "_orig_mod", model)
    _compare_shapes(plain.state_dict(), tensors, source)
    plain.load_state_dict(tensors)
    broken = [key for key, t in tensors.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    if broken:
        shown = ", ".join(broken[:MAX_SHOWN])
        logger.warning("%s has weights that are NaN or infinite (%s), so it cannot act sensibly", source, shown)


def check_fit(config: AnyConfig, tensors: Mapping[str, Tensor], source: str) -> None:
    """Checks that weights are those of a configuration, before memory for a model of that size is allocated.

    Raises:
        CheckpointError: They are not.
    """
    if isinstance(config, AgentConfig):
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            _compare_shapes(build_policy(config).state_dict(), tensors, source)


def _compare_shapes(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: str) -> None:
    mismatches = [
        f"{key} is {_shape(tensors.get(key))} there and {_shape(own.get(key))} here"
        for key in [*own, *(key for key in tensors if key not in own)]
        if key not in own or key not in tensors or own[key].shape != tensors[key].shape
    ]
    if mismatches:
        more = f"; and {len(mismatches) - MAX_SHOWN} more" if len(mismatches) > MAX_SHOWN else ""
        raise CheckpointError(f"{source} does not fit this model: {'; '.join(mismatches[:MAX_SHOWN])}{more}")


def _shape(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else str(tuple(tensor.shape))


def _read_agent(path: PathLike) -> tuple[AnyConfig, dict[str, Tensor]]:
    for _ in range(ATTEMPTS):
        file = find_checkpoint(path)
        try:
            tensors, metadata = read_tensors(file)
        except FileNotFoundError:
            # A run in progress has written a newer one and removed this one.
            continue
        widened = {key: t.float() if t.dtype == torch.bfloat16 else t for key, t in tensors.items()}
        return _parse_config(metadata, file), widened
    raise CheckpointError(f"{path} is replaced faster than it can be read")


def _parse_config(metadata: Mapping[str, str], file: Path) -> AnyConfig:
    version = metadata.get("babyai_format", "")
    if not version.isdecimal():
        raise CheckpointError(f"{file} does not hold a babyai agent")
    if int(version) > FORMAT_VERSION:
        raise CheckpointError(
            f"{file} was written by babyai {metadata.get('babyai_version')} in format {version}; babyai {__version__} "
            f"reads formats up to {FORMAT_VERSION}: install a newer babyai"
        )
    try:
        return read_config(json.loads(metadata["agent"]))
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: {error}") from None


# ------------------------------------------------------------ finding


def find_checkpoint(path: PathLike) -> Path:
    """The file to read: the checkpoint's own or, of a run, that of the best checkpoint, or else of the newest.

    A name without a folder, if there is no such file, may be one of an agent that comes with the package.

    Raises:
        FileNotFoundError: There is none.
    """
    place = Path(path)
    if place.name == str(path) and not place.exists():
        for folder in SHIPPED:
            if (folder / place / MODEL).is_file():
                return folder / place / MODEL
    if place.is_file():
        return place
    if (place / MODEL).is_file():
        return place / MODEL
    inside = place / CHECKPOINTS if (place / CHECKPOINTS).is_dir() else place
    names = os.listdir(inside) if inside.is_dir() else []
    best = [name for name in names if name.startswith(BEST) and name.removeprefix(BEST).isdecimal()]
    best.sort(key=lambda name: int(name.removeprefix(BEST)), reverse=True)
    numbered = sorted((name for name in names if name.isdecimal()), key=int, reverse=True)
    for name in [*best, *numbered]:
        if (inside / name / MODEL).is_file():
            return inside / name / MODEL
    raise FileNotFoundError(f"no checkpoint at {path}{_suggest(place)}")


def _suggest(path: Path) -> str:
    """What the user may have meant: checkpoints and runs in the nearest folder that exists, the most similar first."""
    wanted = path.name
    path = path.absolute()
    while not path.is_dir():
        wanted = path.name
        path = path.parent
    near = [
        child.name
        for child in sorted(path.iterdir())
        if child.is_dir() and ((child / MODEL).is_file() or (child / CHECKPOINTS).is_dir())
    ]
    if not near:
        return ""
    likely = difflib.get_close_matches(wanted, near, n=MAX_SHOWN) or near[:MAX_SHOWN]
    return f"; {path} has {', '.join(likely)}"


# ------------------------------------------------------------ tensors


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, *, dtype: Dtype = "float32"
) -> None:
    """Writes named tensors to a safetensors file, atomically.

    Args:
        path: The file.
        tensors: On any device. Tied ones are written once for each name.
        metadata: Strings that the file carries along.
        dtype: "bf16" halves float32 numbers, except scalars; "float32" writes them as they are, or widened to it.
    """
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; use {' or '.join(map(repr, DTYPES))}")
    plain = {key: _to_cpu(key, tensor, dtype) for key, tensor in tensors.items()}
    described = {"format": "pt", **(metadata or {})}
    data = serialize(plain, metadata=described | {"crc32": _checksum(plain, described)})
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


def read_tensors(path: Path, *, checksum: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, on the CPU, and its metadata.

    Args:
        path: The file.
        checksum: Whether it must have a checksum. Files written by other programs have none.

    Raises:
        CheckpointError: It is damaged.
    """
    check_regular(path)
    data = path.read_bytes()
    try:
        # The reader returns them in an order that changes from call to call.
        tensors = dict(sorted(deserialize(data).items()))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata: dict[str, Any] = header.get("__metadata__", {})
    except Exception as error:  # The reader raises errors of many types, most of them its own.
        raise CheckpointError(f"{path} is damaged or truncated: {error}") from None
    expected = metadata.pop("crc32", None)
    if expected != _checksum(tensors, metadata) and (checksum or expected is not None):
        raise CheckpointError(f"{path} is damaged: its checksum does not match")
    return tensors, metadata


def _to_cpu(key: str, tensor: Tensor, dtype: str) -> Tensor:
    """A contiguous copy on the CPU, in the dtype asked for."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{key!r} is a {type(tensor).__name__}, and only tensors can be saved")
    target = tensor.dtype
    if dtype == "bf16" and target == torch.float32 and tensor.ndim:
        target = torch.bfloat16
    elif dtype == "float32" and tensor.is_floating_point() and tensor.itemsize < 4:
        target = torch.float32
    return tensor.detach().to("cpu", target, copy=True, memory_format=torch.contiguous_format)


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """CRC-32 of the metadata and of each tensor's name, dtype, shape and numbers."""
    crc = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for key, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"
