r"""math-verify's own extraction on a whole completion, as trl, open-r1, ms-swift and its plain users call it.

Those callers stop the library after 5 to 10 seconds and take "read nothing" for its answer, because its patterns take
far more than linear time on text such as ten thousand `\(`. A clock makes no promise about numbers, so here a count
does: where the formulas and number runs of a text are too long to read, only its last 2,048 characters are read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.random import seed

from reward_service.worker.types import BadGold, Found

# The work of a text: the squared lengths of its formulas and of its runs of digits, signs and white space, and a
# constant for each formula. 2^23 is one formula of 2,900 characters or 2,000 short ones; beyond it takes seconds.
_MOST_WORK = 2**23
_TAIL = 2048
_FORMULA = 4096
_CLOSER = {"(": ")", "[": "]", "{": "}", "boxed{": "}"}
_MARK = re.compile(r"\\boxed\{|\\[(\[)\]]|\$\$|[${}\n]")
_RUN = re.compile(r"[\d.\s+\-*×/^()÷]{64,}")

TRL = LatexExtractionConfig(
    normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
)
OPEN_R1 = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True
    ),
    boxed_match_priority=0,
    try_extract_without_anchor=False,
)
# open-r1's length rewards and ms-swift say `boxed=True`, which the library takes for neither "all" nor "last".
OPEN_R1_LENGTH = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        nits=False,
        malformed_operators=False,
        basic_latex=True,
        equations=True,
        boxed=True,
        units=True,
    ),
    boxed_match_priority=0,
    try_extract_without_anchor=False,
)
MS_SWIFT = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        nits=False,
        malformed_operators=False,
        basic_latex=True,
        boxed=True,
        units=True,
    ),
    boxed_match_priority=0,
    try_extract_without_anchor=False,
)


@lru_cache(maxsize=64)
def gold_in(text: str, *, first_match: bool = False, latex_only: bool = False) -> list[Any]:
    """What the library extracts from a gold as it stands. Raises BadGold where it extracts nothing."""
    parsed = _parse(text, LatexExtractionConfig() if latex_only else None, first_match=first_match)
    if not parsed:
        raise BadGold
    return parsed


def answer_in(completion: str, config: LatexExtractionConfig | None = None, *, first_match: bool = False) -> list[Any]:
    """What the library extracts from a completion, by one configuration for LaTeX or by its defaults."""
    return _parse(readable(completion), config, first_match=first_match)


def verdict(first: list[Any], second: list[Any]) -> bool:
    """The library's verdict on (gold, answer), which is not symmetric: some callers pass them the other way round."""
    seed(0)  # of sympy's own generator, from which it draws points to compare expressions at
    return bool(verify(first, second, timeout_seconds=None))


def readable(text: str) -> str:
    """The text; where it is too much work, the part of its last 2,048 characters behind the last open formula."""
    if len(text) <= _TAIL:
        return text
    formulas, unended = _formulas(text)
    runs = (run.end() - run.start() for run in _RUN.finditer(text))
    work = sum(length * length + _FORMULA for length in formulas) + sum(length * length for length in runs)
    return text if work <= _MOST_WORK else text[max(unended + 1, len(text) - _TAIL) :]


def _formulas(text: str) -> tuple[list[int], int]:
    r"""The length of each formula, from `\(`, `\[`, `$`, `$$` or `\boxed{` to its end; the start of the last open one.

    Without an end a formula is as long as the rest of the text: that is how far the library looks for one.
    """
    waiting: dict[str, list[int]] = {")": [], "]": [], "$": [], "$$": [], "}": []}
    lengths: list[int] = []
    for mark in _MARK.finditer(text):
        kind, place = mark.group().lstrip("\\"), mark.start()
        if kind in _CLOSER:
            waiting[_CLOSER[kind]].append(place if kind != "{" else -1)
        elif kind == "}":
            lengths += [place - opener for opener in waiting["}"][-1:] if opener >= 0]
            del waiting["}"][-1:]
        elif kind == "\n":  # ends what must stand on one line
            lengths += [place - opener for opener in waiting[")"] + waiting["$"]]
            waiting[")"], waiting["$"] = [], []
        else:
            lengths += [place - opener for opener in waiting[kind]]
            waiting[kind] = [] if waiting[kind] or kind in ")]" else [place]
    unended = [opener for openers in waiting.values() for opener in openers if opener >= 0]
    return lengths + [len(text) - opener for opener in unended], max(unended, default=-1)


def _parse(text: str, config: LatexExtractionConfig | None, *, first_match: bool) -> list[Any]:
    mode = "first_match" if first_match else "any_match"
    if config is None:
        return list(parse(text, extraction_mode=mode, parsing_timeout=None))
    return list(parse(text, extraction_config=[config], extraction_mode=mode, parsing_timeout=None))


def found(parsed: list[Any]) -> Found | None:
    """What the library extracted, as text: the last element of what it returns, where that is a string."""
    text = parsed[-1] if parsed and isinstance(parsed[-1], str) else ""
    return Found(text, "math_verify", None) if text else None
