"""Plus-minus signs: an expression with them stands for several without."""

from __future__ import annotations

from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Call,
    Degree,
    Expr,
    Mul,
    Percent,
    PlusMinus,
    Pow,
    Quantity,
    children,
    contains,
    negated,
)

MAX_SIGNS = 3


def both_ways(node: Expr) -> tuple[Expr, ...] | None:
    """`1 \\pm a` is 1+a and 1-a; several signs are free unless a lower sign ties them. None: too many, or in a list."""
    count = _count_signs(node)
    if count > MAX_SIGNS:
        return None
    if _has_flipped(node):
        choices = [(True,) * count, (False,) * count]
    else:
        choices = [tuple(not bits >> place & 1 for place in range(count)) for bits in range(2**count)]
    chosen = tuple(_choose(node, list(choice)) for choice in choices)
    return None if any(contains(one, (PlusMinus,)) for one in chosen) else chosen


def _count_signs(node: Expr) -> int:
    return isinstance(node, PlusMinus) + sum(map(_count_signs, children(node)))


def _has_flipped(node: Expr) -> bool:
    return (isinstance(node, PlusMinus) and node.flipped) or any(map(_has_flipped, children(node)))


def _choose(node: Expr, signs: list[bool]) -> Expr:
    """The tree with its plus-minus signs decided, first sign first."""
    match node:
        case PlusMinus(body, flipped):
            positive = signs.pop(0) != flipped
            inside = _choose(body, signs)
            return inside if positive else negated(inside)
        case Add(terms):
            return Add(tuple(_choose(term, signs) for term in terms))
        case Mul(factors):
            return Mul(tuple(_choose(factor, signs) for factor in factors))
        case Pow(base, exponent):
            return Pow(_choose(base, signs), _choose(exponent, signs))
        case Call(name, args):
            return Call(name, tuple(_choose(argument, signs) for argument in args))
        case Percent(body):
            return Percent(_choose(body, signs))
        case Degree(body):
            return Degree(_choose(body, signs))
        case Quantity(body, unit):
            return Quantity(_choose(body, signs), unit)
        case _:
            return node
