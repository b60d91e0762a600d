"""Parts of a policy that torch.compile turns into few kernels, while training on a GPU and nowhere else.

@compilable
def gates(x): ...

with compiling():
    gates(x)   # compiled
gates(x)       # as written
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, TypeVar

import torch

from babyai.tree import tree_leaves

Function = TypeVar("Function", bound=Callable[..., Any])
_context = threading.local()


@contextmanager
def compiling(enabled: bool = True) -> Iterator[None]:
    """Within, functions marked `@compilable` run compiled. Only this thread is affected."""
    before = is_compiling_enabled()
    _context.enabled = enabled
    try:
        yield
    finally:
        _context.enabled = before


def is_compiling_enabled() -> bool:
    """Whether this thread is inside `compiling()`."""
    return getattr(_context, "enabled", False)


def compilable(function: Function) -> Function:
    """Marks a function or method: inside `compiling()` it is compiled for each shape it is called with."""
    return _compilable(function, dynamic=False)


def compilable_dynamic(function: Function) -> Function:
    """Like `compilable`, but compiled once for all sizes of the first dimension of its tensors."""
    return _compilable(function, dynamic=True)


def _compilable(function: Function, dynamic: bool) -> Function:
    @wraps(function)
    def call(*args: Any) -> Any:
        # Inside a part that is being compiled, this one is compiled along with it.
        if torch.compiler.is_compiling() or not is_compiling_enabled():
            return function(*args)
        if dynamic:
            for tensor in tree_leaves(args):
                if isinstance(tensor, torch.Tensor):
                    torch._dynamo.maybe_mark_dynamic(tensor, 0)
        _raise_recompile_limit()
        return compile_function(function, dynamic)(*args)

    return call  # pyright: ignore[reportReturnType]


def _raise_recompile_limit() -> None:
    """A process that trains many agents meets more shapes than torch expects; from 2.12 on, threads have own limits."""
    limits = torch._dynamo.config
    # Before 2.7 it had another name.
    setattr(limits, "recompile_limit" if hasattr(limits, "recompile_limit") else "cache_size_limit", 256)


@cache
def compile_function(function: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
    """The compiled form of a function, one for the whole process."""
    # Not something a user could act on.
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled", UserWarning)
    return torch.compile(function, dynamic=None if dynamic else False)
