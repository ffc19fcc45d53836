"""A megabyte of hostile text through every reward: it is scored, in time that grows with its length."""

from __future__ import annotations

import time

import pytest

from reward_service.worker.evaluate import evaluate
from reward_service.worker.types import Item, Outcome
from tests.service.worker.rewards.samples import HOSTILE, hostile
from tests.service.worker.rewards.test_golden import REWARDS

SMALL, BIG = 2**16, 2**20
GOLD_OF = {"choice": "A", "open_r1": "$72$", "math_verify": "72"}
IDS = sorted(reward.id for reward in REWARDS.values() if "group" not in reward.needs)
# A reward that asks a library or the engine is slow enough to take every sixth text, each another sixth.
THOROUGH = {"trl.accuracy@1", "r1.accuracy@2"}


def texts_for(reward_id: str) -> list[str]:
    asks_an_engine = "gold" in REWARDS[reward_id].needs and not reward_id.startswith(("verl", "text", "choice"))
    if not asks_an_engine or reward_id in THOROUGH:
        return list(HOSTILE)
    return list(HOSTILE)[IDS.index(reward_id) % 6 :: 6]


def timed(reward_id: str, name: str, *, length: int) -> tuple[Outcome, float]:
    reward, gold = REWARDS[reward_id], GOLD_OF.get(reward_id.partition(".")[0], "72")
    text = hostile(name, length=length)
    ids = tuple(map(ord, text)) if "token_ids" in reward.needs else None
    one = Item(text, gold=gold, metadata={"json_schema": {"type": "array"}}, token_count=len(text), token_ids=ids)
    start = time.process_time()
    outcome = evaluate(reward, one, golds=[gold], params={})
    return outcome, time.process_time() - start


@pytest.mark.parametrize("reward_id", IDS)
def test_a_megabyte_is_scored_in_linear_time(reward_id: str) -> None:
    for name in texts_for(reward_id):
        _, small = timed(reward_id, name, length=SMALL)
        outcome, big = timed(reward_id, name, length=BIG)

        assert outcome.value is not None, f"{name}: {outcome}"
        # 16 times the text: 16 times the time where it is linear, 256 where it is quadratic.
        assert big < 64 * max(small, 0.05), f"{name}: {small:.3f} s for 64 KB and {big:.3f} s for 1 MB"


@pytest.mark.parametrize("reward_id", sorted(reward.id for reward in REWARDS.values() if "group" in reward.needs))
def test_a_group_of_megabytes_is_measured_at_once(reward_id: str) -> None:
    reward = REWARDS[reward_id]
    names = ("letters", "digits", "boxes", "think border")
    items = [Item(hostile(name, length=BIG), token_count=BIG) for name in names]

    start = time.process_time()
    results = reward.function(items, {name: [Outcome(1.0)] * len(items) for name in reward.uses})

    assert len(results) == len(items)
    assert time.process_time() - start < 10
