"""What the peer tests share: the golden vectors of a reward as items, and the comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from reward_service.worker.catalogue import Reward
from reward_service.worker.evaluate import evaluate
from reward_service.worker.types import BAD_GOLD, ERROR, Item
from tests.service.worker.rewards.golden import item_of, lines_of


def vectors(reward_id: str) -> Iterator[tuple[Item, Mapping[str, Any]]]:
    """The golden vectors of a reward, less the long ones, which keep upstream busy, and refused parameters."""
    for line in lines_of(reward_id):
        if not line.get("expand") and line["status"] != ERROR:
            yield item_of(line), line.get("params", {})


def expected_equal(
    reward: Reward, one: Item, params: Mapping[str, Any], theirs: float | None, *, bad: Any = None
) -> None:
    """Our value is theirs; where our gold is bad they pay `bad` (None: no number; ...: anything)."""
    golds = None if one.gold is None else [one.gold]
    ours = evaluate(reward, one, golds=golds, params=params)
    if ours.status == BAD_GOLD:
        assert bad is ... or theirs == bad, f"{one} is a bad gold, and theirs is {theirs}"
    else:
        assert ours.value == pytest.approx(theirs, abs=1e-12), f"{one}: {ours} and theirs is {theirs}"
