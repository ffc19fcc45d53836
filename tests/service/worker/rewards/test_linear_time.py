"""A megabyte of hostile text through every reward: it is scored, in time that grows with its length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from reward_service.worker.evaluate import evaluate
from reward_service.worker.types import Item, Outcome
from tests.service.worker.rewards.samples import HOSTILE, hostile
from tests.service.worker.rewards.test_golden import REWARDS

SMALL, BIG = 2**17, 2**20  # 8 times the text: 8 times the time where it is linear, 64 where it is quadratic
MOST = 24
FLOOR = 0.01  # seconds, below which the clock is too coarse; a quadratic rule takes minutes for a megabyte
TRIES = 3
GOLD_OF = {"choice": "A", "open_r1": "$72$", "math_verify": "72"}
IDS = sorted(reward.id for reward in REWARDS.values() if "group" not in reward.needs)
# A reward that asks a library or the engine is slow enough to take every sixth text, each another sixth.
THOROUGH = {"trl.accuracy@1", "r1.accuracy@2"}


def asks_an_engine(reward_id: str) -> bool:
    return "gold" in REWARDS[reward_id].needs and not reward_id.startswith(("verl", "text", "choice"))


def texts_for(reward_id: str) -> list[str]:
    if not asks_an_engine(reward_id) or reward_id in THOROUGH:
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


# The same engine under other names, on other texts.
REPEATED = {id for id in IDS if asks_an_engine(id)} - THOROUGH


@pytest.mark.parametrize(
    "reward_id", [pytest.param(id, marks=pytest.mark.slow) if id in REPEATED else id for id in IDS]
)
def test_a_megabyte_is_scored_in_linear_time(reward_id: str) -> None:
    for name in texts_for(reward_id):

        def seconds(length: int, name: str = name) -> float:
            outcome, spent = timed(reward_id, name, length=length)
            assert outcome.value is not None, f"{name}: {outcome}"
            return spent

        assert is_linear(seconds), name


def is_linear(seconds: Callable[[int], float]) -> bool:
    """Whether CPU time grows with the length: a machine that is busy with something else is asked again."""
    return any(seconds(BIG) < MOST * max(seconds(SMALL), FLOOR) for _ in range(TRIES))


@pytest.mark.parametrize("reward_id", sorted(reward.id for reward in REWARDS.values() if "group" in reward.needs))
def test_a_group_of_megabytes_is_measured_at_once(reward_id: str) -> None:
    reward = REWARDS[reward_id]
    names = ("letters", "digits", "boxes", "think border")

    def seconds(length: int) -> float:
        items = [Item(hostile(name, length=length), token_count=length) for name in names]
        start = time.process_time()
        results = reward.function(items, {name: [Outcome(1.0)] * len(items) for name in reward.uses})
        assert len(results) == len(items)
        return time.process_time() - start

    assert is_linear(seconds)
