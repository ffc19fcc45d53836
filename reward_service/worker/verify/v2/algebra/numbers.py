"""Exact numbers: from digits to a Fraction, and the value of a tree that is rational all through."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import Add, Call, Expr, Mul, Num, Percent, Pow

MAX_DIGITS = 1900
MAX_BITS = 20_000
_PLAIN = re.compile(r"([-+]?)\$?(\d{1,15}|[1-9]\d{0,2}(?:,\d{3}){1,4})(?:\.(\d{1,15}))?")
_SIMPLE_FRACTION = re.compile(r"([-+]?)(?:(\d{1,15})/(\d{1,15})|\\[dtc]?frac\{(-?\d{1,15})\}\{(-?\d{1,15})\})")


def plain_number(text: str) -> Num | None:
    """The cheap way for what most answers are: an integer, a decimal, a simple fraction. None: take the long way."""
    match = _PLAIN.fullmatch(text)
    if match:
        sign, digits, decimals = match.groups()
        whole = int(digits.replace(",", ""))
        if decimals is None:
            return Num(Fraction(-whole if sign == "-" else whole))
        scale = 10 ** len(decimals)
        value = Fraction(whole * scale + int(decimals), scale)
        return Num(-value if sign == "-" else value, len(decimals))
    match = _SIMPLE_FRACTION.fullmatch(text)
    if match:
        sign, above, below, latex_above, latex_below = match.groups()
        top, bottom = int(above or latex_above), int(below or latex_below)
        if bottom:
            return Num(Fraction(-top if sign == "-" else top, bottom))
    return None


def read_number(text: str) -> Num:
    """The number that a token spells: digits, perhaps a point, perhaps a power of ten."""
    if len(text) > MAX_DIGITS:
        raise TooLarge("a number has too many digits")
    mantissa, _, power = text.lower().partition("e")
    whole, point, decimals = mantissa.partition(".")
    value = Fraction(int(whole + decimals or "0"), 10 ** len(decimals))
    if power:
        if len(power) > 6 or abs(int(power)) + len(text) > MAX_DIGITS:
            raise TooLarge("a power of ten is too large")
        return Num(value * Fraction(10) ** int(power))
    return Num(value, len(decimals) if point else None)


def repeating_decimal(written: str, period: str) -> Num:
    """`0.1` with period `6` is 1/6."""
    if len(written) + len(period) > MAX_DIGITS:
        raise TooLarge("a number has too many digits")
    whole, _, decimals = written.partition(".")
    head = Fraction(int(whole + decimals or "0"), 10 ** len(decimals))
    return Num(head + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(decimals)))


def rational(node: Expr) -> Fraction | None:
    """The value of a tree made of numbers and exact operations; None where it has none or it would be large."""
    match node:
        case Num(value):
            return value
        case Percent(body):
            inside = rational(body)
            return None if inside is None else inside / 100
        case Add(terms):
            return _sum(terms)
        case Mul(factors):
            return _product(factors)
        case Pow(base, exponent):
            return _power(rational(base), rational(exponent))
        case Call("abs", (body,)):
            inside = rational(body)
            return None if inside is None else abs(inside)
        case Call("floor" | "ceil" as name, (body,)):
            inside = rational(body)
            return None if inside is None else Fraction(math.floor(inside) if name == "floor" else math.ceil(inside))
        case Call("factorial", (body,)):
            return _factorial(rational(body))
        case Call("binomial", (above, below)):
            return _binomial(rational(above), rational(below))
        case Call("mod", (left, right)):
            a, b = rational(left), rational(right)
            return a % b if a is not None and b else None
        case Call("gcd" | "lcm" | "max" | "min" as name, args):
            return _several(name, [rational(argument) for argument in args])
        case Call("root", (body, index)):
            return _root(rational(body), rational(index))
        case _:
            return None


def _small(value: Fraction) -> Fraction | None:
    return value if value.numerator.bit_length() + value.denominator.bit_length() <= MAX_BITS else None


def _sum(terms: tuple[Expr, ...]) -> Fraction | None:
    total = Fraction(0)
    for term in terms:
        value = rational(term)
        if value is None or _small(total) is None:
            return None
        total += value
    return _small(total)


def _product(factors: tuple[Expr, ...]) -> Fraction | None:
    total = Fraction(1)
    for factor in factors:
        value = rational(factor)
        if value is None or _small(total) is None:
            return None
        total *= value
    return _small(total)


def _power(base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
    if base is None or exponent is None:
        return None
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return _power(root, Fraction(exponent.numerator))
    if base == 0:
        return Fraction(0) if exponent > 0 else Fraction(1) if exponent == 0 else None
    if abs(base) == 1:
        return base if exponent.numerator % 2 else Fraction(1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * bits > MAX_BITS:
        return None
    return Fraction(base ** int(exponent))


def _factorial(value: Fraction | None) -> Fraction | None:
    if value is None or value.denominator != 1 or not 0 <= value <= 1500:
        return None
    return Fraction(math.factorial(int(value)))


def _binomial(above: Fraction | None, below: Fraction | None) -> Fraction | None:
    if (
        above is None
        or below is None
        or above.denominator != 1
        or below.denominator != 1
        or not 0 <= above <= 5000
        or below < 0
    ):
        return None
    return Fraction(math.comb(int(above), int(below)))


def _several(name: str, values: list[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    if len(known) != len(values) or not known:
        return None
    if name in ("max", "min"):
        return max(known) if name == "max" else min(known)
    if any(value.denominator != 1 for value in known):
        return None
    whole = [value.numerator for value in known]
    return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


def _root(value: Fraction | None, index: Fraction | None) -> Fraction | None:
    """The exact rational root, odd roots of negative numbers included; None when it is irrational or not real."""
    if value is None or index is None or index.denominator != 1 or not 2 <= index <= 64:
        return None
    degree = int(index)
    if value < 0:
        positive = _root(-value, index) if degree % 2 else None
        return None if positive is None else -positive
    above, below = _integer_root(value.numerator, degree), _integer_root(value.denominator, degree)
    return None if above is None or below is None else Fraction(above, below)


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value < 2:
        return value
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**degree <= value:
            low = middle
        else:
            high = middle - 1
    return low if low**degree == value else None


def is_terminating(value: Fraction) -> bool:
    """Whether the number can be written out as a decimal."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def significant_digits(number: Num) -> int:
    """How many digits a decimal was written with, leading zeros left out."""
    if number.places is None:
        return 0
    return len(str(abs(int(number.value * 10**number.places))))


def rounds_to(exact: Fraction, decimal: Num) -> bool:
    """Whether an exact value, rounded half up or half down at the decimal's last place, gives that decimal."""
    places = decimal.places or 0
    return bool(abs(exact - decimal.value) * 2 * 10**places <= 1)
