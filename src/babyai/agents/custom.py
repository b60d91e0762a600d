"""Models of your own: a class named by its import path, made with settings that JSON can keep, held to a contract.

The contract is what the trainers, `Actor` and `Agent` ask of any model:

    forward(observation, memory) -> logits (B, 7), value (B,), memory (B, D)
    initial_memory(count, device) -> zeros (count, D)

`observation` has `image` (B, 7, 7, 3) uint8, `mission` (B, L) uint8 token ids with zeros after the last word,
`direction` (B,) and `last_action` (B,), -1 where there was none. A class whose attribute `pixels` is true gets images
of (B, 56, 56, 3) instead.
"""

import difflib
import importlib
import importlib.util
import os
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from babyai.agents.config import AgentConfig, AnyConfig, CustomConfig, is_custom
from babyai.agents.model import NUM_ACTIONS, Model
from babyai.world.language import tokenize

PIXELS_SHAPE, TILES_SHAPE = (56, 56, 3), (7, 7, 3)


class ContractError(ValueError):
    """A model that the trainers could not use; the message says what they would have needed."""


# ------------------------------------------------------------ making


def make_config(
    architecture: str | type[nn.Module] = "bow_endpool_res", size: str | None = None, **settings: Any
) -> AnyConfig:
    """The settings of an agent, the paper's or one of your own.

    Args:
        architecture: One of the paper's five; the import path of a class, "package.module:ClassName" or
            "path/to/file.py:ClassName", which is imported; or a class.
        size: "small" (unless told) or "big"; to a class of your own it is one setting among others.
        settings: Any others.
    """
    if isinstance(architecture, str) and not is_custom(architecture):
        return AgentConfig.of(architecture, size or "small", **settings)
    own = load_class(architecture) if isinstance(architecture, str) else architecture
    path = architecture if isinstance(architecture, str) else f"{own.__module__}:{own.__qualname__}"
    given = settings if size is None else {"size": size, **settings}
    return CustomConfig(path, given, bool(getattr(own, "pixels", False)))


def build_model(config: AnyConfig, own: type[nn.Module] | None = None) -> nn.Module:
    """A new model with these settings, on the CPU.

    Args:
        config: Its settings.
        own: The class of a model of your own; None: import the one that the settings name.

    Raises:
        ContractError: A model of your own cannot be made so, or could not be trained.
    """
    if isinstance(config, AgentConfig):
        return Model(config)
    own = own or load_class(config.architecture)
    try:
        model = own(**config.settings)
    except TypeError as error:
        raise ContractError(f"{config.architecture} cannot be made with {config.settings}: {error}") from error
    check_contract(model, config.pixels)
    return model


def make_model(architecture: str | type[nn.Module] = "bow_endpool_res", **settings: Any) -> nn.Module:
    """A new model, of the paper or of your own; see `make_config`."""
    config = make_config(architecture, **settings)
    return build_model(config, architecture if isinstance(architecture, type) else None)


# ------------------------------------------------------------ finding the class


def load_class(path: str) -> type[nn.Module]:
    """The class that an import path names, which runs the module or file that it is in.

    Args:
        path: "package.module:ClassName" or "path/to/file.py:ClassName".

    Raises:
        ValueError: There is no such class.
    """
    home, _, name = path.rpartition(":")
    if not home or not name:
        raise ValueError(f"{path!r} names no class; write 'package.module:ClassName' or 'path/to/file.py:ClassName'")
    module = _load_file(Path(home)) if home.endswith(".py") else _load_module(home)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, vars(found), n=1)
            raise ValueError(f"{home} has no class {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        found = getattr(found, part)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ValueError(f"{path} is no class derived from torch.nn.Module, but {found!r}")
    return found


def trusted_class(
    config: AnyConfig, source: str, model_class: type[nn.Module] | str | None, trust: bool
) -> type[nn.Module] | None:
    """The class to make a loaded model of; None for the paper's.

    Args:
        config: What the checkpoint says.
        source: The checkpoint, for messages.
        model_class: What the caller gives: a class or its import path.
        trust: Whether the caller lets the checkpoint name it.
    """
    if isinstance(config, AgentConfig):
        if model_class is not None:
            raise ValueError(f"{source} holds the paper's {config.architecture!r}, so it takes no model_class")
        return None
    if model_class is None and not trust:
        raise ValueError(
            f"{source} holds a model of somebody's own, {config.architecture!r}, and loading it would run that code; "
            f"give model_class, the class or its import path, or trust=True if you trust the folder"
        )
    given = model_class or config.architecture
    return load_class(given) if isinstance(given, str) else given


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only the module itself, or a package that it is in, is ours to explain.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"there is no module {name!r}; install it or put its folder on PYTHONPATH, or name the file itself as "
            f"'path/to/file.py:ClassName'"
        ) from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    # The name tells files of one name in two folders apart.
    name = f"_babyai_{path.stem}_{zlib.crc32(os.path.realpath(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and type hints look their module up here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# ------------------------------------------------------------ the contract


def check_contract(model: nn.Module, pixels: bool = False) -> None:
    """Nothing happens where a model does what trainers need, tried on a made-up batch of two.

    Raises:
        ContractError: It does not.
    """
    name = type(model).__name__
    if not callable(getattr(model, "initial_memory", None)):
        raise ContractError(f"{name} needs a method initial_memory(count, device) that gives zeros (count, D)")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            memory = model.initial_memory(2, torch.device("cpu"))  # pyright: ignore[reportCallIssue]
            _check_memory(name, memory)
            answer = model(_made_up_batch(pixels), memory)
    except ContractError:
        raise
    except Exception as error:
        raise ContractError(f"{name} failed on a batch of two: {type(error).__name__}: {error}") from error
    finally:
        for module, training in modes.items():
            module.training = training
    if not isinstance(answer, tuple) or len(answer) != 3:
        raise ContractError(f"{name}.forward must return (logits, value, memory), not {_describe(answer)}")
    shapes = {"logits": (2, NUM_ACTIONS), "value": (2,), "memory": tuple(memory.shape)}
    for (part, shape), given in zip(shapes.items(), answer, strict=True):
        if not isinstance(given, Tensor) or tuple(given.shape) != shape or not given.is_floating_point():
            raise ContractError(
                f"{name}.forward must return {part} of shape {shape} for a batch of two, not {_describe(given)}"
            )


def _check_memory(name: str, memory: Any) -> None:
    fits = isinstance(memory, Tensor) and memory.ndim == 2 and len(memory) == 2 and memory.is_floating_point()
    # Where an episode begins, memory is multiplied by 0.
    if not fits or memory.any():
        raise ContractError(f"{name}.initial_memory(2, device) must give zeros (2, D), not {_describe(memory)}")


def _made_up_batch(pixels: bool) -> dict[str, Tensor]:
    words = tokenize("go to the red ball")[:8]
    return {
        "image": torch.ones((2, *(PIXELS_SHAPE if pixels else TILES_SHAPE)), dtype=torch.uint8),
        "mission": torch.from_numpy(words).expand(2, -1),
        "direction": torch.zeros(2, dtype=torch.uint8),
        "last_action": torch.tensor([-1, 2]),
    }


def _describe(given: Any) -> str:
    if isinstance(given, Tensor):
        values = " with other values than 0" if given.any() else ""
        return f"{tuple(given.shape)} {str(given.dtype).removeprefix('torch.')}{values}"
    if isinstance(given, tuple):
        return f"({', '.join(map(_describe, given))})"
    return type(given).__name__
