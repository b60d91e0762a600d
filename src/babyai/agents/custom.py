"""Policies of your own: a class named by its import path, made with settings that JSON can hold, and checked.

The contract itself is in `babyai.agents.policy`.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.config import MAP, AgentConfig, AnyConfig, CustomConfig, MapConfig, is_custom
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.map.model import MapPolicy
from babyai.agents.policy import Unrolled, unroll, unroll_steps
from babyai.batch import TILE_PIXELS, Batch
from babyai.import_path import load_object
from babyai.tree import iter_named_leaves
from babyai.world.codes import NUM_ACTIONS
from babyai.world.language import tokenize
from babyai.world.view import VIEW_SIZE

SYMBOLIC_SHAPE = (VIEW_SIZE, VIEW_SIZE, 3)
PIXELS_SHAPE = (VIEW_SIZE * TILE_PIXELS, VIEW_SIZE * TILE_PIXELS, 3)


# Missions of a made-up batch, in rows of this many words.
WORDS = 16
EXAMPLE_MISSIONS = (
    "go to the red ball",
    "open a door",
    "put the grey key next to the blue box",
    "pick up a ball and go to a purple door",
    "go to a green box",
)


class ContractError(ValueError):
    """A policy that cannot be trained; the message says what the contract requires."""


# ------------------------------------------------------------ making


def make_config(
    architecture: str | type[nn.Module] = "bow_endpool_res", size: str | None = None, **settings: Any
) -> AnyConfig:
    """The configuration of an agent, the paper's or one of your own.

    Args:
        architecture: One of the paper's five; "map", the agent that draws a map; the import path of a class,
            "package.module:ClassName" or "path/to/file.py:ClassName", which is imported; or a class.
        size: "small" (default) or "big"; a class of your own gets it as a keyword argument, if given.
        settings: Other settings of the architecture, or keyword arguments of your class.
    """
    if architecture == MAP:
        return MapConfig.of(size or "big", **settings)
    if isinstance(architecture, str) and not is_custom(architecture):
        return AgentConfig.of(architecture, size or "small", **settings)
    own = load_class(architecture) if isinstance(architecture, str) else architecture
    path = architecture if isinstance(architecture, str) else f"{own.__module__}:{own.__qualname__}"
    keywords = settings if size is None else {"size": size, **settings}
    return CustomConfig(path, keywords, bool(getattr(own, "pixels", False)))


def build_policy(config: AnyConfig, own: type[nn.Module] | None = None) -> nn.Module:
    """A new policy with this configuration, on the CPU.

    Args:
        config: Its configuration.
        own: The class of a policy of your own; default: import the one that the configuration names.

    Raises:
        ContractError: The class cannot be constructed with these settings, or violates the contract.
    """
    if isinstance(config, AgentConfig):
        return FilmLSTM(config)
    if isinstance(config, MapConfig):
        return MapPolicy(config.dim, config.layers, config.heads, config.left_out)
    own = own or load_class(config.architecture)
    try:
        policy = own(**config.settings)
    except TypeError as error:
        raise ContractError(f"{config.architecture} cannot be constructed with {config.settings}: {error}") from error
    check_contract(policy)
    return policy


# ------------------------------------------------------------ finding the class


def load_class(path: str) -> type[nn.Module]:
    """The class that an import path names. Importing it runs the module or file that it is in.

    Args:
        path: "package.module:ClassName" or "path/to/file.py:ClassName".

    Raises:
        ValueError: There is no such class.
    """
    found = load_object(path)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ValueError(f"{path} is not a subclass of torch.nn.Module, but {found!r}")
    return found


def trusted_class(
    config: AnyConfig, source: str, model_class: type[nn.Module] | str | None, trust: bool
) -> type[nn.Module] | None:
    """The class of a loaded policy; None for the paper's.

    Args:
        config: The checkpoint's configuration.
        source: The checkpoint, for error messages.
        model_class: The caller's choice: a class or its import path.
        trust: Whether the class that the checkpoint names may be imported.
    """
    if not isinstance(config, CustomConfig):
        if model_class is not None:
            raise ValueError(
                f"{source} holds an agent of babyai's, {config.architecture!r}, which takes no model_class"
            )
        return None
    if model_class is None and not trust:
        raise ValueError(
            f"{source} holds a policy with custom code, {config.architecture!r}, which loading would run; if you trust "
            f"it, pass --trust (in Python, trust=True), or name the class by --architecture (model_class)"
        )
    chosen = model_class or config.architecture
    return load_class(chosen) if isinstance(chosen, str) else chosen


# ------------------------------------------------------------ the contract


def check_contract(policy: nn.Module) -> None:
    """Returns if a policy satisfies the contract, tried on a batch of three steps and two lanes.

    Raises:
        ContractError: It does not; the message says what is wrong.
    """
    name = type(policy).__name__
    if not callable(getattr(policy, "initial_state", None)):
        raise ContractError(f"{name} needs a method initial_state(n) that returns the recurrent state of n lanes")
    modes = {module: module.training for module in policy.modules()}
    policy.eval()
    batch = example_batch(bool(getattr(policy, "pixels", False)))
    try:
        with torch.no_grad():
            state = policy.initial_state(2)  # pyright: ignore[reportCallIssue]
            _check_state(name, state)
            output = policy(batch.observation(0), state)
            _check_output(name, output, state)
            stepped = unroll_steps(policy, batch, state)  # pyright: ignore[reportArgumentType]
            unrolled = unroll(policy, batch, state)  # pyright: ignore[reportArgumentType]
            _check_unroll(name, unrolled, stepped)
    except ContractError:
        raise
    except Exception as error:
        raise ContractError(f"{name} failed on a batch of two lanes: {type(error).__name__}: {error}") from error
    finally:
        for module, training in modes.items():
            module.training = training


def _check_unroll(name: str, unrolled: Unrolled, stepped: Unrolled) -> None:
    pairs = [("logits", unrolled.logits, stepped.logits), ("values", unrolled.values, stepped.values)]
    after = dict(iter_named_leaves(unrolled.state, "state"))
    pairs += [(path, after[path], leaf) for path, leaf in iter_named_leaves(stepped.state, "state")]
    for part, given, expected in pairs:
        if given.shape != expected.shape:
            raise ContractError(
                f"{name}.unroll must return {part} of shape {tuple(expected.shape)}, not {tuple(given.shape)}"
            )
        if not torch.allclose(given.double(), expected.double(), atol=1e-3, rtol=1e-3):
            raise ContractError(f"{name}.unroll and {name}.forward disagree: {part} differ on the same batch")


def _check_state(name: str, state: Any) -> None:
    for path, leaf in iter_named_leaves(state, "state"):
        if not isinstance(leaf, Tensor) or leaf.ndim < 1 or len(leaf) != 2:
            raise ContractError(
                f"{name}.initial_state(2) must return tensors whose first dimension is 2, but {path} is "
                f"{_describe(leaf)}"
            )


def _check_output(name: str, output: Any, state: Any) -> None:
    if not isinstance(output, tuple) or len(output) != 3:
        raise ContractError(f"{name}.forward must return (logits, value, state), not {_describe(output)}")
    for part, shape, tensor in (("logits", (2, NUM_ACTIONS), output[0]), ("value", (2,), output[1])):
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise ContractError(
                f"{name}.forward must return {part} of shape {shape} for two lanes, not {_describe(tensor)}"
            )
    before = [(path, tuple(leaf.shape)) for path, leaf in iter_named_leaves(state, "state")]
    after = [(path, tuple(getattr(leaf, "shape", ()))) for path, leaf in iter_named_leaves(output[2], "state")]
    if before != after:
        raise ContractError(f"{name}.forward must return a state like the one it was given, {before}, not {after}")


def example_batch(pixels: bool = False, steps: int = 3, lanes: int = 2) -> Batch:
    """A small batch of made-up observations, as tensors on the CPU."""
    shape = (steps, lanes)
    generator = torch.Generator().manual_seed(0)
    image_shape = PIXELS_SHAPE if pixels else SYMBOLIC_SHAPE
    starts = torch.zeros(shape, dtype=torch.bool)
    starts[0, 0] = True
    starts[1, 1] = True
    actions = torch.randint(0, 7, shape, generator=generator, dtype=torch.uint8)
    last_actions = torch.randint(0, 7, shape, generator=generator, dtype=torch.int8)
    last_actions[starts] = -1
    # Missions are in no particular order, change where an episode starts, and one row is not used.
    missions = torch.from_numpy(np.stack([tokenize(sentence)[:WORDS] for sentence in EXAMPLE_MISSIONS]))
    episodes = starts.cumsum(0) + torch.arange(lanes)
    return Batch(
        images=torch.randint(0, 6, (*shape, *image_shape), generator=generator, dtype=torch.uint8),
        directions=torch.randint(0, 4, shape, generator=generator, dtype=torch.uint8),
        last_actions=last_actions,
        missions=torch.cat([missions, torch.zeros_like(missions[:1])]),
        mission_index=(3 * episodes % len(missions)).int(),
        starts=starts,
        actions=actions,
    )


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_describe, value))})"
    return type(value).__name__
