"""math-verify's parser, its timers off: the parent's clock bounds the work, so a stalled machine falsifies nothing."""

from __future__ import annotations

from typing import Any

from math_verify import parse

_DELIMITERS = ("\\boxed", "\\fbox", "$", "\\(", "\\[")


def delimited(text: str) -> str:
    r"""The text, boxed where it has no delimiter: math-verify reads bare LaTeX as nothing or as a stray number."""
    return text if any(delimiter in text for delimiter in _DELIMITERS) else f"\\boxed{{{text}}}"


def read(text: str) -> list[Any]:
    """What math-verify extracts from a text: expressions and the string they came from; empty when nothing."""
    return list(parse(text, parsing_timeout=None))
