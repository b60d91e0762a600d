"""Tensors as files: safetensors, in one file or in parts of a given size, laid out as on the Hugging Face hub.

    model.safetensors                       or      model-00001-of-00003.safetensors, ...
                                                    model.safetensors.index.json: which part holds which tensor

Each file carries a checksum, so that damage is found out when it is read. Nothing here is ever executed.
"""

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load as parse
from safetensors.torch import save as serialize
from torch import Tensor

Dtype = Literal["float32", "bf16"]
DTYPES: tuple[str, ...] = Dtype.__args__  # pyright: ignore[reportAttributeAccessIssue]
# What a file and each tensor in it take beside the numbers, names apart; rather too much than too little.
FILE_BYTES, ENTRY_BYTES = 256, 192
MIN_PART_BYTES = 2**16


class CheckpointError(ValueError):
    """Files that hold no sound checkpoint, or one that does not fit; the message says what is wrong."""


def save_tensors(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    name: str = "model",
    dtype: Dtype = "float32",
    max_part_bytes: int | None = None,
) -> None:
    """Writes tensors into a folder that does not have any of that name yet, and waits until the disk has them.

    Files that belong together are written through `babyai.agents.checkpoint.atomic_folder`, which makes all of them
    appear at once.

    Args:
        folder: An existing folder.
        tensors: On any device. Tied ones are written once for each name.
        name: What the files are called.
        dtype: "bf16" writes all floating-point numbers in half the space; "float32" writes them as they are, those of
            lower precision widened. Integers stay as they are.
        max_part_bytes: No file is larger. A tensor too large for that is cut along its first dimension.
    """
    folder = Path(folder)
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; weights are written as {' or '.join(map(repr, DTYPES))}")
    if has_tensors(folder, name):
        raise FileExistsError(f"{folder} has tensors called {name!r} already")
    plain = {key: _as_written(key, tensor, dtype) for key, tensor in tensors.items()}
    parts, cut = [plain], {}
    if max_part_bytes is not None:
        pieces, cut = _cut(plain, _check_part_bytes(max_part_bytes))
        parts = _distribute(pieces, max_part_bytes)
    if len(parts) == 1:
        write_file(_single(folder, name), _pack(parts[0]))
        return
    files = [f"{name}-{number:05}-of-{len(parts):05}.safetensors" for number in range(1, len(parts) + 1)]
    for file, part in zip(files, parts, strict=True):
        write_file(folder / file, _pack(part))
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in plain.values())},
        "weight_map": {key: file for file, part in zip(files, parts, strict=True) for key in part},
        "cut": cut,
    }
    write_file(_index(folder, name), f"{json.dumps(index, indent=1)}\n".encode())


def read_tensors(folder: Path, name: str = "model", dtype: Dtype | None = None) -> dict[str, Tensor]:
    """The tensors of that name in a folder, on the CPU; "float32" widens those written with less.

    Raises:
        CheckpointError: They are not there, not all there, or damaged.
    """
    if _index(folder, name).exists():
        tensors = _read_parts(folder, name)
    elif _single(folder, name).exists():
        tensors = _unpack(_single(folder, name))
    else:
        raise CheckpointError(f"{folder} has no file {name}.safetensors")
    return tensors if dtype is None else {key: _as_written(key, tensor, dtype) for key, tensor in tensors.items()}


def has_tensors(folder: Path, name: str = "model") -> bool:
    """Whether there are tensors of that name, sound or not."""
    return os.path.exists(_single(folder, name)) or os.path.exists(_index(folder, name))


