"""Hallmark's rewards for answers that are one number: `math.numeric` with a tolerance, `math.integer` to the digit.

The answer is what the completion committed to (verify/v2); a list of numbers, a range or "5 or 6" is not one number.
"""

from __future__ import annotations

import re
from fractions import Fraction

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards.numerals import leading_number_v1, whole_number_v1
from reward_service.worker.types import NO_ANSWER, BadGold, Item, Outcome
from reward_service.worker.verify import v2
from reward_service.worker.verify.v2.tables import UNITS

_LONGEST = 400
_WRAPPING = re.compile(r"\\text\s?\{([^{}]*)\}|\\(?:mathrm|mbox)\s?\{([^{}]*)\}|\\[,;! ]|\\(?=[%$])|~")
_UNIT = re.compile(r"[^\W\d_]+(?:[ /·^*-]*[^\W\d_]+)*(?:\^?\{?[23²³]\}?)?|%|°[CF]?")


@reward("math.numeric", version=1, range=(0.0, 1.0), needs=("gold",), source="Hallmark")
def numeric_v1(item: Item, *, rel_tol: float = 1e-4, abs_tol: float = 0.0) -> Outcome:
    """1.0 when the answer is a number within the tolerance of the gold, or equals it as mathematics; else 0.0.

    Within: |answer - gold| <= max(rel_tol * |gold|, abs_tol), exactly, in one unit or with a unit on one side only.
    """
    target = measure_v1(item.gold or "")
    if target is None:
        raise BadGold
    found = v2.extract(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    given = measure_v1(found.answer)
    if given is None:
        return Outcome(float(v2.equal(gold=v2.read_gold(item.gold or ""), answer=found.answer)), found=found)
    (wanted, wanted_unit), (value, unit) = target, given
    close = abs(value - wanted) <= max(Fraction(rel_tol) * abs(wanted), Fraction(abs_tol))
    same_unit = unit == wanted_unit or not unit or not wanted_unit
    return Outcome(1.0 if close and same_unit else 0.0, found=found)


def measure_v1(text: str) -> tuple[Fraction, str] | None:
    """A number and its unit ("" without one, `%` and currencies are units) when the text is nothing more; else None."""
    if len(text) > _LONGEST:
        return None
    text = _undelimited(_WRAPPING.sub(lambda wrapped: f" {wrapped[1] or wrapped[2] or ''} ", text))
    currency = "dollar" if "$" in text[:2] else "euro" if "€" in text[:2] else ""
    number = leading_number_v1(re.sub(r"^([+-]?)\s*[$€]\s*", r"\1", text))
    if number is None:
        return None
    value, unit = number
    unit = unit.rstrip(".").strip()
    if unit and (currency or not _UNIT.fullmatch(unit)):
        return None
    return value, currency or UNITS.get(unit, UNITS.get(unit.lower(), unit.lower().removesuffix("s")))


@reward("math.integer", version=1, range=(0.0, 1.0), needs=("gold",), source="Hallmark")
def integer_v1(item: Item) -> Outcome:
    """1.0 when the answer is the gold's whole number, digit for digit (`1,000` and `1000.0` are 1000), else 0.0."""
    gold = whole_number_v1(_undelimited(item.gold or ""))
    if gold is None:
        raise BadGold
    found = v2.extract(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(1.0 if whole_number_v1(_undelimited(found.answer).removeprefix("$")) == gold else 0.0, found=found)


def _undelimited(text: str) -> str:
    """The text without white space around it, nor dollars on both sides, which delimit mathematics."""
    text = text.strip()
    return text[1:-1].strip() if len(text) > 2 and text.startswith("$") and text.endswith("$") else text
