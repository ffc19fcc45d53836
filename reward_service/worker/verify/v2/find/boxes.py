"""`\\boxed{…}` and `\\fbox{…}`: one pass over the braces of a text, however many boxes stay open in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_BRACES = re.compile(r"\\[\\{}]|\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*|[{}]")
_BARE_CONTENT = re.compile(r"-?\d[\d,]*(?:\.\d+)?|[A-Za-z]")
_PERCENT_BEHIND = re.compile(r"(?:\$|\\\)|\\\]|\s){0,6}(?:\\?[%％]|per\s?cent\b|pct\b)")
_LOOKS = re.compile(r"\\q?quad|\\[()\[\],;:!>\s]|[\s$~]+|\\text\s*\{([^{}]{0,12})\}")
_WORDY_LOOKS = re.compile(r"\\text\s*\{([^{}]{0,40})\}|\\q?quad|[$~]")
_NAME_BEFORE_BOX = re.compile(r"[A-Za-z](?:_\{?\w{1,4}\}?)?=$")
_JOINTS = frozenset({",", ";", "and", "or", ",and", ",or", "&", "和", "或", "、", "，", "；"})
# `\boxed{1} papers and \boxed{2} bins`: a few words that end in a joint, none of which takes anything back
_WORDY_JOINT = re.compile(r"(?:[a-z]{2,12}|\([a-z0-9]\))(?: (?:[a-z]{2,12}|\([a-z0-9]\))){0,3},? and")
_NO_JOINT = re.compile(
    r"\b(?:not|no|wrong|incorrect|wait|then|but|instead|first|check|so|gives?|rather|hence|thus|is|was|actually)\b"
)
_LONGEST_GAP = 80
_LONGEST_OPEN_BOX = 300


@dataclass(frozen=True, slots=True)
class Box:
    """A box from its backslash to its end, and its content."""

    start: int
    content_start: int
    content_end: int
    end: int


def find_boxes(text: str) -> tuple[list[Box], int]:
    """The outermost complete boxes in order, and where the last box that stays open begins (-1: none)."""
    found: list[Box] = []
    open_braces: list[tuple[int, int]] = []  # (start of the box or -1, start of the content)
    pending = -1
    for match in _BRACES.finditer(text):
        sign = match.group()
        if sign == "{":
            open_braces.append((pending if pending >= 0 else -1, match.end()))
            pending = -1
        elif sign == "}":
            if open_braces:
                start, content = open_braces.pop()
                if start >= 0:
                    _keep(found, Box(start, content, match.start(), match.end()))
        elif sign[1:2] in "bf":
            pending = -1
            if text[match.end() : match.end() + 1] == "{":
                pending = match.start()
            elif bare := _BARE_CONTENT.match(text, match.end()):
                _keep(found, Box(match.start(), bare.start(), bare.end(), bare.end()))
    unclosed = next((content for start, content in reversed(open_braces) if start >= 0), -1)
    return found, unclosed


def _keep(found: list[Box], box: Box) -> None:
    while found and found[-1].start > box.start:
        found.pop()
    found.append(box)


def boxed_answer(text: str) -> tuple[int, int] | None:
    """The span of the last committed box that holds anything, with the boxes it forms one list with."""
    found, unclosed = find_boxes(text)
    if found and not text[found[-1].content_start : found[-1].content_end].strip():
        # an empty last box commits to nothing
        return None
    boxes = [box for box in found if text[box.content_start : box.content_end].strip()]
    if not boxes:
        if unclosed >= 0 and len(text) - unclosed <= _LONGEST_OPEN_BOX and text[unclosed:].strip():
            return unclosed, len(text)
        return None
    last = boxes[-1]
    first = len(boxes) - 1
    while first > 0 and _forms_list(text, boxes[first - 1], boxes[first]):
        first -= 1
    contents = {text[box.content_start : box.content_end].strip() for box in boxes[first:]}
    percent = _PERCENT_BEHIND.match(text, last.end)
    if len(contents) > 1:
        return boxes[first].start, last.end
    if percent:
        return last.start, percent.end()
    return last.content_start, last.content_end


def _forms_list(text: str, one: Box, two: Box) -> bool:
    """Whether nothing but a separator (and a name like `y_2 =`) stands between two boxes: a correction never passes."""
    if two.start - one.end > _LONGEST_GAP:
        return False
    between = text[one.end : two.start]
    gap = _NAME_BEFORE_BOX.sub("", _LOOKS.sub(_looked_through, between))
    if not gap:
        # side by side in one formula they are a list; in two formulas the second replaces the first
        return "$" not in between and "\n" not in between
    return gap in _JOINTS or _is_wordy_joint(between)


def _looked_through(match: re.Match[str]) -> str:
    return match.group(1).strip() if match.group(1) else ""


def _is_wordy_joint(between: str) -> bool:
    words = " ".join(_WORDY_LOOKS.sub(r"\1", between).split())
    return _WORDY_JOINT.fullmatch(words) is not None and not _NO_JOINT.search(words)


def with_commas(text: str) -> str:
    """Boxes that form one list, with a comma where nothing or a few words join them."""
    if text.count("\\boxed") + text.count("\\fbox") < 2:
        return text
    boxes, _ = find_boxes(text)
    parts: list[str] = []
    done = 0
    for one, two in pairwise(boxes):
        between = text[one.end : two.start]
        if not _LOOKS.sub(_looked_through, between) or _is_wordy_joint(between):
            parts += [text[done : one.end], ", "]
            done = two.start
    return "".join(parts) + text[done:]
