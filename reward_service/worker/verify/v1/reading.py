"""math-verify's parser, its timers off: the parent's clock bounds the work, so a stalled machine falsifies nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from math_verify import parse, parser

_DELIMITERS = ("\\boxed", "\\fbox", "$", "\\(", "\\[")


# The library remembers the last 20 expressions that it parsed, and reads each number anew through the whole of sympy's
# parser. Remembering more moves no number.
parser.Number = lru_cache(maxsize=4096)(parser.Number)
parser.parse_expr_cached = lru_cache(maxsize=4096)(parser.parse_expr_cached.__wrapped__)
parser.parse_latex_cached = lru_cache(maxsize=4096)(parser.parse_latex_cached.__wrapped__)


def delimited(text: str) -> str:
    r"""The text, boxed where it has no delimiter: math-verify reads bare LaTeX as nothing or as a stray number."""
    return text if any(delimiter in text for delimiter in _DELIMITERS) else f"\\boxed{{{text}}}"


def read(text: str) -> list[Any]:
    """What math-verify extracts from a text: expressions and the string they came from; empty when nothing."""
    return list(parse(text, parsing_timeout=None))
