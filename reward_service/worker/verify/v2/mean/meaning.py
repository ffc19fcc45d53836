"""From an expression to its meaning."""

from __future__ import annotations

from reward_service.worker.verify.v2.algebra.determinants import determinant
from reward_service.worker.verify.v2.algebra.expressions import (
    MINUS_ONE,
    Add,
    Bracket,
    Call,
    Const,
    Degree,
    Dots,
    Expr,
    Fold,
    Matrix,
    Mul,
    Num,
    Opaque,
    Percent,
    PlusMinus,
    Quantity,
    Ratio,
    Relation,
    Seq,
    SetOp,
    Sym,
    Word,
    contains,
    negated,
    symbols,
)
from reward_service.worker.verify.v2.algebra.matrices import worked_out
from reward_service.worker.verify.v2.algebra.numbers import rational
from reward_service.worker.verify.v2.algebra.signs import both_ways
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
    Text,
    Value,
)
from reward_service.worker.verify.v2.mean.names import name_of_value
from reward_service.worker.verify.v2.mean.regions import (
    WHOLE_LINE,
    Region,
    from_relation,
    intersection,
    union,
    without,
)
from reward_service.worker.verify.v2.mean.subsets import as_region, as_set


def meaning(node: Expr) -> Meaning:
    """What the tree stands for."""
    match node:
        case Seq():
            return _sequence(node)
        case Bracket():
            return _bracket(node)
        case SetOp():
            return _set_operation(node)
        case Relation():
            return _relation(node)
        case Matrix():
            return _matrix(node)
        case Ratio(parts):
            return Ordered(tuple(map(meaning, parts))) if contains(node, (Dots,)) else Proportion(parts)
        case Word(text):
            return Text(text)
        case Const("emptyset"):
            return Finite(())
        case Const("reals"):
            return WHOLE_LINE
        case Dots() | Opaque():
            return Shape(node)
        case _:
            return _value(node)


def _value(node: Expr) -> Meaning:
    if contains(node, (PlusMinus,)):
        chosen = both_ways(node)
        return Shape(node) if chosen is None else Finite(tuple(map(meaning, chosen)), bare=True)
    if isinstance(node, (Add, Mul, Call)) and contains(node, (Matrix,)):
        return _matrix_arithmetic(node)
    if isinstance(node, Mul) and any(isinstance(factor, (Bracket, SetOp)) for factor in node.factors):
        return _point(node)
    unit = ""
    if isinstance(node, Quantity):
        unit, node = node.unit, node.body
    if isinstance(node, Mul) and len(node.factors) == 2 and node.factors[0] == MINUS_ONE:
        inner = _value(node.factors[1])
        if isinstance(inner, Value) and (inner.sign or inner.unit):
            return Value(negated(inner.expr), inner.unit or unit, inner.sign)
    if isinstance(node, Percent):
        return Value(node.body, unit, "%")
    if isinstance(node, Degree):
        return Value(node.body, unit, "degree")
    return meaning(node) if isinstance(node, (Bracket, Seq, Word)) else Value(node, unit)


def _matrix_arithmetic(node: Expr) -> Meaning:
    if isinstance(node, Call) and node.name == "det" and len(node.args) == 1:
        inner = worked_out(node.args[0])
        return meaning(Matrix("vmatrix", inner.rows)) if inner is not None else Shape(node)
    result = worked_out(node)
    return meaning(result) if result is not None else Shape(node)


def _point(node: Mul) -> Meaning:
    """`P(1,2)`: a point with its name."""
    match node.factors:
        case (Sym(name), Bracket("(", ")") as place) if len(name) == 1 and name.isupper():
            return Assigned(name, meaning(place), None)
        case _:
            return Shape(node)


# ---- lists and brackets


def _sequence(node: Seq) -> Meaning:
    if contains(node, (Dots,)):
        return Ordered(tuple(map(meaning, node.items)))
    members = [meaning(item) for item in node.items]
    if node.joint == "or" or (node.joint == "and" and all(isinstance(item, Relation) for item in node.items)):
        joined = _joined_regions(members, node.joint)
        if joined is not None:
            return joined
    if all(isinstance(member, Assigned) for member in members):
        return _assignments([member for member in members if isinstance(member, Assigned)])
    first = members[0]
    if isinstance(first, Assigned) and not any(isinstance(member, (Assigned, Equation)) for member in members[1:]):
        # n = 1, 2, 3: the name belongs to the whole list
        return Finite(_flattened([first.inner, *members[1:]]), bare=True, name=first.name)
    return Finite(_flattened(members), bare=True)


def _joined_regions(members: list[Meaning], joint: str) -> Region | None:
    regions = [member for member in members if isinstance(member, Region)]
    if len(regions) != len(members):
        return None
    if joint == "or":
        return union(regions)
    result: Region | None = regions[0]
    for region in regions[1:]:
        result = intersection(result, region) if result is not None else None
    return result


