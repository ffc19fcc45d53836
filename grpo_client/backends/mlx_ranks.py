"""Sums over the processes of one run (`mlx.launch`): each has rows of its own, all take the same step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx.nn import average_gradients
from mlx.utils import tree_map

from grpo_client.backends.mlx_trees import Tree
from grpo_client.loss_inputs import Denominators


class Ranks:
    """All processes of the run; alone, sums are what they were. Every rank must ask for each sum, also without rows."""

    def __init__(self) -> None:
        self._group = mx.distributed.init()
        self.size = self._group.size()

    def denominators(self, own: Denominators, *, micro_batches: int) -> Denominators:
        """The counts of the whole step from each rank's own."""
        counts = mx.array([own.tokens, own.rows, micro_batches])
        totals: Any = mx.distributed.all_sum(counts, group=self._group).tolist()
        tokens, rows, parts = totals
        return replace(own, tokens=tokens, rows=rows, micro_batches=max(parts, 1))

    def total(self, tree: Tree) -> Tree:
        """Arrays added up over the ranks."""
        if self.size == 1:
            return tree
        return tree_map(lambda one: one * self.size, average_gradients(tree, self._group))  # few, large messages
