"""The bare verdict of math-verify 0.8.0 (huggingface/Math-Verify, Apache-2.0); `math_verify.equal@2` is 0.9.0's."""

from __future__ import annotations

from reward_service.worker.catalogue import Catalogue, Lock, reward
from reward_service.worker.types import NO_ANSWER, Item, Outcome
from reward_service.worker.verify.v1 import bare

MATH_VERIFY_0_8 = Lock(
    "math-verify-0.8.0",
    {
        "math-verify": "0.8.0",
        "latex2sympy2-extended": "1.10.2",
        "sympy": "1.14.0",
        "mpmath": "1.3.0",
        "antlr4-python3-runtime": "4.13.2",
    },
)


@reward(
    "math_verify.equal",
    version=1,
    range=(0.0, 1.0),
    needs=("gold",),
    source="huggingface/Math-Verify 0.8.0 (Apache-2.0)",
    lock=MATH_VERIFY_0_8,
)
def equal_v1(item: Item) -> Outcome:
    """1.0 when `verify(parse(gold), parse(completion))`, else 0.0."""
    gold = bare.gold_in(item.gold or "")
    answer = bare.answer_in(item.completion)
    if not answer:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(float(bare.verdict(gold, answer)), found=bare.found(answer))


CATALOGUE = Catalogue([equal_v1])
