r"""Where the answer is: the last complete `<answer>` block, else the last `\boxed{}`, else math-verify's find."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from reward_service.worker.types import Found
from reward_service.worker.verify.v1.bare import readable
from reward_service.worker.verify.v1.reading import delimited, read

MOST_ANSWER_CHARS = 2048
_BOX = re.compile(r"\\boxed\s*\{")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as found in the text, and as math-verify reads it (an empty list where it cannot)."""

    found: Found
    parsed: list[Any]


def find_answer(text: str) -> Answer | None:
    """The answer of a completion; None where there is none."""
    found = _answer_block(text) or _last_box(text)
    if found is not None:
        # The library's parser is far from linear: an answer of pages is no answer that it would ever call equal.
        return Answer(found, read(delimited(found.answer)) if len(found.answer) <= MOST_ANSWER_CHARS else [])
    parsed = read(readable(text))
    if not parsed:
        return None
    extracted = parsed[-1] if isinstance(parsed[-1], str) else ""
    start = text.rfind(extracted) if extracted else -1
    span = (start, start + len(extracted)) if start >= 0 else None
    return Answer(Found(extracted, "math_verify", span), parsed)


def _answer_block(text: str) -> Found | None:
    closing = text.rfind("</answer>")
    opening = text.rfind("<answer>", 0, max(closing, 0))
    if closing < 0 or opening < 0:
        return None
    start = opening + len("<answer>")
    # The block ends at the first closing tag after its opening one, which need not be the last of the text.
    return _stripped(text, start, text.find("</answer>", start), "answer_tag")


def _last_box(text: str) -> Found | None:
    last = None
    for last in _BOX.finditer(text):
        pass
    if last is None:
        return None
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, last.end()):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return _stripped(text, last.end(), brace.start(), "boxed")
    return None


def _stripped(text: str, start: int, end: int, by: str) -> Found:
    answer = text[start:end].strip()
    offset = text[start:end].find(answer)
    return Found(answer, by, (start + offset, start + offset + len(answer)))
