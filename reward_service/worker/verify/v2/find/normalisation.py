"""From what a model or a data set typed to one plain spelling: Unicode, thousands separators, wrappers, punctuation.

Nothing here knows grammar, and nothing is guessed: `1.234,5` stays what it is, and the tokenizer refuses it.
"""

from __future__ import annotations

import re
import unicodedata

from reward_service.worker.verify.v2.find.boxes import with_commas
from reward_service.worker.verify.v2.tables import (
    CHARACTERS,
    CHINESE_DIGITS,
    SUBSCRIPTS,
    SUPERSCRIPTS,
    WORDS_BEFORE_VALUES,
)

_CHARACTER_MAP = {ord(character): spelling for character, spelling in CHARACTERS.items()}
_SUPERSCRIPT_RUN = re.compile("[" + "".join(SUPERSCRIPTS) + "]{1,40}")
_SUBSCRIPT_RUN = re.compile("[" + "".join(SUBSCRIPTS) + "]{1,40}")
_CHINESE_NUMERAL = re.compile(r"[一二三四五六七八九]?十[一二三四五六七八九]?|[一二三四五六七八九]")
_CHINESE_MATHEMATICS = re.compile("分之|根号")
_CHINESE_CONTEXT = re.compile(
    r"[一二三四五六七八九十百\d.]{0,12}分之(?:根号)?[一二三四五六七八九十]{0,3}|根号[一二三四五六七八九十]{1,3}"
)
_CHINESE_PERCENT = re.compile(r"百分之(\d{1,9}(?:\.\d{1,9})?)")
_CHINESE_FRACTION = re.compile(r"(\d{1,9})分之(\d{1,9}| sqrt \d{1,9})")
_WRITTEN_THOUSANDS = re.compile(r"(?<=\d)[ ]?(?:\{[ ]?,[ ]?\}|,\\!|\\,|\\!)[ ]?(?=\d{3}(?!\d))")
_GLUED_CONNECTOR = re.compile(r"(?<=[\d)\]}])(or|and)(?=[A-Za-z(\[\\\d-])")
_LETTER_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_UNION_LETTER = re.compile(r"(?<=[)\]}])\s*U\s*(?=\\?[(\[{])")
_PART_OF_DAY = re.compile(r"(?<=\d)\s*([aApP])\.?\s?[mM]\b\.?(?=\s*\}?$)")
_NUMBERS_ON_LINES = re.compile(r"(?<=\d)[ \t]*\n\s*(?=-?\d)")
_TO_RATIO = re.compile(r"(\d+)\s+to\s+(\d+)")
_TEXT_BEFORE_ANSWER = re.compile(r"^\\text\s*\{\s*((?:the\s+)?(?:final\s+)?answer\s*(?:is\b|[:=]))\s*\}", re.IGNORECASE)
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}()\[\]])")
_COMMON = r"(?:boxed|fbox|[dt]?frac|sqrt|left|text|begin|pi|cdot|times|leq?|geq?|infty|cup)(?![A-Za-z])"
_DOUBLED_COMMAND = re.compile(rf"\\\\{_COMMON}")
_SINGLE_COMMAND = re.compile(rf"(?<!\\)\\{_COMMON}")
_APPROXIMATELY = re.compile(r"^(?:\\approx|\\sim|~|≈|=)\s*")
_ANSWER_IS = re.compile(
    r"^(?:(?:the\s+)?(?:final\s+)?ans(?:wer)?\s*(?:is\b|[:=])|ans\.|答案?[:是]|답[:은])\s*", re.IGNORECASE
)
_LEADING_WORD = re.compile(r"^([A-Za-z]+)[.:]?\s+(?=[-+$\\\d.])")
_MOST_WRAPPERS = 40
_OPENERS = ("$$", "$", r"\(", r"\[")
_CLOSERS = {"$$": "$$", "$": "$", r"\(": r"\)", r"\[": r"\]"}
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "「": "」", "**": "**", "__": "__", "*": "*"}


def to_latex(text: str) -> str:
    """Replace Unicode mathematics and full width characters by their ASCII or LaTeX spelling."""
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + "".join(SUPERSCRIPTS[c] for c in run.group()) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + "".join(SUBSCRIPTS[c] for c in run.group()) + "}", text)
    text = unicodedata.normalize("NFKC", text.translate(_CHARACTER_MAP)).translate(_CHARACTER_MAP)
    return _chinese(text) if _CHINESE_MATHEMATICS.search(text) else text


