"""Plain numbers as people write them: sign, thousands separators, decimals, a fraction, an exponent, a percent sign.

No reward by itself: what the number rewards share. Grammar only, no algebra; ASCII digits after a few Unicode signs.
"""

from __future__ import annotations

import re
from fractions import Fraction

# Digits beyond these carry no meaning in an answer, and their arithmetic costs more than linear time.
_MOST_CHARACTERS = 400
_LARGEST_EXPONENT = 400
_SIGNS = str.maketrans({"−": "-", "–": "-", "﹣": "-", "－": "-", "\u00a0": " ", "\u202f": " "})
_UNSIGNED = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_WHOLE = re.compile(rf"([+-]?)({_UNSIGNED})(?:\.0*)?")
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s?(?P<whole>{_UNSIGNED}(?=[^0-9,]|\Z)|(?=\.[0-9]))"
    r"(?P<part>\.[0-9]*)?(?:[eE](?P<exponent>[+-]?[0-9]{1,4})|(?:\s?/\s?)(?P<below>[0-9]+))?"
)


def whole_number_v1(text: str) -> str | None:
    """A text that is one whole number, as sign and digits without leading zeros (`-0` is `0`); None otherwise."""
    match = _WHOLE.fullmatch(text.translate(_SIGNS)) if text.isascii() or len(text) <= _MOST_CHARACTERS else None
    if match is None:
        return None
    digits = match.group(2).replace(",", "").lstrip("0") or "0"
    return ("-" if match.group(1) == "-" and digits != "0" else "") + digits


def leading_number_v1(text: str) -> tuple[Fraction, str] | None:
    """The exact value of the number that a text starts with, and the stripped rest; None where it starts with none.

    Refuses (None) what is longer than 400 characters, an exponent beyond 400, and a denominator of zero.
    """
    text = text.strip().translate(_SIGNS)
    match = _NUMBER.match(text[: _MOST_CHARACTERS + 1])
    if match is None or match.end() > _MOST_CHARACTERS:
        return None
    exponent, below = int(match["exponent"] or 0), int(match["below"] or 1)
    if abs(exponent) > _LARGEST_EXPONENT or below == 0:
        return None
    decimals = (match["part"] or ".")[1:]
    value = Fraction(int((match["whole"].replace(",", "") + decimals) or "0"), 10 ** len(decimals) * below)
    return value * Fraction(10) ** exponent * (-1 if match["sign"] == "-" else 1), text[match.end() :].strip()
