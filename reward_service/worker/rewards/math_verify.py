"""The bare verdict of math-verify (huggingface/Math-Verify, Apache-2.0), as its README calls it.

Version 2 is release 0.9.0; version 1, on 0.8.0, waits for a second lock. A gold that the library reads as nothing is a
bad gold; bare LaTeX without delimiters often is one. A text that it could not read within its timers is cut to its end
(see verify/v1/bare.py).
"""

from __future__ import annotations

from reward_service.worker.catalogue import reward
from reward_service.worker.types import NO_ANSWER, Item, Outcome
from reward_service.worker.verify.v1 import MATH_VERIFY_0_9, bare


@reward(
    "math_verify.equal",
    version=2,
    range=(0.0, 1.0),
    needs=("gold",),
    source="huggingface/Math-Verify 0.9.0 (Apache-2.0)",
    lock=MATH_VERIFY_0_9,
)
def equal_v2(item: Item) -> Outcome:
    """1.0 when `verify(parse(gold), parse(completion))`, else 0.0."""
    gold = bare.gold_in(item.gold or "")
    answer = bare.answer_in(item.completion)
    if not answer:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(float(bare.verdict(gold, answer)), found=bare.found(answer))