def _chinese(text: str) -> str:
    """百分之五十, 二分之一, 根号二: percentages, fractions and roots in words."""
    text = _CHINESE_CONTEXT.sub(lambda part: _CHINESE_NUMERAL.sub(_chinese_numeral, part.group()), text)
    text = _CHINESE_PERCENT.sub(r"\1%", text.replace("根号", " sqrt "))
    return _CHINESE_FRACTION.sub(r"((\2)/(\1))", text)


def _chinese_numeral(match: re.Match[str]) -> str:
    tens, ten, ones = match.group().rpartition("十")
    if not ten:
        return CHINESE_DIGITS[ones]
    return str(10 * int(CHINESE_DIGITS.get(tens, "1")) + int(CHINESE_DIGITS.get(ones, "0")))


def doubled_backslashes(text: str) -> list[int]:
    r"""Where a text that was escaped once too often (`\\frac{1}{2}` throughout) has a backslash too many."""
    if "\\\\" not in text or not _DOUBLED_COMMAND.search(text) or _SINGLE_COMMAND.search(text):
        return []
    return [match.start() for match in _DOUBLED.finditer(text)]


def without(text: str, places: list[int]) -> str:
    """The text without the characters at some places, which are in order."""
    ends = [*places, len(text)]
    return "".join(text[start:end] for start, end in zip([0, *(place + 1 for place in places)], ends, strict=True))


def strip_wrappers(text: str) -> str:
    """Drop white space, math delimiters, quotes, Markdown emphasis and final punctuation around an answer."""
    for _ in range(_MOST_WRAPPERS):
        before = text
        text = _without_punctuation(text.strip())
        for opener in _OPENERS:
            closer = _CLOSERS[opener]
            if text.startswith(opener) and text.endswith(closer) and len(text) >= len(opener) + len(closer):
                inner = text[len(opener) : len(text) - len(closer)]
                if opener.strip("$") or "$" not in inner.replace(r"\$", ""):
                    text = inner
                break
        text = _unboxed(text)
        for opener, closer in _QUOTES.items():
            if len(text) > len(opener) + len(closer) and text.startswith(opener) and text.endswith(closer):
                inner = text[len(opener) : len(text) - len(closer)]
                if opener not in inner:
                    text = inner
        if text == before:
            break
    return text


def _without_punctuation(text: str) -> str:
    """The text without the full stops, commas and white space at its end; an ellipsis and a LaTeX space stay."""
    end = len(text)
    while end and (text[end - 1] in ".,;:" or text[end - 1].isspace()):
        if text.endswith(("...", r"\,", r"\;", r"\:"), 0, end):
            break
        end -= 1
    return text[:end]


def _unboxed(text: str) -> str:
    """The content of a box that is the whole text."""
    opening = _BOX.match(text)
    if opening is None:
        return text
    depth = 1
    for brace in _BRACE.finditer(text, opening.end()):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[opening.end() : brace.start()] if brace.end() == len(text) else text
    return text


def clean(text: str) -> str:
    """One spelling for many: the text that the tokenizer reads."""
    text = strip_wrappers(with_commas(to_latex(text)))
    if text.startswith("\\text"):
        text = _TEXT_BEFORE_ANSWER.sub(r"\1 ", text)
    text = _ANSWER_IS.sub("", text, count=1)
    if "U" in text:
        text = _UNION_LETTER.sub(r"\\cup ", text)
    text = _PART_OF_DAY.sub(r" \\text{\1m}", text)
    if "\n" in text:
        text = _NUMBERS_ON_LINES.sub(", ", text)
    if (ratio := _TO_RATIO.fullmatch(text)) is not None:
        return f"{ratio.group(1)}:{ratio.group(2)}"
    text = _APPROXIMATELY.sub("", text, count=1)
    text = _WRITTEN_THOUSANDS.sub("", text)
    text = _LETTER_TIMES.sub(r"\\times ", text)
    text = _GLUED_CONNECTOR.sub(r" \1 ", text)
    leading = _LEADING_WORD.match(text)
    if leading and leading.group(1).lower() in WORDS_BEFORE_VALUES:
        text = text[leading.end() :]
    return text
