"""Two blocks in a text, a first one (the reasoning) and a second one (the answer), and what surrounds them.

No reward by itself: what the layout rewards from version 2 on share. A few passes over the text, so linear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reward_service.worker.types import Found

_BRACE = re.compile(r"[{}]")
_END_OF_TURN = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<eos>",
)
# Read backwards, because a search for a run that ends a text is quadratic.
_BACKWARDS_FROM_END = re.compile("(?:" + "|".join([r"\s", *(re.escape(token[::-1]) for token in _END_OF_TURN)]) + ")*+")


@dataclass(frozen=True, slots=True)
class Blocks:
    """The pieces of a text `before <first>reasoning</first> between <second>answer</second> after`."""

    before: str
    reasoning: str
    between: str
    answer: str
    after: str


def blocks_v1(text: str, *, first: str, second: str) -> Blocks | None:
    """The two blocks when they are balanced, once, in order; None otherwise.

    The reasoning may mention the opening tag of the second block, as in "I must write <answer> tags": it is one tag
    too many for a counter and none for a reader. A whole second block inside the reasoning is one block too many.
    """
    opening, closing = f"<{first}>", f"</{first}>"
    answer_opening, answer_closing = f"<{second}>", f"</{second}>"
    before, _, rest = text.partition(opening)
    reasoning, closed, rest = rest.partition(closing)
    between, answer_opened, rest = rest.partition(answer_opening)
    answer, answer_closed, after = rest.partition(answer_closing)
    if not (closed and answer_opened and answer_closed):
        return None
    tags = (opening, closing, answer_opening, answer_closing)
    stray = any(tag in part for part in (before, between, answer, after) for tag in tags)
    if stray or opening in reasoning or answer_closing in reasoning:
        return None
    return Blocks(before, reasoning, between, answer, after)


def is_soft_v1(blocks: Blocks | None) -> bool:
    """White space before the first block and between the two; an answer that is not blank; anything after it."""
    if blocks is None or blocks.before.strip() or blocks.between.strip():
        return False
    return bool(blocks.answer.strip())


def is_strict_v1(blocks: Blocks | None) -> bool:
    r"""Every tag on a line of its own, `\n` alone as line end, the answer not blank, at most one newline after."""
    return (
        blocks is not None
        and (blocks.before, blocks.between) == ("", "\n")
        and blocks.after in ("", "\n")
        and all(_stands_between_lines(part) for part in (blocks.reasoning, blocks.answer))
        and bool(blocks.answer.strip())
    )


def _stands_between_lines(part: str) -> bool:
    return len(part) > 1 and part.startswith("\n") and part.endswith("\n") and not part.endswith("\r\n")


def last_block_v1(text: str, *, tag: str) -> Found | None:
    """What the last opening tag that a closing one follows holds, up to there, stripped; None where that is blank."""
    closing = text.rfind(f"</{tag}>")
    opening = text.rfind(f"<{tag}>", 0, max(closing, 0))
    if opening < 0:
        return None
    start = opening + len(tag) + 2
    return found_v1(text, start=start, end=text.find(f"</{tag}>", start), by=f"{tag}_tag")


def last_box_v1(text: str) -> Found | None:
    r"""The content of the last `\boxed{}`, stripped; None where there is none, it is not closed, or it is blank."""
    content = raw_last_box_v1(text)
    if content is None:
        return None
    start = text.rfind("\\boxed{") + len("\\boxed{")
    return found_v1(text, start=start, end=start + len(content), by="boxed")


def raw_last_box_v1(text: str) -> str | None:
    r"""What the braces of the last `\boxed{}` hold, as it stands; None where there is none or it is not closed."""
    opening = text.rfind("\\boxed{")
    start, depth = opening + len("\\boxed{"), 1
    for brace in _BRACE.finditer(text, start) if opening >= 0 else ():
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[start : brace.start()]
    return None


def found_v1(text: str, *, start: int, end: int, by: str) -> Found | None:
    """The stripped text between two positions, with its span; None where it is blank."""
    answer = text[start:end].strip()
    if not answer:
        return None
    offset = start + text[start:end].find(answer)
    return Found(answer, by, (offset, offset + len(answer)))


def without_end_of_turn_v1(text: str) -> str:
    """The text without white space and end-of-turn tokens at its end."""
    backwards = _BACKWARDS_FROM_END.match(text[::-1])
    return text[: len(text) - backwards.end()] if backwards else text


def tag_lines_v1(text: str, *, first: str, second: str) -> float:
    """0.125 a tag that stands once, in order, alone on its line; less 0.001 a character after them; at least 0."""
    text = without_end_of_turn_v1(text.replace("\r\n", "\n"))
    paid, position, places = 0.0, 0, []
    for tag in (f"<{first}>", f"</{first}>", f"<{second}>", f"</{second}>"):
        place = f"\n{text}\n".find(f"\n{tag}\n", position)
        places.append(place if place >= 0 and text.count(tag) == 1 else -1)
        position = max(position, place)
    answer_from, answer_to = places[2] + len(second) + 2, places[3]
    if min(places[2:]) < 0 or not text[answer_from:answer_to].strip():
        places[2:] = [-1, -1]
    paid = 0.125 * sum(place >= 0 for place in places)
    after = len(text) - places[3] - len(second) - 3 if places[3] >= 0 else 0
    return max(0.0, paid - 0.001 * max(0, after - 1))
