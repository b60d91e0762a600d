"""Nested structures of arrays or tensors: dicts, lists, tuples, named tuples and dataclasses, with None for "nothing".

A policy's recurrent state is such a structure, and so is a `Batch`. Leaves are whatever is none of the above.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Applies `function` to corresponding leaves; the result has the structure of `tree`."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: tree_map(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        mapped = [tree_map(function, *parts) for parts in zip(tree, *others, strict=True)]
        return type(tree)(*mapped) if hasattr(tree, "_fields") else type(tree)(mapped)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        parts = {
            name: tree_map(function, getattr(tree, name), *(getattr(other, name) for other in others))
            for name in _field_names(type(tree))
        }
        return dataclasses.replace(tree, **parts)
    return function(tree, *others)


def tree_leaves(tree: Any, *, with_none: bool = False) -> list[Any]:
    """All leaves, in order; optionally with None where there is nothing."""
    if tree is None:
        return [None] if with_none else []
    if isinstance(tree, dict):
        children = [tree[key] for key in sorted(tree)]
    elif isinstance(tree, list | tuple):
        children = tree
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        children = [getattr(tree, name) for name in _field_names(type(tree))]
    else:
        return [tree]
    return [leaf for child in children for leaf in tree_leaves(child, with_none=with_none)]


def iter_named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each leaf with its path, such as `state.0` or `state.memory.map`."""
    if tree is None:
        return
    if isinstance(tree, dict):
        children = sorted(tree.items())
    elif isinstance(tree, list | tuple):
        children = list(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        children = [(field, getattr(tree, field)) for field in _field_names(type(tree))]
    else:
        yield name, tree
        return
    for key, child in children:
        yield from iter_named_leaves(child, f"{name}.{key}" if name else str(key))


@cache
def _field_names(dataclass: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(dataclass))
