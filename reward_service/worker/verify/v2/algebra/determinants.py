"""The determinant that bars round a matrix ask for."""

from __future__ import annotations

from fractions import Fraction

from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Expr,
    Mul,
    Num,
)


def determinant(rows: tuple[tuple[Expr, ...], ...]) -> Expr | None:
    """The determinant written out; None for a matrix that is not square or too large to write out."""
    size = len(rows)
    if size > 4 or any(len(row) != size for row in rows):
        return None
    if size == 1:
        return rows[0][0]
    terms: list[Expr] = []
    for column, entry in enumerate(rows[0]):
        minor = determinant(tuple(row[:column] + row[column + 1 :] for row in rows[1:]))
        if minor is None:
            return None
        terms.append(Mul((Num(Fraction((-1) ** column)), entry, minor)))
    return Add(tuple(terms))
