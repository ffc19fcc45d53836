"""Expressions up to the order of terms and factors: what is left when a sum has no number of terms to evaluate."""

from __future__ import annotations

from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Call,
    Expr,
    Fold,
    Mul,
    Pow,
    contains,
    renamed,
    symbols,
)

_BOUND = "\x00bound"


def same_structure(one: Expr, two: Expr) -> bool:
    """Whether two expressions with sums or products over an index differ in nothing but order and the index's name."""
    return contains(one, (Fold,)) and contains(two, (Fold,)) and ordered(one) == ordered(two)


def ordered(node: Expr) -> Expr:
    """The expression with its terms and factors sorted, and the index of a sum under one name."""
    match node:
        case Add(terms):
            return Add(_sorted(terms))
        case Mul(factors):
            return Mul(_sorted(factors))
        case Pow(base, exponent):
            return Pow(ordered(base), ordered(exponent))
        case Call(name, args):
            return Call(name, tuple(map(ordered, args)))
        case Fold(op, index, low, high, body):
            # F_{n-k-1} holds the index in its name: such a sum keeps the letter that it came with
            if not any(index in name and name != index for name in symbols(body)):
                index, body = _BOUND, renamed(body, index, _BOUND)
            return Fold(op, index, ordered(low), ordered(high), ordered(body))
        case _:
            return node


def _sorted(parts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(sorted(map(ordered, parts), key=repr))
