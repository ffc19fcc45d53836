"""math-verify's verdict is not symmetric, and each reward asks it in the order of its original."""

from __future__ import annotations

import pytest

from reward_service.worker.evaluate import evaluate
from reward_service.worker.rewards import CATALOGUE
from reward_service.worker.types import Item
from tests.service.worker.rewards.samples import ONE_WAY

GOLD_FIRST = [
    *("math.equal@1", "math_verify.equal@2", "open_r1.accuracy@1", "trl.accuracy@1", "trl.reasoning_accuracy@1"),
    *("trl.cosine@1", "ms_swift.accuracy@1", "ms_swift.cosine@1"),
]
ANSWER_FIRST = ["open_r1.swapped_accuracy@1", "open_r1.cosine@1"]


def is_paid(reward_id: str, *, gold: str, answer: str) -> bool:
    """Whether the reward takes the answer for right; a wrong one is paid 0 or less."""
    item = Item(f"<think>why</think>\nso $\\boxed{{{answer}}}$", gold=f"${gold}$", token_count=10)
    outcome = evaluate(CATALOGUE[reward_id], item, golds=[f"${gold}$"], params={})
    assert outcome.value is not None, outcome
    return outcome.value > 0


@pytest.mark.parametrize(("one", "two"), ONE_WAY)
@pytest.mark.parametrize("reward_id", GOLD_FIRST + ANSWER_FIRST)
def test_gold_and_answer_are_compared_in_the_order_of_the_original(reward_id: str, one: str, two: str) -> None:
    paid = is_paid(reward_id, gold=one, answer=two), is_paid(reward_id, gold=two, answer=one)
    assert paid == ((True, False) if reward_id in GOLD_FIRST else (False, True))
