"""The length reward of the DAPO paper (arXiv 2503.14476), equation 13.

Its accuracy reward is `verl.math_dapo`; what verl makes of the length reward is `verl.overlong`.
"""

from __future__ import annotations

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item


@reward(
    "dapo.soft_overlong", version=1, range=(-1.0, 0.0), needs=("token_count",), source="DAPO, arXiv 2503.14476, eq. 13"
)
def soft_overlong_v1(item: Item, *, max_length: int = 20480, cache: int = 4096) -> float:
    """0.0 up to `max_length - cache` tokens, then down a line to -1.0 at `max_length`, and -1.0 beyond."""
    if not 0 < cache <= max_length:
        raise ValueError(f"cache is {cache}; it wants to be above 0 and at most max_length, {max_length}")
    return shapes.soft_overlong_v1(shapes.token_count_v1(item), most=max_length, cache=cache)
