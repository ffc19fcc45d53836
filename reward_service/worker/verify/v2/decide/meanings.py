"""Whether an answer is equal to a gold, kind by kind. Where the kinds do not meet, the verdict is no.

Every required value must be there and none may be extra. A decimal counts as an approximation only of a number that no
decimal can spell out, and only with enough digits (values.py).
"""

from __future__ import annotations

from fractions import Fraction

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Expr,
    Mul,
    Num,
    Pow,
    Quantity,
    negated,
    renamed,
    symbols,
)
from reward_service.worker.verify.v2.algebra.identity import proportional, same_function, sign_of_factor
from reward_service.worker.verify.v2.algebra.numbers import rational
from reward_service.worker.verify.v2.decide.values import has_value, same_end, same_value
from reward_service.worker.verify.v2.mean.kinds import (
    Assigned,
    Equation,
    Finite,
    Inequality,
    Meaning,
    Ordered,
    Proportion,
    Shape,
    Table,
    Value,
)
from reward_service.worker.verify.v2.mean.names import argument_of, names_agree
from reward_service.worker.verify.v2.mean.regions import Region, same_region
from reward_service.worker.verify.v2.mean.subsets import as_region

_MAX_PAIRS = 40_000


def matches(gold: Meaning, answer: Meaning) -> bool:
    """Whether two meanings are equal; the order of the arguments matters to decimals alone."""
    if gold == answer:
        return not isinstance(gold, Value) or has_value(gold)
    if isinstance(gold, Assigned) or isinstance(answer, Assigned):
        return _match_assigned(gold, answer)
    if isinstance(gold, Equation) or isinstance(answer, Equation):
        return _match_equation(gold, answer)
    if isinstance(gold, Finite) and isinstance(answer, Finite):
        return _match_finite(gold, answer)
    if isinstance(gold, Finite):
        return _match_finite_and_other(gold, answer, gold_is_finite=True)
    if isinstance(answer, Finite):
        return _match_finite_and_other(answer, gold, gold_is_finite=False)
    if isinstance(gold, Ordered) and isinstance(answer, Ordered):
        return _match_ordered(gold, answer)
    if isinstance(gold, Table) or isinstance(answer, Table):
        return _match_table(gold, answer)
    if isinstance(gold, Region) or isinstance(answer, Region):
        left, right = as_region(gold), as_region(answer)
        return left is not None and right is not None and same_region(left, right, same_end)
    if isinstance(gold, Inequality) and isinstance(answer, Inequality):
        return _match_inequality(gold, answer)
    if isinstance(gold, Proportion) or isinstance(answer, Proportion):
        return _match_proportion(gold, answer)
    if isinstance(gold, Value) and isinstance(answer, Value):
        return same_value(gold, answer)
    return False


# ---- equations and assignments


def _match_assigned(gold: Meaning, answer: Meaning) -> bool:
    if isinstance(gold, Assigned) and isinstance(answer, Assigned):
        if names_agree(gold.name, answer.name) and matches(gold.inner, _with_argument_of(gold.name, answer)):
            return True
        if gold.equation is None or answer.equation is None:
            return False
        return _same_equation(gold.equation, answer.equation)
    if isinstance(gold, Assigned):
        if isinstance(answer, Equation):
            return gold.equation is not None and _same_equation(gold.equation, answer)
        return matches(gold.inner, answer)
    assert isinstance(answer, Assigned)
    if isinstance(gold, Equation):
        return answer.equation is not None and _same_equation(gold, answer.equation)
    return matches(gold, answer.inner)


def _with_argument_of(name: str, answer: Assigned) -> Meaning:
    """`W(x) = …` for a gold `W(n) = …`: the same function of a variable called otherwise."""
    wanted, given = argument_of(name), argument_of(answer.name)
    if wanted and given and wanted != given and isinstance(answer.inner, Value):
        if wanted in symbols(answer.inner.expr):
            return Shape(answer.inner.expr)
        return Value(renamed(answer.inner.expr, given, wanted), answer.inner.unit, answer.inner.sign)
    return answer.inner


def _match_equation(gold: Meaning, answer: Meaning) -> bool:
    if isinstance(gold, Equation) and isinstance(answer, Equation):
        return _same_equation(gold, answer)
    # an identity such as x^2 + 2x + 1 = (x+1)^2 is a derivation, and its last side the result
    if isinstance(gold, Equation):
        return (
            isinstance(answer, Value) and same_function(gold.left, gold.right) and same_value(Value(gold.right), answer)
        )
    assert isinstance(answer, Equation)
    return (
        isinstance(gold, Value) and same_function(answer.left, answer.right) and same_value(gold, Value(answer.right))
    )


def _same_equation(gold: Equation, answer: Equation) -> bool:
    if (gold.left, gold.right) in ((answer.left, answer.right), (answer.right, answer.left)):
        return True
    return proportional(_difference(gold), _difference(answer))


def _difference(equation: Equation) -> Expr:
    return Add((equation.left, negated(equation.right)))


def _match_inequality(gold: Inequality, answer: Inequality) -> bool:
    if gold.op != answer.op or not proportional(gold.difference, answer.difference):
        return False
    return gold.op == "!=" or sign_of_factor(gold.difference, answer.difference) > 0


# ---- sets, tuples, tables


def _match_finite(gold: Finite, answer: Finite) -> bool:
    if (gold.name and answer.named) or (gold.named and answer.name):
        return False
    if gold.name and answer.name and not names_agree(gold.name, answer.name):
        return False
    if gold.named != answer.named and len(gold.members) == len(answer.members):
        named, other = (gold, answer) if gold.named else (answer, gold)
        if not _are_numbered(named):
            return other.bare and all(map(matches, gold.members, answer.members))
    return _covers(gold, answer)


