"""Where a decimal ends to be a value's approximation, and what has no value: to the last place, at the last point."""

from __future__ import annotations

from fractions import Fraction

import pytest
from mpmath import mp

from tests.service.worker.verify_v2.test_equality import is_paid

FRACTIONS = ("2/3", "1/3", "1/7", "22/7", "5/6", "100/3", "355/113", "1/17", "-2/3")
IRRATIONALS = {r"\sqrt{2}": "sqrt(2)", r"\pi": "pi", "e": "e", r"\ln 2": "log(2)", r"\sqrt[3]{5}": "cbrt(5)"}


def exact(text: str) -> Fraction:
    """The value of a fraction, or 40 digits of an irrational number."""
    if text not in IRRATIONALS:
        return Fraction(text)
    with mp.workdps(50):
        value = {"sqrt(2)": mp.sqrt(2), "pi": mp.pi, "e": mp.e, "log(2)": mp.log(2), "cbrt(5)": mp.cbrt(5)}
        return Fraction(mp.nstr(value[IRRATIONALS[text]], 40))


def decimal(units: int, places: int) -> str:
    """So many units of the last place, written out."""
    sign, digits = "-" if units < 0 else "", f"{abs(units):0{places + 1}d}"
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


def digits_of(units: int) -> int:
    return len(str(abs(units)))


@pytest.mark.parametrize("value", [*FRACTIONS, *IRRATIONALS])
def test_a_gold_decimal_is_the_value_rounded_at_its_last_place_and_not_its_neighbour(value: str) -> None:
    for places in range(2, 9):
        rounded = round(exact(value) * 10**places)
        if digits_of(rounded) < 10:
            paid = [is_paid(decimal(rounded + off, places), rf"\boxed{{{value}}}") for off in (-1, 0, 1)]
            assert paid == [False, True, False], (value, places)


@pytest.mark.parametrize("value", FRACTIONS)
def test_an_answer_in_decimals_is_the_fraction_rounded_with_five_digits_and_not_its_neighbour(value: str) -> None:
    for places in range(3, 9):
        rounded = round(exact(value) * 10**places)
        if digits_of(rounded) < 10:
            paid = [is_paid(value, decimal(rounded + off, places)) for off in (-1, 0, 1)]
            assert paid == [False, digits_of(rounded) >= 5, False], (value, places)


@pytest.mark.parametrize("value", [*FRACTIONS, *IRRATIONALS])
def test_ten_digits_may_be_cut_off_or_rounded_and_nothing_further(value: str) -> None:
    for places in range(8, 14):
        below = exact(value) * 10**places // 1
        if digits_of(below) >= 10:
            paid = [is_paid(value, decimal(below + off, places)) for off in (-1, 0, 1, 2)]
            assert paid == [False, True, True, False], (value, places)
        elif value in IRRATIONALS:
            assert not is_paid(value, decimal(below, places)), (value, places)


# What is defined nowhere, or at too few points, is equal to nothing: neither to a number nor to its like.
NOWHERE = [
    r"0^{-1}",
    r"(\pi-\pi)^{-1}",
    r"(\pi-\pi)^{-1/2}",
    r"\frac{1}{\ln 1}",
    r"\frac{2}{\pi-\pi}",
    r"(\sin 0)^{-2}",
    r"\frac{1}{x-x}",
    r"\frac{\sin x}{x-x}",
    r"(\sin x-\sin x)^{-1}",
    r"\ln(x-x)",
]
NUMBERS = ["0", "1", "-1", "x", r"\sin x"]


@pytest.mark.parametrize("gold", NOWHERE)
def test_what_has_no_value_is_equal_to_nothing(gold: str) -> None:
    others = [one for one in NOWHERE if one != gold]
    assert [one for one in NUMBERS + others if is_paid(gold, rf"\boxed{{{one}}}")] == []
    assert [one for one in NUMBERS if is_paid(one, rf"\boxed{{{gold}}}")] == []


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{1}{\lfloor |x|/3\rfloor}", "1"),
        (r"\frac{1}{\lfloor |x|/3\rfloor}", r"\frac{1}{\lfloor |x|/3.01\rfloor}"),
        (r"\frac{1}{\lfloor |t|/4\rfloor}", "1"),
    ],
)
def test_functions_that_meet_at_the_only_sample_with_a_value_are_not_equal(gold: str, answer: str) -> None:
    assert not is_paid(gold, answer)
    assert not is_paid(answer, gold)
