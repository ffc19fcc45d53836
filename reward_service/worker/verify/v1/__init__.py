"""The plain engine: find the answer, delimit the gold, and let math-verify 0.9.0 decide."""

from reward_service.worker.verify.v1.equality import MATH_VERIFY_0_9, equal, equal_plain_numbers, read_gold
from reward_service.worker.verify.v1.extraction import find_answer

__all__ = ["MATH_VERIFY_0_9", "equal", "equal_plain_numbers", "find_answer", "read_gold"]
