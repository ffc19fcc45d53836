"""The processes of one run on MLX, started by `mlx.launch`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn import average_gradients
from mlx.utils import tree_map

from grpo_client.backends.mlx.trees import Tree
from grpo_client.learning.loss_stats import LossStats


class MlxRanks:
    """All processes of the run; alone, sums are what they were. Every rank must take part in each call."""

    def __init__(self) -> None:
        self._group = mx.distributed.init()
        self.rank = self._group.rank()
        self.size = self._group.size()

    def gather(self, own: bytes) -> list[bytes]:
        """What each rank gives, in the order of the ranks."""
        if self.size == 1:
            return [own]
        lengths: Any = self._gathered(mx.array([len(own)])).tolist()
        padded = np.zeros(max(lengths), dtype=np.uint8)
        padded[: len(own)] = np.frombuffer(own, dtype=np.uint8)
        rows = np.array(self._gathered(mx.array(padded))).reshape(self.size, -1)
        return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]

    def _gathered(self, own: mx.array) -> mx.array:
        return mx.distributed.all_gather(own, group=self._group)

    def count(self, own: int) -> int:
        """The sum of each rank's number."""
        return sum(json.loads(one) for one in self.gather(json.dumps(own).encode()))

    def stats(self, own: Sequence[LossStats]) -> list[LossStats]:
        """The statistics of all ranks' micro-batches."""
        plain = [
            [
                float(part.tokens),
                {name: [float(one) for one in pair] for name, pair in part.means.items()},
                {name: float(one) for name, one in part.maxima.items()},
            ]
            for part in own
        ]
        return [
            LossStats(tokens=tokens, means=means, maxima=maxima)
            for message in self.gather(json.dumps(plain).encode())
            for tokens, means, maxima in json.loads(message)
        ]

    def total(self, tree: Tree) -> Tree:
        """Arrays added up over the ranks."""
        if self.size == 1:
            return tree
        return tree_map(lambda one: one * self.size, average_gradients(tree, self._group))  # few, large messages
