"""The last formula or number of a stretch of prose: delimiters, currency, lists, units, operands."""

from __future__ import annotations

import re

from reward_service.worker.verify.v2.tables import (
    CURRENCY_SIGNS,
    UNIT_RUNS,
)

Span = tuple[int, int]

_EXPRESSION_WINDOW = 3_000
_LONGEST_FORMULA = 1_500
_NUMBER = re.compile(
    r"(?:(?<![\w.)^/])[-−+])?(?:[$€£¥]\s?[-−+]?)?"
    r"(?:\d+[ ]\d+\s?/\s?\d+|\d+(?:[,.]\d+)*(?:[eE][-+]?\d+)?(?:\s?[/:]\s?\d+(?:[,.]\d+)*)?|\.\d+)[½⅓⅔¼¾]?"
    r"|[-−]?[½⅓⅔¼¾⅕⅛]|-?\\[dt]?frac\{[^{}]{1,60}\}\{[^{}]{1,60}\}"
)
_PERCENT = re.compile(r"\s?(?:\\?[%％]|per\s?cent\b|pct\b)|\s?(?:thousand|million|billion)\b|\s?[aApP]\.?[mM]\b\.?")
_NOT_BEFORE = re.compile(r"\b(?:not|n't|never|isn't)\s+(?:equal\s+to\s+|be\s+|=\s*)?$", re.IGNORECASE)
_OPERATOR_BEFORE = re.compile(r"[\d)}]\s?(?:[-+*×·÷−]|\*\*)\s?\$?$")
_CALL_BEFORE = re.compile(r"[\w)\]][(\[](?:['\"][^'\"()\n]{0,30})?$")
_FORMULA_GOES_ON = re.compile(r"[π√^]|\._|\\(?!text|mathrm|[%$,; ])|[a-zA-Z](?![a-zA-Z])")
_GLUED_WORD = re.compile(r"[A-Za-z]+")
_WORD_JOINT = re.compile(r",?\s+(?:and|or)\s+(?:[A-Za-z](?:_\w{1,4})?\s*=\s*)?|\s*[和或、]\s*")
_LIST_END = re.compile(r"(?:\s*[,;]\s*\d+(?:\.\d+)?){0,50}(?:,?\s+(?:and|or)\s+\d|\s*[.。]?\s*$|\.\s)")
_LIST_JOINT = re.compile(r"\s*(?:[,;]?\s*(?:and|or)|[,;、])\s*(?=\$|\\\()")


def formula_at(text: str, start: int, end: int) -> Span | None:
    """The formula whose delimiter stands at this place, delimiters included; a dollar sign may be currency."""
    for opener, closer in (("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)"), ("$", "$")):
        if not text.startswith(opener, start):
            continue
        close = text.find(closer, start + len(opener), min(end, start + _LONGEST_FORMULA))
        if close < 0 or close == start + len(opener):
            return None
        if opener == "$" and _is_currency(text, start, close):
            return None
        return start, close + len(closer)
    return None


def is_one_formula(text: str) -> bool:
    """Whether delimiters stand round the whole text and nowhere else: however long, it is one formula."""
    text = text.strip()
    return any(
        text.startswith(opener) and len(text) > 4 and text.find(closer, len(opener)) == len(text) - len(closer)
        for opener, closer in (("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)"), ("$", "$"))
    )


def _is_currency(text: str, start: int, close: int) -> bool:
    """`$5 and $6`, `$200,000 - $130,000`: a dollar before a digit whose partner is itself a dollar before a digit."""
    return text[start + 1 : start + 2].isdigit() and text[close + 1 : close + 2].isdigit() and text[close - 1].isspace()


def with_companions(text: str, span: Span) -> Span:
    """`$12$ and $13$` is one list; `$28$ percent` keeps its percent."""
    start, end = span
    while (joint := _LIST_JOINT.match(text, end)) is not None:
        following = formula_at(text, joint.end(), len(text))
        if following is None:
            break
        end = following[1]
    percent = _PERCENT.match(text, end)
    return start, percent.end() if percent else end


def final_expression(text: str, start: int, end: int) -> Span | None:
    """The last formula or number between two places, whichever ends later."""
    start = max(start, end - _EXPRESSION_WINDOW)
    best: Span | None = None
    position = start
    while position < end:
        character = text[position]
        if character in "$\\" and text[position - 1 : position] != "\\":
            formula = formula_at(text, position, end)
            if formula is not None and formula[1] <= end:
                best = with_companions(text, formula)
                position = best[1]
                continue
        number = (
            _NUMBER.match(text, position, end)
            if character in "-−+.\\½⅓⅔¼¾⅕⅛" or character.isdigit() or character in CURRENCY_SIGNS
            else None
        )
        if number is None:
            position += 1
            continue
        span = _number_span(text, number, end)
        if best is not None and span is not None and text[best[1] : span[0]].strip(" $") in ("≈", "\\approx"):
            # 2/3 ≈ 0.667: the exact value is the answer, the decimal a remark
            position = number.end()
            continue
        if span is not None:
            best = (best[0], span[1]) if best is not None and _continues_list(text, best[1], span) else span
        elif _FORMULA_GOES_ON.match(text, number.end(), end) or _is_operand(text, number.start()):
            # 25π, 3x, 5 - 3: a number inside a formula without delimiters, and no earlier number is the answer either
            best = None
        position = number.end()
    return best


def _continues_list(text: str, before: int, span: Span) -> bool:
    """`2, 3 and 5`, `3 or 4`: one list. A comma alone only at the end of a sentence: not "in 2019, 5 people"."""
    gap = text[before : span[0]]
    if _WORD_JOINT.fullmatch(gap):
        return True
    return gap.strip() in (",", ";") and (_LIST_END.match(text, span[1]) is not None)


def _number_span(text: str, number: re.Match[str], end: int) -> Span | None:
    """A number that stands for itself: not part of a word, an index, a call, an exponent, and not denied."""
    start, stop = number.span()
    before = text[start - 1 : start] if start else ""
    if before.isalpha() or before in ("_", "^", "#") or _CALL_BEFORE.search(text, max(0, start - 36), start):
        return None
    glued = _GLUED_WORD.match(text, stop, end)
    if glued is not None and not _is_unit(glued):
        return None
    if _is_operand(text, start):
        return None
    if _FORMULA_GOES_ON.match(text, stop, end) and not _is_unit(glued):
        return None
    if text[stop : stop + 1] in ("^", "_") or _NOT_BEFORE.search(text, max(0, start - 24), start):
        return None
    percent = _PERCENT.match(text, stop, end)
    return start, percent.end() if percent else stop


def _is_operand(text: str, start: int) -> bool:
    """Whether a number is the last operand of a sum that was left undone: the 3 of `5 - 3`."""
    return _OPERATOR_BEFORE.search(text, max(0, start - 6), start) is not None


def _is_unit(glued: re.Match[str] | None) -> bool:
    """Letters right behind a number: a unit, or a word of which nobody makes a variable."""
    if glued is None:
        return False
    word = glued.group()
    return word.casefold() in UNIT_RUNS or word in ("m", "g", "L") or len(word) >= 4
