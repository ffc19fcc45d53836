"""Subsets of the real line: intervals, rays, unions, the line without some points; from brackets and inequalities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Bracket,
    Call,
    Const,
    Expr,
    Mul,
    Num,
    Relation,
    Sym,
    contains,
    negated,
    symbols,
)
from reward_service.worker.verify.v2.algebra.numbers import rational
from reward_service.worker.verify.v2.algebra.points import real_sample
from reward_service.worker.verify.v2.algebra.reals import Unsupported, as_fraction, evaluate, is_real
from reward_service.worker.verify.v2.algebra.residues import KNOWN_FUNCTIONS, Undefined
from reward_service.worker.verify.v2.tables import MIRRORED

INFINITY = Const("inf")
MINUS_INFINITY = negated(INFINITY)
_PRECISION = 200


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval with its ends, each open or closed."""

    low: Expr
    low_closed: bool
    high: Expr
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """Intervals from left to right that do not touch; `name` is the variable where one was named."""

    intervals: tuple[Interval, ...]
    name: str | None = None


WHOLE_LINE = Region((Interval(MINUS_INFINITY, False, INFINITY, False),))


def from_bracket(bracket: Bracket) -> Region | None:
    """`[a,b)` as a region; None for brackets that are no interval."""
    if len(bracket.items) != 2 or bracket.opener not in "([" or bracket.closer not in ")]":
        return None
    low, high = bracket.items
    if contains(low, (Bracket, Relation)) or contains(high, (Bracket, Relation)):
        return None
    return Region((Interval(low, bracket.opener == "[", high, bracket.closer == "]"),))


def from_relation(relation: Relation) -> Region | None:
    """`1 < x <= 2`, `x >= 3`, `x != 3`, `-x > -1` as a region; None for what is no inequality in one variable."""
    names = symbols(relation)
    if any(isinstance(part, Call) and part.name == "abs" for part in relation.parts):
        return _around_zero(relation)
    if len(relation.ops) == 1:
        return _half_line(relation, names)
    if len(relation.ops) != 2:
        return None
    name = _ranging(relation.parts[1])
    if not name:
        return None
    ops, (low, _, high) = relation.ops, relation.parts
    if ops[0] in (">", ">=") and ops[1] in (">", ">="):
        low, high, ops = high, low, (MIRRORED[ops[1]], MIRRORED[ops[0]])
    if ops[0] not in ("<", "<=") or ops[1] not in ("<", "<=") or name in symbols(low) | symbols(high):
        return None
    return Region((Interval(low, ops[0] == "<=", high, ops[1] == "<="),), name)


def _ranging(middle: Expr) -> str:
    """The variable between two signs, or the function of one: 0 < f(x) < 1 bounds its values."""
    match middle:
        case Sym(name):
            return name
        case Call(name, (Sym(argument),)) if name not in KNOWN_FUNCTIONS:
            return f"{name}({argument})"
        case _:
            return ""


def _around_zero(relation: Relation) -> Region | None:
    """`|x-1| < 3`, `1 <= |x| <= 2` as a region."""
    result: Region | None = WHOLE_LINE
    for op, left, right in zip(relation.ops, relation.parts[:-1], relation.parts[1:], strict=True):
        if isinstance(right, Call) and not isinstance(left, Call):
            left, right, op = right, left, MIRRORED.get(op, "")
        bound = rational(right)
        if not isinstance(left, Call) or left.name != "abs" or op not in ("<", "<=", ">", ">=") or bound is None:
            return None
        inside, names = left.args[0], symbols(relation)
        above = _half_line(Relation((op,), (inside, right)), names)
        below = _half_line(Relation((MIRRORED[op],), (inside, negated(right))), names)
        if above is None or below is None or bound < 0 or result is None:
            return None
        part = intersection(above, below) if op in ("<", "<=") else union([above, below])
        result = intersection(result, part) if part is not None else None
    return result


def _half_line(relation: Relation, names: frozenset[str]) -> Region | None:
    op, (left, right) = relation.ops[0], relation.parts
    if op not in ("<", "<=", ">", ">=", "!="):
        return None
    if not isinstance(left, Sym) and isinstance(right, Sym):
        left, right, op = right, left, MIRRORED[op]
    if not isinstance(left, Sym) or left.name in symbols(right):
        solved = _solved(Add((left, negated(right))), names)
        if solved is None:
            return None
        left, right, positive = solved
        op = op if positive else MIRRORED[op]
    if symbols(right):
        # a < b is b > a: no region of one variable
        return None
    if op == "!=":
        return Region(
            (Interval(MINUS_INFINITY, False, right, False), Interval(right, False, INFINITY, False)), left.name
        )
    if op in ("<", "<="):
        return Region((Interval(MINUS_INFINITY, False, right, op == "<="),), left.name)
    return Region((Interval(right, op == ">=", INFINITY, False),), left.name)


