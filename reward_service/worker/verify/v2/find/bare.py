"""Telling a bare answer from prose, and an answer from the punctuation round it."""

from __future__ import annotations

import re

from reward_service.worker.verify.v2.tables import (
    CONNECTORS,
    DATE_WORDS,
    FUNCTIONS,
    GREEK,
    PERCENT_WORDS,
    SCALES,
    SHORT_WORDS,
    UNIT_RUNS,
    UNITS,
)

Span = tuple[int, int]

_TEX = re.compile(
    r"\\(?:text|textbf|textrm|textit|textnormal|mathrm|mbox|operatorname)\s*\{([^{}]*)\}|\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+"
)
_NUMBERS_ONLY = re.compile(r"[\d\s.,;/%$-]+")
_HAN = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ALLOWED_WORDS = (
    frozenset(FUNCTIONS) | GREEK | frozenset(UNITS) | UNIT_RUNS | DATE_WORDS | CONNECTORS | PERCENT_WORDS
    | frozenset(SCALES)
    | frozenset({"pi", "degrees", "degree", "square", "cubic", "per", "infinity", "inf", "approx"})
)  # fmt: skip


def is_bare_answer(text: str) -> bool:
    """Whether a text is a formula, a number with its unit or a letter, without any prose round it."""
    text = text.strip()
    if not text or "####" in text:
        return False
    if "\n" in text and text[0] not in "$\\":
        # bare numbers on several lines are a list of candidates, and no answer to pick the last of
        return _NUMBERS_ONLY.fullmatch(text) is not None
    return _is_bare(text)


def _is_bare(text: str) -> bool:
    plain = _TEX.sub(lambda match: f" {match.group(1)} " if match.group(1) else "~", text)
    for word in _WORD.findall(plain):
        # two or three letters may be a product or a segment (AB, xyz); longer unknown words are prose
        if not word.isascii() and word not in _ALLOWED_WORDS and _HAN.search(word) and "分之" not in word:
            return False
        if word.casefold() not in _ALLOWED_WORDS and (len(word) > 3 or _is_common(word)):
            return False
    return not re.search(r"[.!?]\s+\S", plain)


def _is_common(word: str) -> bool:
    return word.casefold() in SHORT_WORDS


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space, quotes, emphasis and a final full stop at its ends."""
    while start < end and (text[start].isspace() or text[start] in "\"“'‘*`:：_"):
        start += 1
    if text.startswith('\\"', start, end) and text.endswith('\\"', start, end):
        start, end = start + 2, end - 2
    while start < end and (text[end - 1].isspace() or text[end - 1] in ".\"”'’*`,;:。，；！!_"):
        if text.endswith("...", start, end):
            break
        if text[end - 1] in ".,;:!" and text[end - 2 : end - 1] == "\\":
            break
        if text[end - 1] == "'" and text[start - 1 : start] != "'":
            break
        if text[end - 1] == "!" and (text[end - 2 : end - 1].isalnum() or text[end - 2 : end - 1] in ")}"):
            break
        end -= 1
    return start, end
