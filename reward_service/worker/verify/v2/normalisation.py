"""From what a model or a data set typed to one plain spelling: Unicode, thousands separators, wrappers, punctuation.

Nothing here knows grammar, and nothing is guessed: `1.234,5` stays what it is, and the tokenizer refuses it.
"""

from __future__ import annotations

import re
import unicodedata

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
_CHINESE_FRACTION = re.compile(r"([一二三四五六七八九十]|\d{1,9})分之([一二三四五六七八九十]|\d{1,9}| sqrt \d{1,9})")
_WRITTEN_THOUSANDS = re.compile(r"(?<=\d)[ ]?(?:\{[ ]?,[ ]?\}|,\\!|\\,|\\!)[ ]?(?=\d{3}(?!\d))")
_GLUED_CONNECTOR = re.compile(r"(?<=[\d)\]}])(or|and)(?=[A-Za-z(\[\\\d-])")
_LETTER_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_APPROXIMATELY = re.compile(r"^(?:\\approx|\\sim|~|≈|=)\s*")
_ANSWER_IS = re.compile(r"^(?:the\s+)?(?:final\s+)?answer\s*(?:is\b|[:=])\s*", re.IGNORECASE)
_LEADING_WORD = re.compile(r"^([A-Za-z]+)[.:]?\s+(?=[-+$\\\d.])")
_OPENERS = ("$$", "$", r"\(", r"\[")
_CLOSERS = {"$$": "$$", "$": "$", r"\(": r"\)", r"\[": r"\]"}
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "「": "」", "**": "**", "__": "__", "*": "*"}


def to_latex(text: str) -> str:
    """Replace Unicode mathematics and full width characters by their ASCII or LaTeX spelling."""
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + "".join(SUPERSCRIPTS[c] for c in run.group()) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + "".join(SUBSCRIPTS[c] for c in run.group()) + "}", text)
    text = unicodedata.normalize("NFKC", text.translate(_CHARACTER_MAP)).translate(_CHARACTER_MAP)
    return _CHINESE_FRACTION.sub(_chinese_fraction, text)


def _chinese_fraction(match: re.Match[str]) -> str:
    below, above = (CHINESE_DIGITS.get(part, part) for part in match.groups())
    return rf"(({above})/({below}))"


def strip_wrappers(text: str) -> str:
    """Drop white space, math delimiters, quotes, Markdown emphasis and final punctuation around an answer."""
    while True:
        before = text
        text = text.strip()
        if text[-1:] in (".", ",", ";", ":") and not text.endswith(("...", r"\,", r"\;", r"\:")):
            text = text[:-1]
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
            return text


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
    text = strip_wrappers(to_latex(text))
    text = _ANSWER_IS.sub("", text, count=1)
    text = _APPROXIMATELY.sub("", text, count=1)
    text = _WRITTEN_THOUSANDS.sub("", text)
    text = _LETTER_TIMES.sub(r"\\times ", text)
    text = _GLUED_CONNECTOR.sub(r" \1 ", text)
    leading = _LEADING_WORD.match(text)
    if leading and leading.group(1).lower() in WORDS_BEFORE_VALUES:
        text = text[leading.end() :]
    return text
