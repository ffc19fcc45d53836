"""The length reward of Kimi k1.5 (arXiv 2501.12599, section 2.3.3), on tokens, with `math.equal@1` for correctness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item, Outcome


@reward(
    "kimi.length",
    version=1,
    range=(-0.5, 0.5),
    needs=("group", "token_count"),
    uses=("math.equal@1",),
    source="Kimi k1.5, arXiv 2501.12599, section 2.3.3",
)
def length_v1(items: Sequence[Item], used: Mapping[str, Sequence[Outcome]]) -> list[float | Outcome]:
    """0.5 for the group's shortest completion down to -0.5 for its longest, in tokens; wrong ones get no plus."""
    return shapes.shorter_is_better_v1([shapes.token_count_v1(item) for item in items], correct=used["math.equal@1"])
