"""Rational functions modulo a large prime: an exact, cheap and unhangable test of identity (Schwartz and Zippel).

3^1500000000, (1+x+y+z)^60 and a product of 2,000 factors cost next to nothing here, and a difference of 1 in the
last of a billion digits shows. Two functions that differ agree at one random point with probability at most degree
/ 2^120.
"""

from __future__ import annotations

import math
from fractions import Fraction

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Call,
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
from reward_service.worker.verify.v2.algebra.points import hashed, name_of

MAX_STEPS = 60_000
MAX_FACTORIAL = 3000
# Functions whose value is opaque: each application is a variable of its own.
KNOWN_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "ln",
        "log",
        "abs",
        "root",
        "floor",
        "ceil",
        "factorial",
        "binomial",
        "mod",
        "max",
        "min",
        "gcd",
        "lcm",
        "Re",
        "Im",
        "arg",
    ]
)


class NotRational(Exception):
    """The expression is not a rational function of its variables."""


class Undefined(Exception):
    """The expression has no value at this point."""


class Residues:
    """Evaluates expressions at one point modulo one prime."""

    def __init__(self, seed: str, point: int, prime: int) -> None:
        self.seed = seed
        self.point = point
        self.prime = prime
        self.bound: dict[str, int] = {}
        self.steps = 0

    def value(self, node: Expr) -> int:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooLarge("too many steps of arithmetic")
        match node:
            case Num(value):
                return self._fraction(value)
            case Sym():
                return self._variable(node)
            case Add(terms):
                return sum(map(self.value, terms)) % self.prime
            case Mul(factors):
                total = 1
                for factor in factors:
                    total = total * self.value(factor) % self.prime
                return total
            case Pow(base, exponent):
                return self._power(base, exponent)
            case Percent(body):
                return self.value(body) * self._inverse(100) % self.prime
            case Quantity(body, _):
                return self.value(body)
            case Fold():
                return self._fold(node)
            case Call(name, _):
                return self._call(node, name)
            case _:
                raise NotRational

    def _fraction(self, value: Fraction) -> int:
        if value.denominator == 1:
            return value.numerator % self.prime
        return value.numerator * self._inverse(value.denominator) % self.prime

    def _inverse(self, value: int) -> int:
        if value % self.prime == 0:
            raise Undefined
        return pow(value, -1, self.prime)

    def _variable(self, node: Expr) -> int:
        name = name_of(node)
        if name in self.bound:
            return self.bound[name]
        return hashed(self.seed, self.point, name) % self.prime

    def _integer(self, node: Expr) -> int:
        value = rational(self._substituted(node)) if self.bound else rational(node)
        if value is None or value.denominator != 1:
            raise NotRational
        return value.numerator

    def _substituted(self, node: Expr) -> Expr:
        """The index of a running sum as a number, where an exponent or a factorial needs its exact value."""
        match node:
            case Sym(name) if name in self.bound:
                return Num(Fraction(self.bound[name]))
            case Add(terms):
                return Add(tuple(map(self._substituted, terms)))
            case Mul(factors):
                return Mul(tuple(map(self._substituted, factors)))
            case Pow(base, exponent):
                return Pow(self._substituted(base), self._substituted(exponent))
            case _:
                return node

    def _power(self, base: Expr, exponent: Expr) -> int:
        power = self._integer(exponent)
        below = self.value(base)
        if power < 0:
            below = self._inverse(below)
        return pow(below, abs(power), self.prime)

    def _call(self, node: Expr, name: str) -> int:
        if name not in KNOWN_FUNCTIONS:
            return self._variable(node)
        if name == "factorial" and isinstance(node, Call):
            top = self._integer(node.args[0])
            if not 0 <= top <= MAX_FACTORIAL:
                raise NotRational
            self.steps += top // 8
            return math.factorial(top) % self.prime
        value = rational(node)
        if value is None:
            raise NotRational
        return self._fraction(value)

    def _fold(self, node: Fold) -> int:
        low, high = self._integer(node.low), self._integer(node.high)
        if high - low > MAX_STEPS:
            raise TooLarge("a sum of too many terms")
        outer = self.bound.get(node.index)
        total = 0 if node.op == "sum" else 1
        for index in range(low, high + 1):
            self.bound[node.index] = index
            term = self.value(node.body)
            total = (total + term if node.op == "sum" else total * term) % self.prime
        if outer is None:
            self.bound.pop(node.index, None)
        else:
            self.bound[node.index] = outer
        return total
