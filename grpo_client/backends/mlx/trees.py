"""Nested dicts and lists of arrays, as mlx keeps a module's weights."""

from __future__ import annotations

from typing import Any, TypeAlias

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

Tree: TypeAlias = Any  # dicts and lists of trees, arrays at their leaves


def named(tree: Tree) -> list[tuple[str, mx.array]]:
    """The arrays of a tree and their dotted names, by name."""
    flat: Any = tree_flatten(tree)
    return sorted((name, one) for name, one in flat if isinstance(one, mx.array))


def leaves(tree: Tree) -> Tree:
    """The same tree without the empty branches that mlx keeps for a module's other attributes.

    In one order, so that sums over it are the same to the bit.
    """
    return tree_unflatten(named(tree))