def _solved(difference: Expr, names: frozenset[str]) -> tuple[Sym, Expr, bool] | None:
    """The root of a linear expression in one variable with rational coefficients, and whether its slope is positive."""
    if len(names) != 1:
        return None
    name = next(iter(names))
    samples = [Fraction(0), Fraction(1), Fraction(-3), real_sample("linear", 2, name)]
    values = [rational(substituted(difference, name, Num(sample))) for sample in samples]
    at_zero, at_one = values[0], values[1]
    if at_zero is None or at_one is None or at_zero == at_one:
        return None
    slope = at_one - at_zero
    if any(value != at_zero + slope * sample for sample, value in zip(samples, values, strict=True)):
        return None
    return Sym(name), Num(-at_zero / slope), slope > 0


def substituted(node: Expr, name: str, value: Expr) -> Expr:
    """A sum, product or power with a variable replaced; other nodes are left alone."""
    match node:
        case Sym(own) if own == name:
            return value
        case Add(terms):
            return Add(tuple(substituted(term, name, value) for term in terms))
        case Mul(factors):
            return Mul(tuple(substituted(factor, name, value) for factor in factors))
        case _:
            return node


def union(regions: list[Region]) -> Region | None:
    """The union in normal form; None when the ends cannot be ordered or the variables differ."""
    names = {region.name for region in regions if region.name}
    if len(names) > 1:
        return None
    return normalised(
        Region(tuple(part for region in regions for part in region.intervals), names.pop() if names else None)
    )


def intersection(left: Region, right: Region) -> Region | None:
    """The common part of two regions; None when the ends cannot be ordered or the variables differ."""
    if left.name and right.name and left.name != right.name:
        return None
    parts: list[Interval] = []
    for one in left.intervals:
        for two in right.intervals:
            keys = [position(end) for end in (one.low, two.low, one.high, two.high)]
            if None in keys:
                return None
            low = max((keys[0], not one.low_closed, one.low), (keys[1], not two.low_closed, two.low), key=_end_order)
            high = min((keys[2], one.high_closed, one.high), (keys[3], two.high_closed, two.high), key=_end_order)
            if (low[0], low[1]) < (high[0], high[1]) or (low[0] == high[0] and not low[1] and high[1]):
                parts.append(Interval(low[2], not low[1], high[2], high[1]))
    return normalised(Region(tuple(parts), left.name or right.name))


def _end_order(end: tuple[float | Fraction | None, bool, Expr]) -> tuple[float | Fraction | None, bool]:
    return end[0], end[1]


def without(region: Region, points: tuple[Expr, ...]) -> Region | None:
    """The region with some points taken out."""
    for point in points:
        holes = Region((Interval(MINUS_INFINITY, False, point, False), Interval(point, False, INFINITY, False)))
        rest = intersection(region, holes)
        if rest is None:
            return None
        region = rest
    return region


def normalised(region: Region) -> Region | None:
    """Sorted and merged; empty intervals dropped. A single interval with symbols for ends stays as it is."""
    keyed: list[tuple[float | Fraction, float | Fraction, Interval]] = []
    for part in region.intervals:
        low, high = position(part.low), position(part.high)
        if low is None or high is None:
            return region if len(region.intervals) == 1 else None
        if low < high or (low == high and part.low_closed and part.high_closed):
            keyed.append((low, high, part))
    keyed.sort(key=lambda entry: (entry[0], not entry[2].low_closed))
    merged: list[tuple[float | Fraction, float | Fraction, Interval]] = []
    for low, high, part in keyed:
        if merged:
            last_low, last_high, last = merged[-1]
            if low < last_high or (low == last_high and (part.low_closed or last.high_closed)):
                if high > last_high or (high == last_high and part.high_closed):
                    last = replace(
                        last, high=part.high, high_closed=part.high_closed or (high == last_high and last.high_closed)
                    )
                merged[-1] = (last_low, max(high, last_high), last)
                continue
        merged.append((low, high, part))
    return Region(tuple(part for _, _, part in merged), region.name)


def position(end: Expr) -> float | Fraction | None:
    """Where an end lies on the line, infinities included; None when it is no constant."""
    if end == INFINITY:
        return float("inf")
    if end == MINUS_INFINITY:
        return float("-inf")
    exact = rational(end)
    if exact is not None:
        return exact
    if symbols(end):
        return None
    try:
        value, _ = evaluate(end, seed="", point=0, precision=_PRECISION)
    except (Undefined, Unsupported):
        return None
    return as_fraction(value) if is_real(value, _PRECISION) else None


def same_region(gold: Region, answer: Region, same_end: Callable[[Expr, Expr], bool]) -> bool:
    """Whether two regions have the same ends, open and closed alike, and no two different names."""
    if gold.name and answer.name and gold.name != answer.name:
        return False
    left, right = normalised(gold), normalised(answer)
    if left is None or right is None or len(left.intervals) != len(right.intervals):
        return False
    return all(
        one.low_closed == two.low_closed
        and one.high_closed == two.high_closed
        and same_end(one.low, two.low)
        and same_end(one.high, two.high)
        for one, two in zip(left.intervals, right.intervals, strict=True)
    )
