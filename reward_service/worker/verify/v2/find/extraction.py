"""Which answer a completion commits to: an ordered list of rules, linear in the text, none of them aware of the gold.

1. Only what stands outside the reasoning counts, and only the turn that was asked for.
2. `answer_tag`: the last complete answer block; inside it the rules below apply.
3. `boxed`: the last box, unless it is withdrawn and another answer stated, or "final answer: …" follows it.
4. `whole`: the text is nothing but an answer.
5. `marker`: "the answer is …", `####`, `A:`, 答案 …, the last one that is followed by an answer; `correction` when a
   sentence behind it takes that answer back and states another.
6. `label`: an option letter with its text.
7. `stated_choice`: "I choose C", "option C is correct", a letter alone on the last line.
8. `final_statement`: the formula that the last sentence says something is.
9. `final_expression`: the last formula or number of the text.
10. `final_words`: the few words that the last sentence says something is.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from reward_service.worker.types import Found
from reward_service.worker.verify.v2.find.bare import is_bare_answer, trimmed
from reward_service.worker.verify.v2.find.boxes import boxed_answer
from reward_service.worker.verify.v2.find.formulas import final_expression, is_one_formula
from reward_service.worker.verify.v2.find.normalisation import doubled_backslashes, without
from reward_service.worker.verify.v2.find.statements import (
    final_choice,
    final_statement,
    final_words,
    find_marker,
    later_choice,
    stated_choice,
)

Span = tuple[int, int]

_REASONING_END = re.compile(r"</(?:think|thinking|reasoning|thought)>|◁/think▷", re.IGNORECASE)
_REASONING_START = re.compile(r"<(?:think|thinking|reasoning|thought)>|◁think▷", re.IGNORECASE)
_TURN = re.compile(r"<\|(?:im_start|im_end|endoftext|eot_id|end|user|start_header_id|end_of_text)\|>|</s>")
_QUESTION = re.compile(r"^[ \t]*(?:Q|Question|Human|User)[ \t]*\d{0,3}:", re.MULTILINE)
_BLOCK_START = re.compile(r"<(?:answer|final_answer)>", re.IGNORECASE)
_BLOCK_END = re.compile(r"</(?:answer|final_answer)\s*(?:>|$)", re.IGNORECASE)
_ANY_TAG = re.compile(r"</?(?:answer|final_answer|think|thinking|reasoning|thought)>", re.IGNORECASE)
_WITHDRAWN = re.compile(
    r"\b(?:wrong|incorrect|mistaken?|wait|actually|correction|correcting|oops|not right|instead)\b", re.IGNORECASE
)
_TAKEN_BACK = re.compile(
    r"[.!?\n]\W{0,4}(?:(?:but|no|hmm|oh)\W{1,3})?(?:wait|actually|oops|correction|sorry|no(?=,)|(?:that|this|it)(?:'s|\sis|\swas)\s"
    r"(?:wrong|incorrect|not\s(?:right|correct)|a\smistake))\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[\s*]*\(?([A-Ja-j])\**(?:\)|\.|:)\**\s+\S|[\s*]*\(?([A-Ja-j])[)*]*,?\s+(?:because|since)\s")
_LETTER = re.compile(r"\(?[A-Za-z]\)?")
_FINAL_ANSWER = re.compile(r"\bfinal\sanswer\W{1,6}(?:the\sfinal\sanswer\sis\b)?", re.IGNORECASE)
_LONGEST_WHOLE = 300
_DERIVATION = re.compile(r"\\[(\[]|[^\d\s,;.]\s*\n")
_LONGEST_FORMULA = 20_000
_LONGEST_TEXT = 60
_MOST_WORDS = 3
_REFUSAL = re.compile(r"\b(?:not|\w+n['’]t|unknown|unsure|sorry)\b", re.IGNORECASE)


def extract(completion: str) -> Found | None:
    """The answer that the completion commits to, the rule that found it and its span; None when there is none."""
    places = doubled_backslashes(completion)
    if places:
        found = _extract(without(completion, places))
        span = _widened(found.span, places) if found is not None and found.span is not None else None
        return None if found is None else Found(found.answer, found.by, span)
    return _extract(completion)


def _extract(completion: str) -> Found | None:
    start, end = committed(completion)
    block = _last_block(completion, start, end)
    if block is None:
        return _from_text(completion, start, end)
    found = _from_text(completion, *block)
    return None if found is None else Found(found.answer, "answer_tag", found.span)


def _widened(span: Span, places: list[int]) -> Span:
    """A span of a text that lost some characters as a span of the text before."""
    start = span[0] + bisect_right([place - index for index, place in enumerate(places)], span[0])
    end = span[1] + bisect_right([place - index for index, place in enumerate(places)], span[1] - 1)
    return start, end


def committed(completion: str) -> Span:
    """The part after the reasoning and before any invented further turn."""
    start, end = 0, len(completion)
    last = None
    for last in _REASONING_END.finditer(completion):
        pass
    if last is not None:
        start = last.end()
    opened = _REASONING_START.search(completion, start)
    if opened is not None:
        end = opened.start()
    if last is not None and not completion[start:end].strip():
        # nothing follows the reasoning: the answer may stand before it
        opened = _REASONING_START.search(completion)
        start, end = 0, opened.start() if opened is not None and opened.start() < last.start() else 0
    for turn in _TURN.finditer(completion, start, end):
        if completion[start : turn.start()].strip():
            return start, turn.start()
        start = turn.end()
    return start, _before_next_question(completion, start, end)


def _before_next_question(text: str, start: int, end: int) -> int:
    """The end of the answer when the model goes on to ask itself another question."""
    first = _QUESTION.search(text, start, end)
    if first is None or not text[start : first.start()].strip():
        return end
    answered = "boxed" in text[start : first.start()] or find_marker(text[start : first.start()]) is not None
    return first.start() if answered else end


def _last_block(text: str, start: int, end: int) -> Span | None:
    """The content of the last complete answer block; of an unfinished one only when no block is complete."""
    openings = [match.end() for match in _BLOCK_START.finditer(text, start, end)]
    if not openings:
        return None
    closings = [match.start() for match in _BLOCK_END.finditer(text, start, end)]
    while closings and closings[-1] < openings[0]:
        closings.pop()
    if not closings:
        return openings[-1], end
    closing = closings[-1]
    previous = closings[-2] if len(closings) > 1 else -1
    inside = [opening for opening in openings if previous < opening <= closing]
    return (inside[-1] if inside else openings[0], closing)


def _from_text(text: str, start: int, end: int) -> Found | None:
    """The rules below the answer block, in their order, on one stretch of the completion."""
    start, end = _without_tags(text, start, end)
    part = text[start:end]
    if not part.strip():
        return None
    if "box" in part:
        span = boxed_answer(part)
        if span is not None:
            replaced = _replacement(part, span[1])
            return _found(text, "marker" if replaced else "boxed", replaced or span, start)
        if "\\boxed" in part or "\\fbox" in part or "\\framebox" in part:
            return None
    if (len(part) <= _LONGEST_WHOLE and is_bare_answer(part)) or is_one_formula(part) or _is_long_formula(part):
        return _found(text, "whole", trimmed(part, 0, len(part)), start)
    span = find_marker(part)
    if span is not None:
        corrected = _correction(part, span[1])
        if corrected is None and _LETTER.fullmatch(part, *span):
            corrected = later_choice(part, span[1])
        return _found(text, "correction" if corrected else "marker", corrected or span, start)
    if len(part) <= _LONGEST_WHOLE and (label := _LABEL.match(part)) and "\n" not in part.strip():
        alone = "*" in label.group() or label.group(2)
        span = label.span(label.lastindex or 0) if alone else trimmed(part, 0, len(part))
        return _found(text, "label", span, start)
    span = stated_choice(part) or final_choice(part)
    if span is not None:
        return _found(text, "stated_choice", span, start)
    span = final_statement(part)
    if span is not None:
        return _found(text, "final_statement", span, start)
    span = final_expression(part, 0, len(part))
    if span is not None:
        return _found(text, "final_expression", span, start)
    span = final_words(part)
    if span is None and len(part) <= _LONGEST_TEXT and len(part.split()) <= _MOST_WORDS and not _REFUSAL.search(part):
        span = trimmed(part, 0, len(part))
    return _found(text, "final_words", span, start) if span is not None else None


def _is_long_formula(part: str) -> bool:
    """A bare formula or list, however long: no piece of it is the answer. A derivation ends in one and is none."""
    if not _LONGEST_WHOLE < len(part) <= _LONGEST_FORMULA or "=" in part or "$" in part:
        return False
    return not _DERIVATION.search(part) and is_bare_answer(part)


def _without_tags(text: str, start: int, end: int) -> Span:
    """Drop stray tags at the ends of a stretch: they never reach the parser."""
    while True:
        while start < end and text[start].isspace():
            start += 1
        match = _ANY_TAG.match(text, start, end)
        if match is None:
            break
        start = match.end()
    stray = None
    for stray in _ANY_TAG.finditer(text, start, end):
        break
    end = stray.start() if stray is not None else end
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _replacement(part: str, behind: int) -> Span | None:
    """The answer that is stated after a box was called wrong."""
    final = _FINAL_ANSWER.search(part, behind)
    if final is not None:
        rest = part[final.start() :]
        span = find_marker(rest)
        if span is not None and is_bare_answer(rest[span[0] : span[1]]):
            return span[0] + final.start(), span[1] + final.start()
    withdrawn = _WITHDRAWN.search(part, behind, behind + 2000)
    if withdrawn is None:
        return None
    span = find_marker(part[withdrawn.end() :])
    return None if span is None else (span[0] + withdrawn.end(), span[1] + withdrawn.end())


def _correction(part: str, behind: int) -> Span | None:
    """What is stated after a sentence that takes the answer before it back."""
    taken_back = _TAKEN_BACK.search(part, behind, behind + 2000)
    if taken_back is None:
        return None
    choice = later_choice(part, taken_back.end())
    if choice is not None:
        return choice
    rest = part[taken_back.end() :]
    span = final_statement(rest) or final_expression(rest, 0, len(rest))
    return None if span is None else (span[0] + taken_back.end(), span[1] + taken_back.end())


def _found(text: str, by: str, span: Span, offset: int) -> Found | None:
    start, end = span[0] + offset, span[1] + offset
    answer = text[start:end].strip()
    return Found(answer, by, (start, end)) if answer else None
