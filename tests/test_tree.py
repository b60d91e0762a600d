"""Nested structures: leaves are mapped and named, whatever they are nested in."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from babyai.tree import iter_named_leaves, tree_leaves, tree_map


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Box:
    content: Any
    label: Any = None


TREE = {"a": 1, "b": [2, (3, Pair(4, None))], "c": Box(Box(5)), "d": ()}
NAMED = [("a", 1), ("b.0", 2), ("b.1.0", 3), ("b.1.1.left", 4), ("c.content.content", 5)]


def test_a_map_keeps_the_structure() -> None:
    mapped = tree_map(lambda leaf: 10 * leaf, TREE)
    assert mapped == {"a": 10, "b": [20, (30, Pair(40, None))], "c": Box(Box(50)), "d": ()}
    assert isinstance(mapped["b"][1][1], Pair)
    assert TREE["a"] == 1


def test_a_map_over_several_trees_gets_corresponding_leaves() -> None:
    tens = tree_map(lambda leaf: 10 * leaf, TREE)
    hundreds = tree_map(lambda leaf: 100 * leaf, TREE)
    total = tree_map(lambda *leaves: sum(leaves), TREE, tens, hundreds)
    assert total == tree_map(lambda leaf: 111 * leaf, TREE)


def test_a_single_leaf_is_a_tree_and_nothing_is_none() -> None:
    assert tree_map(abs, -3) == 3
    assert tree_map(abs, None) is None
    assert tree_leaves(7) == [7]
    assert tree_leaves(None) == []
    assert tree_leaves(()) == []


def test_leaves_can_include_none_where_there_is_nothing() -> None:
    assert tree_leaves(TREE, with_none=True) == [1, 2, 3, 4, None, 5, None, None]
    assert tree_leaves(None, with_none=True) == [None]


def test_a_class_or_a_string_is_a_leaf() -> None:
    assert tree_leaves({"class": Box, "text": "abc"}) == [Box, "abc"]


@pytest.mark.parametrize("other", [{"a": [1]}, {"a": [1, 2, 3]}, {"b": [1, 2]}])
def test_trees_of_different_structures_are_refused(other: Any) -> None:
    with pytest.raises((ValueError, KeyError)):
        tree_map(lambda one, two: one, {"a": [1, 2]}, other)


def test_leaves_come_in_order_and_with_their_paths() -> None:
    assert tree_leaves(TREE) == [leaf for _, leaf in NAMED]
    assert list(iter_named_leaves(TREE)) == NAMED
    assert list(iter_named_leaves(TREE, "state")) == [(f"state.{name}", leaf) for name, leaf in NAMED]
    assert list(iter_named_leaves(3, "state")) == [("state", 3)]
