"""The learning rate of each step: a linear warm-up, then constant, or down towards 0 along a line or a cosine."""

from __future__ import annotations

import math
from collections.abc import Callable

DECAYS: dict[str, Callable[[float], float]] = {  # share of the way after the warm-up, in [0, 1) -> share of the rate
    "constant": lambda way: 1.0,
    "linear": lambda way: 1.0 - way,
    "cosine": lambda way: (1.0 + math.cos(math.pi * way)) / 2,
}


def make_schedule(name: str, *, peak: float, warmup: int, steps: int) -> Callable[[int], float]:
    """The rate of step 1, 2, ... `steps`. No step is wasted on a rate of 0: the warm-up's first has peak / warmup.

    transformers' schedules begin at 0, so that their first step moves nothing.
    """
    decay = DECAYS[name]

    def rate(step: int) -> float:
        if step <= warmup:
            return peak * step / warmup
        return peak * decay((step - 1 - warmup) / max(steps - warmup, 1))

    return rate