def _assignments(members: list[Assigned]) -> Meaning:
    """One name throughout: its values. Different names: each its value. Names that come round again: tuples."""
    names = [member.name for member in members]
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        return Finite(_flattened([member.inner for member in members]), bare=True, name=distinct[0])
    size = len(distinct)
    if len(names) > size and len(names) % size == 0 and names == distinct * (len(names) // size):
        rows = [members[start : start + size] for start in range(0, len(members), size)]
        return Finite(tuple(Ordered(tuple(member.inner for member in row)) for row in rows), bare=True)
    if len(names) == size:
        return Finite(tuple(members), bare=True, named=True)
    return Finite(tuple(members), bare=True)


def _flattened(members: list[Meaning]) -> tuple[Meaning, ...]:
    """A plus-minus inside a list is two members of that list."""
    flat: list[Meaning] = []
    for member in members:
        if isinstance(member, Finite) and member.bare and member.members:
            flat += member.members
        else:
            flat.append(member)
    return tuple(flat)


def _bracket(node: Bracket) -> Meaning:
    members = tuple(map(meaning, node.items))
    if contains(node, (Dots,)):
        return Ordered(members)
    if node.opener == "{":
        return Finite(_flattened(list(members)))
    if any(isinstance(member, Finite) for member in members) and contains(node, (PlusMinus,)):
        return Shape(node)
    return Ordered(members, node)


def _set_operation(node: SetOp) -> Meaning:
    parts = [as_set(meaning(part)) for part in node.parts]
    if node.op == "union" and all(isinstance(part, Finite) for part in parts):
        return Finite(tuple(member for part in parts if isinstance(part, Finite) for member in part.members))
    if node.op == "difference" and isinstance(parts[1], Finite):
        base = as_region(parts[0])
        points = tuple(member.expr for member in parts[1].members if isinstance(member, Value))
        rest = without(base, points) if base is not None and len(points) == len(parts[1].members) else None
        return rest if rest is not None else Shape(node)
    regions = [region for region in map(as_region, parts) if region is not None]
    if len(regions) != len(parts) or node.op == "difference":
        return Shape(node)
    result: Region | None = regions[0]
    if node.op == "union":
        result = union(regions)
    else:
        for region in regions[1:]:
            result = intersection(result, region) if result is not None else None
    return result if result is not None else Shape(node)


def _matrix(node: Matrix) -> Meaning:
    if node.kind == "vmatrix":
        value = determinant(node.rows)
        return Value(value) if value is not None else Shape(node)
    return Table(node.kind, tuple(tuple(map(meaning, row)) for row in node.rows))


# ---- relations


def _relation(node: Relation) -> Meaning:
    ops = set(node.ops)
    if ops <= {"=", "~"}:
        return _equation(node)
    if node.ops == ("in",):
        inner = meaning(node.parts[1])
        name = name_of_value(node.parts[0])
        if name is None:
            return Shape(node)
        region = as_region(inner)
        if isinstance(inner, Finite) or region is None:
            return inner
        return Region(region.intervals, name)
    region = from_relation(node)
    if region is not None:
        return region
    if len(node.ops) == 1 and node.ops[0] in ("<", "<=", ">", ">=", "!="):
        left, right = node.parts
        if node.ops[0] in (">", ">="):
            left, right = right, left
        return Inequality({">": "<", ">=": "<="}.get(node.ops[0], node.ops[0]), Add((left, negated(right))))
    return Shape(node)


def _equation(node: Relation) -> Meaning:
    if (
        node.ops[-1] == "~"
        and len(node.parts) > 1
        and name_of_value(node.parts[-2]) is None
        and not symbols(node.parts[-2])
    ):
        # 1/3 ≈ 0.33: the exact value is the answer, the decimal a remark
        return _equation(Relation(node.ops[:-1], node.parts[:-1])) if len(node.ops) > 1 else meaning(node.parts[0])
    first, last = node.parts[0], node.parts[-1]
    name = name_of_value(first)
    if len(node.parts) > 2:
        if name is not None and all(name_of_value(part) is not None for part in node.parts):
            return Shape(node)
        inner = meaning(last)
        return Assigned(name, inner, None) if name is not None else _end_of_chain(node, inner)
    equation = Equation(first, last) if _is_expression(first) and _is_expression(last) else None
    other = name_of_value(last)
    if name is not None and not (isinstance(first, Sym) and first.name in symbols(last)):
        if other is not None and equation is not None and isinstance(first, Sym) == isinstance(last, Sym):
            return equation
        if other is None or not isinstance(last, Sym) or not isinstance(first, Sym):
            return Assigned(name, meaning(last), equation)
    if other is not None and not (isinstance(last, Sym) and last.name in symbols(first)):
        return Assigned(other, meaning(first), equation)
    if isinstance(first, (Fold, Opaque)) or (not symbols(first) and not symbols(last)):
        left, right = rational(first), rational(last)
        if isinstance(first, (Num, Const)) or (left is not None and right is not None):
            # 5 = 6 commits to nothing, 1/2 = 0.5 to its last side
            return meaning(last) if left is not None and left == right else Shape(node)
        return meaning(last)
    return equation if equation is not None else Shape(node)


def _end_of_chain(node: Relation, inner: Meaning) -> Meaning:
    """`m + n = 256 + 37 = 293` ends in its value when at least two parts are constants, or when the first is."""
    constants = [not symbols(part) for part in node.parts]
    if constants[0] or (constants[-1] and constants[-2]):
        return inner
    return inner if not constants[-1] and symbols(node.parts[-1]) <= symbols(node.parts[0]) else Shape(node)


def _is_expression(node: Expr) -> bool:
    return not contains(node, (Bracket, Seq, Relation, Ratio, Matrix, Word, SetOp, PlusMinus, Dots))
