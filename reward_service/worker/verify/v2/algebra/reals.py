"""Real and complex values to any precision: the only file that imports mpmath, through a context of its own.

Every operation looks at the size of its arguments first: a power tower, the sine of a tower, the factorial of a
trillion are refused before any digit of theirs is computed. Odd roots of negative numbers are real, as in school.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath.ctx_mp import MPContext

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Call,
    Const,
    Degree,
    Expr,
    Fold,
    Mul,
    Num,
    Percent,
    Pow,
    Quantity,
    Sym,
)
from reward_service.worker.verify.v2.algebra.numbers import rational
from reward_service.worker.verify.v2.algebra.points import name_of, real_sample
from reward_service.worker.verify.v2.algebra.residues import KNOWN_FUNCTIONS, Undefined

MAX_WORK = 1_500_000  # steps times bits of precision
MAX_TERMS = 3_000
MAX_MAGNITUDE = 60  # bits before the point in an argument of exp, sin, factorial; in an exponent
MAX_PRECISION = 12_000
_CONTEXT: Any = MPContext()


class Unsupported(Exception):
    """The expression holds something that has no numeric value (an infinity, a word, a list)."""


class Reals:
    """Evaluates expressions at one point with one precision; remembers the largest and smallest magnitude met."""

    def __init__(self, seed: str, point: int, precision: int) -> None:
        self.seed = seed
        self.point = point
        self.bound: dict[str, int] = {}
        self.steps = MAX_WORK // precision
        self.high = 0
        self.low = 0

    def value(self, node: Expr) -> Any:
        self.steps -= 1
        if self.steps < 0:
            raise TooLarge("too many steps of arithmetic")
        result = self._value(node)
        if result:
            magnitude = int(_CONTEXT.mag(result))
            self.high, self.low = max(self.high, magnitude), min(self.low, magnitude)
        return result

    def _value(self, node: Expr) -> Any:
        match node:
            case Num(value):
                return _CONTEXT.mpf(value.numerator) / value.denominator
            case Sym():
                return self._variable(node)
            case Const(name):
                return _constant(name)
            case Add(terms):
                return sum(map(self.value, terms), _CONTEXT.zero)
            case Mul(factors):
                total = _CONTEXT.one
                for factor in factors:
                    total = total * self.value(factor)
                return total
            case Pow(base, exponent):
                return self._power(base, exponent)
            case Percent(body):
                return self.value(body) / 100
            case Degree(body):
                return self.value(body) * _CONTEXT.pi / 180
            case Quantity(body, _):
                return self.value(body)
            case Fold():
                return self._fold(node)
            case Call("root", (body, index)):
                return self._root_power(self.value(body), 1 / self._rational(index))
            case Call(name, args) if name in KNOWN_FUNCTIONS:
                return self._call(name, [self.value(argument) for argument in args])
            case Call():
                return self._variable(node)
            case _:
                raise Unsupported

    def _variable(self, node: Expr) -> Any:
        name = name_of(node)
        if name in self.bound:
            return _CONTEXT.mpf(self.bound[name])
        sample = real_sample(self.seed, self.point, name)
        return _CONTEXT.mpf(sample.numerator) / sample.denominator

    def _rational(self, node: Expr) -> Fraction:
        value = rational(node)
        if not value:
            raise Unsupported
        return value

    def _power(self, base: Expr, exponent: Expr) -> Any:
        below = self.value(base)
        exact = rational(exponent)
        if exact is not None:
            return self._root_power(below, exact)
        above = self.value(exponent)
        if not below:
            raise Undefined
        _bounded(above, MAX_MAGNITUDE - 20)
        return _CONTEXT.exp(above * _CONTEXT.log(below))

    def _root_power(self, base: Any, exponent: Fraction) -> Any:
        if not base:
            if exponent <= 0:
                raise Undefined
            return base
        if exponent.numerator.bit_length() > MAX_MAGNITUDE:
            raise TooLarge("an exponent is too large")
        if exponent.denominator == 1:
            return base**exponent.numerator
        power = _CONTEXT.mpf(exponent.numerator) / exponent.denominator
        if exponent.denominator % 2 and isinstance(base, _CONTEXT.mpf) and base < 0:
            size = (-base) ** power
            return -size if exponent.numerator % 2 else size
        return _CONTEXT.power(base, power)

    def _call(self, name: str, args: list[Any]) -> Any:
        first = args[0]
        if len(args) != (2 if name in ("log", "binomial") else 1):
            raise Unsupported
        if name in ("ln", "log"):
            if not first or (name == "log" and (not args[1] or args[1] == 1)):
                raise Undefined
            return _CONTEXT.log(first) if name == "ln" else _CONTEXT.log(first) / _CONTEXT.log(args[1])
        if name == "abs":
            return abs(first)
        _bounded(first, MAX_MAGNITUDE)
        if name == "factorial":
            return _factorial(first)
        if name == "binomial":
            _bounded(args[1], MAX_MAGNITUDE)
            return _factorial(first) / (_factorial(args[1]) * _factorial(first - args[1]))
        try:
            return _elementary(name, first)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise Undefined from error

    def _fold(self, node: Fold) -> Any:
        low, high = rational(node.low), rational(node.high)
        if low is None or high is None or low.denominator != 1 or high.denominator != 1:
            raise Unsupported
        if high - low > MAX_TERMS:
            raise TooLarge("a sum of too many terms")
        outer = self.bound.get(node.index)
        total = _CONTEXT.zero if node.op == "sum" else _CONTEXT.one
        for index in range(int(low), int(high) + 1):
            self.bound[node.index] = index
            term = self.value(node.body)
            total = total + term if node.op == "sum" else total * term
        if outer is None:
            self.bound.pop(node.index, None)
        else:
            self.bound[node.index] = outer
        return total


def evaluate(node: Expr, *, seed: str, point: int, precision: int) -> tuple[Any, int]:
    """The value at a point and the span in bits between the largest and the smallest number met on the way."""
    if precision > MAX_PRECISION:
        raise TooLarge("telling the two numbers apart needs too many digits")
    with _CONTEXT.workprec(precision):
        evaluator = Reals(seed, point, precision)
        try:
            value = evaluator.value(node)
        except ZeroDivisionError as error:
            raise Undefined from error
        return value, evaluator.high - evaluator.low


def combined(left: Any, right: Any, precision: int) -> Any:
    """The product of two values with this precision."""
    with _CONTEXT.workprec(precision):
        return left * right


def distance_magnitude(left: Any, right: Any, precision: int) -> int | None:
    """The binary magnitude of |left - right|, None for zero."""
    with _CONTEXT.workprec(precision):
        difference = left - right
        return int(_CONTEXT.mag(difference)) if difference else None


def magnitude(value: Any) -> int:
    """The binary magnitude of a value, 0 for zero."""
    return int(_CONTEXT.mag(value)) if value else 0


def is_real(value: Any, precision: int) -> bool:
    """Whether a value is real, or complex by a rounding error alone."""
    if isinstance(value, _CONTEXT.mpf):
        return True
    if not value.imag:
        return True
    return magnitude(value.imag) < magnitude(value.real) - precision // 2


def as_fraction(value: Any) -> Fraction:
    """A real value as an exact fraction of its binary digits."""
    real = value if isinstance(value, _CONTEXT.mpf) else value.real
    mantissa, exponent = int(real.man), int(real.exp)
    if abs(exponent) > 100_000:
        raise TooLarge("a number is too large or too small to write out")
    return Fraction(mantissa) * Fraction(2) ** exponent


def _bounded(value: Any, bits: int) -> None:
    if value and _CONTEXT.mag(value) > bits:
        raise TooLarge("the argument of a function is too large")


def _constant(name: str) -> Any:
    match name:
        case "pi":
            return +_CONTEXT.pi
        case "e":
            return +_CONTEXT.e
        case "i":
            return _CONTEXT.mpc(0, 1)
        case _:
            raise Unsupported


def _factorial(value: Any) -> Any:
    if _CONTEXT.isint(value) and value < 0:
        raise Undefined
    return _CONTEXT.gamma(value + 1)


def _elementary(name: str, x: Any) -> Any:
    match name:
        case "sin":
            return _CONTEXT.sin(x)
        case "cos":
            return _CONTEXT.cos(x)
        case "tan":
            return _CONTEXT.tan(x)
        case "cot":
            return _CONTEXT.cot(x)
        case "sec":
            return _CONTEXT.sec(x)
        case "csc":
            return _CONTEXT.csc(x)
        case "arcsin":
            return _CONTEXT.asin(x)
        case "arccos":
            return _CONTEXT.acos(x)
        case "arctan":
            return _CONTEXT.atan(x)
        case "sinh" | "cosh" | "tanh":
            _bounded(x, 40)
            return {"sinh": _CONTEXT.sinh, "cosh": _CONTEXT.cosh, "tanh": _CONTEXT.tanh}[name](x)
        case "floor":
            return _CONTEXT.floor(x)
        case "ceil":
            return _CONTEXT.ceil(x)
        case "Re":
            return _CONTEXT.re(x)
        case "Im":
            return _CONTEXT.im(x)
        case _:
            raise Unsupported