def write_file(path: Path, data: bytes) -> None:
    """Writes a new file, and waits until the disk has it."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        CheckpointError: It holds something else.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no file {path.name}") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is damaged: it holds no JSON object")
    return data


def _single(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def _index(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors.index.json"


def _as_written(key: str, tensor: Tensor, dtype: str) -> Tensor:
    """A contiguous copy on the CPU, in the precision asked for."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{key!r} is no tensor but {type(tensor).__name__}, and only tensors can be kept")
    kind = tensor.dtype
    if tensor.is_floating_point() and dtype == "bf16":
        kind = torch.bfloat16
    elif tensor.is_floating_point() and tensor.itemsize < 4:
        kind = torch.float32
    return tensor.detach().to("cpu", kind, copy=True, memory_format=torch.contiguous_format)


# ------------------------------------------------------------ parts


def _check_part_bytes(limit: int) -> int:
    if limit < MIN_PART_BYTES:
        raise ValueError(f"parts of {limit} bytes are too small; they must have at least {MIN_PART_BYTES}")
    return limit


def _cost(key: str, tensor: Tensor) -> int:
    return tensor.nbytes + len(key.encode()) + ENTRY_BYTES


def _cut(tensors: dict[str, Tensor], limit: int) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """The tensors, those too large for a part cut into pieces "name#0", "name#1", and the names of such pieces."""
    pieces, cut = {}, {}
    for key, tensor in tensors.items():
        if _cost(key, tensor) + FILE_BYTES <= limit:
            pieces[key] = tensor
            continue
        row_bytes = tensor[0].nbytes if tensor.ndim else tensor.nbytes
        rows = (limit - FILE_BYTES - ENTRY_BYTES - len(key.encode()) - 8) // row_bytes
        if rows < 1:
            raise ValueError(f"one row of {key!r} has {row_bytes} bytes, too many for parts of {limit}")
        rows_of = {f"{key}#{number}": part.clone() for number, part in enumerate(tensor.split(rows))}
        pieces |= rows_of
        cut[key] = list(rows_of)
    return pieces, cut


def _distribute(tensors: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The tensors in as many parts as it takes, in order."""
    parts, used = [{}], FILE_BYTES
    for key, tensor in tensors.items():
        if parts[-1] and used + _cost(key, tensor) > limit:
            parts.append({})
            used = FILE_BYTES
        parts[-1][key] = tensor
        used += _cost(key, tensor)
    return parts


def _read_parts(folder: Path, name: str) -> dict[str, Tensor]:
    path = _index(folder, name)
    index = read_json(path)
    places, cut = index.get("weight_map"), index.get("cut", {})
    if not isinstance(places, dict) or not isinstance(cut, dict):
        raise CheckpointError(f"{path} is damaged: it does not say where the tensors are")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(map(str, places.values()))):
        # A name from a file must not lead elsewhere.
        if Path(file).name != file or not (folder / file).is_file():
            raise CheckpointError(f"{folder} is incomplete: its part {file} is missing")
        tensors |= _unpack(folder / file)
    if missing := [key for key in places if key not in tensors]:
        raise CheckpointError(f"{folder} is damaged: {missing[0]!r} is not in {places[missing[0]]}")
    try:
        return tensors | {key: torch.cat([tensors.pop(piece) for piece in pieces]) for key, pieces in cut.items()}
    except (KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged: the pieces of a tensor do not fit together: {error}") from None


# ------------------------------------------------------------ one file


def _checksum(tensors: dict[str, Tensor]) -> str:
    """Of names, shapes and numbers."""
    crc = 0
    for key, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def _pack(tensors: dict[str, Tensor]) -> bytes:
    return serialize(tensors, metadata={"format": "pt", "crc32": _checksum(tensors)})


def _unpack(path: Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    try:
        # The reader gives them in an order that changes from call to call.
        tensors = dict(sorted(parse(data).items()))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        expected = header.get("__metadata__", {}).get("crc32")
    except Exception as error:  # The reader has many ways to object, most of them its own.
        raise CheckpointError(f"{path} is damaged or cut short: {error}") from None
    # Files that others made have no checksum.
    if expected is not None and _checksum(tensors) != expected:
        raise CheckpointError(f"{path} is damaged: its checksum does not fit its numbers")
    return tensors
