"""How large a number is at least: a tower of powers is no 5, and need not be computed to know it."""

from __future__ import annotations

import math

from reward_service.worker.verify.v2.algebra.expressions import Add, Call, Const, Expr, Mul, Num, Pow

_CONSTANTS = {"e": 2.718, "pi": 3.141}
_MARGIN = 1 - 1e-9
_LARGEST = 1e300


def surely_exceeds(node: Expr, number: Num) -> bool:
    """Whether the expression is a real number greater than this one in size, beyond any doubt."""
    if isinstance(node, Mul) and isinstance(node.factors[0], Num) and len(node.factors) == 2:
        sign, body = node.factors
        if isinstance(sign, Num) and sign.value == -1:
            node = body
    bound = at_least(node)
    return bound is not None and bound > 1 and abs(number.value) < min(bound, _LARGEST) * _MARGIN


def at_least(node: Expr) -> float | None:
    """A lower bound of a positive constant, infinite when it is beyond all floats; None when none is known."""
    match node:
        case Num(value):
            return float(value) * _MARGIN if 0 < value < _LARGEST and value > 1e-300 else None
        case Const(name):
            return _CONSTANTS.get(name)
        case Add(terms):
            return _of_all(terms, add=True)
        case Mul(factors):
            return _of_all(factors, add=False)
        case Pow(base, exponent):
            return _power(at_least(base), at_least(exponent))
        case Call("factorial", (body,)):
            below = at_least(body)
            return None if below is None else math.inf if below > 300 else max(below, 1.0) * _MARGIN
        case _:
            return None


def _of_all(parts: tuple[Expr, ...], *, add: bool) -> float | None:
    bounds = [at_least(part) for part in parts]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    return math.fsum(known) * _MARGIN if add else math.prod(known) * _MARGIN


def _power(base: float | None, exponent: float | None) -> float | None:
    """Greater bases and exponents give greater powers, from a base of 1 on."""
    if base is None or exponent is None or base < 1:
        return None
    logarithm = math.log2(base) * exponent
    return math.inf if logarithm > 900 else 2.0**logarithm * _MARGIN
