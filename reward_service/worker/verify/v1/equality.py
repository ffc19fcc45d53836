"""math-verify's verdict."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from math_verify import ExprExtractionConfig, parse, verify
from sympy.core.random import seed

from reward_service.worker.catalogue import Lock
from reward_service.worker.types import BadGold
from reward_service.worker.verify.v1.extraction import Answer
from reward_service.worker.verify.v1.reading import delimited, read

MATH_VERIFY_0_9 = Lock(
    "math-verify-0.9.0",
    {
        "math-verify": "0.9.0",
        "latex2sympy2-extended": "1.11.0",
        "sympy": "1.14.0",
        "mpmath": "1.3.0",
        "antlr4-python3-runtime": "4.13.2",
    },
)


@lru_cache(maxsize=64)
def read_gold(gold: str) -> list[Any]:
    """The gold as math-verify reads it. Raises BadGold when it reads nothing."""
    parsed = read(delimited(gold)) if gold.strip() else []
    if not parsed:
        raise BadGold
    return parsed


def equal(*, gold: list[Any], answer: Answer) -> bool:
    """math-verify's verdict on a gold (of `read_gold`) and an answer (of `find_answer`)."""
    seed(0)  # of sympy's own generator, from which it draws points to compare expressions at
    return bool(verify(gold, answer.parsed, timeout_seconds=None))


def equal_plain_numbers(*, gold: str, answer: str) -> bool:
    """simple_GRPO's comparison: both read as plain expressions only, and verified in its order, answer before gold.

    Raises BadGold when the gold cannot be read.
    """
    read_answer, parsed_gold = _plain(answer), _plain(gold)
    if not parsed_gold:
        raise BadGold
    seed(0)
    return bool(verify(read_answer, parsed_gold, timeout_seconds=None))


@lru_cache(maxsize=64)
def _plain(text: str) -> list[Any]:
    return list(parse(text, extraction_config=[ExprExtractionConfig()], parsing_timeout=None))
