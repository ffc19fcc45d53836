"""Is the answer mathematically equal to the gold?"""

from __future__ import annotations

from reward_service.worker.catalogue import reward
from reward_service.worker.types import NO_ANSWER, Item, Outcome
from reward_service.worker.verify import v1


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