def _are_numbered(named: Finite) -> bool:
    """x_1 = …, x_2 = … are the roots of one equation: a list in any order."""
    names = [member.name for member in named.members if isinstance(member, Assigned)]
    stems = {name.partition("_")[0] for name in names}
    return len(stems) == 1 and {name.partition("_")[2] for name in names} == {str(n + 1) for n in range(len(names))}


def _covers(gold: Finite, answer: Finite) -> bool:
    """Each gold member has its equal among the answers, and each answer among the gold's."""
    if not gold.members or not answer.members:
        return gold.members == answer.members
    if len(gold.members) * len(answer.members) > _MAX_PAIRS:
        return _same_numbers(gold, answer)
    hit: set[int] = set()
    for wanted in gold.members:
        found = [index for index, given in enumerate(answer.members) if matches(wanted, given)]
        if not found:
            return False
        hit.update(found)
    return len(hit) == len(answer.members)


def _same_numbers(gold: Finite, answer: Finite) -> bool:
    values = [
        [rational(member.expr) if isinstance(member, Value) else None for member in side.members]
        for side in (gold, answer)
    ]
    if None in values[0] or None in values[1]:
        raise TooLarge("the lists are too long to compare")
    return set(values[0]) == set(values[1])


def _match_finite_and_other(finite: Finite, other: Meaning, *, gold_is_finite: bool) -> bool:
    def in_order(one: Meaning, two: Meaning) -> bool:
        return matches(one, two) if gold_is_finite else matches(two, one)

    if (
        isinstance(other, Ordered)
        and finite.bare
        and len(finite.members) == len(other.members)
        and len(finite.members) > 1
    ):
        bracket = other.bracket
        if bracket is None or (bracket.opener, bracket.closer) in (("(", ")"), ("[", "]")):
            return all(map(in_order, finite.members, other.members))
        return False
    if isinstance(other, Region):
        region = as_region(finite)
        return region is not None and same_region(region, other, same_end)
    return bool(finite.members) and all(in_order(member, other) for member in finite.members)


def _match_ordered(gold: Ordered, answer: Ordered) -> bool:
    if len(gold.members) != len(answer.members):
        return False
    one, two = gold.bracket, answer.bracket
    # with two members a bracket may mean an interval, where it tells open from closed
    if one and two and len(gold.members) == 2 and (one.opener, one.closer) != (two.opener, two.closer):
        return False
    return all(map(matches, gold.members, answer.members))


def _match_table(gold: Meaning, answer: Meaning) -> bool:
    if isinstance(gold, Table) and isinstance(answer, Table):
        if gold.kind != answer.kind or len(gold.rows) != len(answer.rows):
            return False
        return all(
            len(one) == len(two) and all(map(matches, one, two))
            for one, two in zip(gold.rows, answer.rows, strict=True)
        )
    table, other = (gold, answer) if isinstance(gold, Table) else (answer, gold)
    assert isinstance(table, Table)
    if len(table.rows) == len(table.rows[0]) == 1:
        cell = table.rows[0][0]
        return matches(cell, other) if table is gold else matches(other, cell)
    if isinstance(other, Ordered) and table.kind == "matrix" and _is_nested(other):
        rows = tuple(row.members for row in other.members if isinstance(row, Ordered))
        nested = Table("matrix", rows)
        return matches(table, nested) if table is gold else matches(nested, table)
    if not isinstance(other, Ordered) or table.kind == "cases" or len(table.rows[0]) != 1:
        return False
    if other.bracket is None or (other.bracket.opener, other.bracket.closer) not in (("(", ")"), ("[", "]")):
        return False
    # a column and (1, 2, 3) are the same vector
    column = Ordered(tuple(row[0] for row in table.rows), other.bracket)
    return _match_ordered(column, other) if table is gold else _match_ordered(other, column)


def _is_nested(rows: Ordered) -> bool:
    """`[[1,2],[3,4]]`: a matrix as programs write it."""
    brackets = [rows.bracket, *(row.bracket for row in rows.members if isinstance(row, Ordered))]
    return len(brackets) == len(rows.members) + 1 and all(
        bracket is not None and (bracket.opener, bracket.closer) == ("[", "]") for bracket in brackets
    )


def _same_quantity(one: Expr, two: Expr) -> bool:
    """The same number with the same unit, or both without: 3:45 is not 3:45 pm."""
    units = [part.unit if isinstance(part, Quantity) else "" for part in (one, two)]
    bodies = [part.body if isinstance(part, Quantity) else part for part in (one, two)]
    return units[0] == units[1] and same_function(*bodies)


def _match_proportion(gold: Meaning, answer: Meaning) -> bool:
    if isinstance(gold, Proportion) and isinstance(answer, Proportion):
        if len(gold.parts) != len(answer.parts):
            return False
        pairs = list(zip(gold.parts, answer.parts, strict=True))
        if any(isinstance(part, Quantity) or rational(part) == 0 for pair in pairs for part in pair):
            # 12:00 and 5:30 pm are times of day, not quotients
            return all(_same_quantity(one, two) for one, two in pairs)
        return all(same_function(Mul((one, pairs[0][1])), Mul((two, pairs[0][0]))) for one, two in pairs[1:])
    proportion, other = (gold, answer) if isinstance(gold, Proportion) else (answer, gold)
    assert isinstance(proportion, Proportion)
    if len(proportion.parts) != 2 or not isinstance(other, Value) or other.unit or rational(proportion.parts[1]) == 0:
        return False
    quotient = Value(Mul((proportion.parts[0], Pow(proportion.parts[1], Num(Fraction(-1))))))
    return same_value(quotient, other)
