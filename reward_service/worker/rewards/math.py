"""Is the answer mathematically equal to the gold?"""

from __future__ import annotations

from functools import lru_cache

from reward_service.worker.catalogue import reward
from reward_service.worker.types import NO_ANSWER, Item, Outcome
from reward_service.worker.verify import v1, v2


@reward(
    "math.equal",
    version=1,
    range=(0.0, 1.0),
    needs=("gold",),
    source="Hallmark; math-verify 0.9.0 decides",
    lock=v1.MATH_VERIFY_0_9,
)
def equal_v1(item: Item) -> Outcome:
    r"""1.0 when math-verify holds the answer equal to the gold, else 0.0.

    The answer is the last complete `<answer>` block, else the last `\boxed{}`, else what math-verify extracts.
    """
    gold = v1.read_gold(item.gold or "")
    answer = v1.find_answer(item.completion)
    if answer is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(1.0 if v1.equal(gold=gold, answer=answer) else 0.0, found=answer.found)


@reward(
    "math.equal",
    version=2,
    range=(0.0, 1.0),
    needs=("gold",),
    source="Hallmark",
    lock=v2.MPMATH_1_3,
)
def equal_v2(item: Item) -> Outcome:
    """1.0 when the answer that the completion commits to is mathematically equal to the gold, else 0.0.

    Exact where the answer is; a decimal gold accepts what rounds to it. What cannot be read to its end is not equal.
    """
    gold = item.gold or ""
    v2.read_gold(gold)
    found = v2.extract(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(1.0 if same_v2(gold, found.answer) else 0.0, found=found)


def same_v2(gold: str, answer: str) -> bool:
    """Is the answer equal to the gold? Most answers of a group repeat, and short ones are remembered."""
    if len(gold) + len(answer) <= 2000:
        return _same_v2(gold, answer)
    return v2.equal(gold=v2.read_gold(gold), answer=answer)


@lru_cache(maxsize=8192)
def _same_v2(gold: str, answer: str) -> bool:
    return v2.equal(gold=v2.read_gold(gold), answer=answer)
