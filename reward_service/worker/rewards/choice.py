"""Hallmark's reward for multiple choice: the letter that the completion committed to.

Looked for in the last complete `<answer>` block, else the last `\\boxed{}`, else (lenient) behind the last "answer is"
or "answer:", else (lenient) in the whole text where it is short. Two letters, or "A or B or C", are no choice.
"""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards.blocks import last_block_v1, last_box_v1
from reward_service.worker.types import NO_ANSWER, BadGold, Found, Item, Outcome

_SHORT = 200
_READ_BEHIND = 120
_WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s?\{([^{}]*)\}")
_BARE = re.compile(r"[\s$*\"'(\[{]*([A-Za-z])[\s$*\"')\]}.:,]*")
# `B. a yellow bus`, `(B) a yellow bus`, `E: text`: a label and the option's text.
_LABEL = re.compile(r"[\s$*\"'(\[]*([A-Z])(?:[)\]]|[.:](?=\s))[\s*]*(\S.*)", re.DOTALL)
_OTHER_LABEL = re.compile(r"(?<![A-Za-z])[A-Z][).:\]](?:\s|$)|^[A-Z]\s*$")
_INTRODUCTION = re.compile(r"(?<![</])\banswer\b(?:\s{0,9}(?:is|was|must be|should be))?[\s:*]{0,9}", re.IGNORECASE)
_HEDGE = re.compile(r"(?:(?:I|we)\s(?:think|believe|guess)\s)?(?:it\sis|it's|is|definitely|clearly)\s", re.IGNORECASE)
_FIRST_LETTER = re.compile(
    r"[\s$*\"'(\[]*(?:(?:option|choice|letter)\s)?[(\[*]*([A-Za-z])(?![A-Za-z'’])[)\]*\"']*(.*)", re.DOTALL
)
# What may follow a letter that could as well be a word: "A" and "I", and lower case ones.
_ENDED = re.compile(r"\s*(?:[.,;:!?)\]$*<\n]|$|because\b|since\b|as\b)")
_AND_ANOTHER = re.compile(
    r"\s*,?\s*(?:[,/&]|\bor\b|\band\b)\s*(?:option\s|choice\s)?[*(\[]*[A-Za-z](?![A-Za-z'’])", re.IGNORECASE
)


@reward("choice.letter", version=1, range=(0.0, 1.0), needs=("gold",), source="Hallmark")
def letter_v1(item: Item, *, strict: bool = False) -> Outcome:
    r"""1.0 when the chosen letter is the gold's, else 0.0.

    Strict: the answer block or the box holds the letter and nothing more. Lenient: a letter with its option's text, and
    "the answer is B" without block or box, are choices too.
    """
    gold = _bare_letter_v1(item.gold or "")
    if gold is None:
        raise BadGold
    found = last_block_v1(item.completion, tag="answer") or last_box_v1(item.completion)
    if found is None and not strict:
        found = _introduced_v1(item.completion) or _short_text_v1(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    chosen = _bare_letter_v1(found.answer) or (None if strict else _labelled_v1(found.answer) or _said_v1(found))
    return Outcome(1.0 if chosen == gold else 0.0, found=found)


def _bare_letter_v1(text: str) -> str | None:
    match = _BARE.fullmatch(_WRAPPING.sub(r"\1", text)) if len(text) <= _SHORT else None
    return match.group(1).upper() if match else None


def _labelled_v1(text: str) -> str | None:
    match = _LABEL.fullmatch(_WRAPPING.sub(r"\1", text[: 10 * _SHORT]))
    return None if match is None or _OTHER_LABEL.search(match.group(2)) else match.group(1)


def _said_v1(found: Found) -> str | None:
    """The letter in "B because …" or "I think it is B" behind an introduction, unless another is named beside it."""
    text = found.answer
    introduction = _INTRODUCTION.match(text)
    if found.by != "introduced" and introduction is None:
        return None
    text = text[introduction.end() :] if introduction else text
    hedge = _HEDGE.match(text)
    match = _FIRST_LETTER.match(text[hedge.end() :] if hedge else text)
    if match is None or _AND_ANOTHER.match(match.group(2)):
        return None
    letter, rest = match.groups()
    could_be_a_word = letter in "AI" or letter.islower()
    return None if could_be_a_word and not _ENDED.match(rest) else letter.upper()


def _introduced_v1(text: str) -> Found | None:
    last = None
    for last in _INTRODUCTION.finditer(text):
        pass
    if last is None:
        return None
    end = min(len(text), last.end() + _READ_BEHIND)
    return Found(text[last.end() : end], "introduced", (last.end(), end))


def _short_text_v1(text: str) -> Found | None:
    if len(text) > _SHORT or (_bare_letter_v1(text) or _labelled_v1(text)) is None:
        return None
    return Found(text.strip(), "whole_text", None)
