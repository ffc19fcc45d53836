"""Sums, products and multiples of matrices, worked out entry by entry."""

from __future__ import annotations

from reward_service.worker.verify.v2.algebra.expressions import Add, Expr, Matrix, Mul, contains

Rows = tuple[tuple[Expr, ...], ...]

MAX_SIDE = 8
MAX_MATRICES = 6


def worked_out(node: Expr) -> Matrix | None:
    """The one matrix that a sum or product of matrices is; None when it is none, or too large to write out."""
    rows = _rows(node)
    return None if rows is None else Matrix("matrix", rows)


def _rows(node: Expr) -> Rows | None:
    match node:
        case Matrix("matrix", rows):
            return rows if len(rows) <= MAX_SIDE and len(rows[0]) <= MAX_SIDE else None
        case Add(terms) if len(terms) <= MAX_MATRICES:
            return _total(terms)
        case Mul(factors) if len(factors) <= 2 * MAX_MATRICES:
            return _product(factors)
        case _:
            return None


def _total(terms: tuple[Expr, ...]) -> Rows | None:
    parts = [_rows(term) for term in terms]
    first = parts[0]
    if first is None or any(part is None or _shape(part) != _shape(first) for part in parts):
        return None
    tables = [part for part in parts if part is not None]
    return tuple(
        tuple(Add(tuple(table[row][column] for table in tables)) for column in range(len(first[0])))
        for row in range(len(first))
    )


def _product(factors: tuple[Expr, ...]) -> Rows | None:
    scalars = tuple(factor for factor in factors if not contains(factor, (Matrix,)))
    parts = [_rows(factor) for factor in factors if contains(factor, (Matrix,))]
    if not parts or len(parts) > MAX_MATRICES:
        return None
    total = parts[0]
    for part in parts[1:]:
        if total is None or part is None or len(total[0]) != len(part):
            return None
        total = tuple(
            tuple(
                Add(tuple(Mul((entry, part[inner][column])) for inner, entry in enumerate(row)))
                for column in range(len(part[0]))
            )
            for row in total
        )
    if total is None or not scalars:
        return total
    return tuple(tuple(Mul((*scalars, entry)) for entry in row) for row in total)


def _shape(rows: Rows) -> tuple[int, int]:
    return len(rows), len(rows[0])
