"""The few array functions that numpy, torch and mlx.core spell differently, so that a loss is written once.

Operators, comparisons and indexing are the same in all three and are used as they are. Each backend fills in one
`ArrayOps` in its own file; the tests fill in one for numpy in float64. Every function keeps the dtype of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Array: TypeAlias = Any  # numpy, torch or mlx.core: they share no base class and no complete protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOps:
    """One array module's spelling of what the losses need."""

    exp: Callable[[Array], Array]
    expm1: Callable[[Array], Array]
    where: Callable[[Array, Array, Array | float], Array]  # where(condition, x, y), x and y broadcast
    minimum: Callable[[Array, Array], Array]
    clip: Callable[[Array, float | None, float | None], Array]  # clip(x, low, high), None = open; gradient 0 outside
    sum: Callable[[Array], Array]  # over everything -> ()
    sum_rows: Callable[[Array], Array]  # (B, T) -> (B, 1)
    max: Callable[[Array], Array]  # over everything -> ()
    ones_like: Callable[[Array], Array]
    stop_gradient: Callable[[Array], Array]
