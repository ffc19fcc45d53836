"""Names of quantities: `x`, `f(x)`, `AB`, `V_1:V_2`, and when two of them are the same."""

from __future__ import annotations

from reward_service.worker.verify.v2.algebra.expressions import (
    MINUS_ONE,
    Bracket,
    Call,
    Expr,
    Mul,
    Pow,
    Ratio,
    Sym,
    Word,
    contains,
)
from reward_service.worker.verify.v2.algebra.numbers import rational
from reward_service.worker.verify.v2.algebra.residues import KNOWN_FUNCTIONS


def name_of_value(node: Expr) -> str | None:
    """The name when the expression merely names a quantity: x, f(x), AB, |AB|, V_1:V_2, NO/BO, (x, y), a word."""
    match node:
        case Sym(name):
            return name
        case Word(text):
            return text
        case Call("abs" | "overline" | "named", (body, *_)):
            return name_of_value(node.args[-1]) if contains(body, (Sym,)) or isinstance(body, Word) else None
        case Mul((Sym("m"), Call("named"))):
            return name_of_value(node.factors[1])
        case Call(name, args) if name not in KNOWN_FUNCTIONS:
            inside = [name_of_value(argument) or str(rational(argument)) for argument in args]
            return f"{name}({','.join(inside)})"
        case Mul(factors) if all(_is_point(factor) for factor in factors):
            return "".join(factor.name for factor in factors if isinstance(factor, Sym))
        case Mul((above, Pow(below, exponent))) if exponent == MINUS_ONE:
            return _joint_name((above, below), "/")
        case Ratio(parts):
            return _joint_name(parts, ":")
        case Bracket(_, _, items):
            return _joint_name(items, ",")
        case _:
            return None


def _is_point(node: Expr) -> bool:
    return isinstance(node, Sym) and node.name[0].isupper() and len(node.name.rstrip("'")) == 1


def _joint_name(parts: tuple[Expr, ...], joint: str) -> str | None:
    names = [name_of_value(part) for part in parts]
    if joint == "/" and any(isinstance(part, Sym) and not part.name[0].isupper() for part in parts):
        return None
    return joint.join(name for name in names if name) if all(names) else None


def names_agree(left: str, right: str) -> bool:
    """The same name, up to a subscript that only one of them has; `y` may be called `f`."""
    if left == right:
        return True
    bare_left, bare_right = left.partition("(")[0], right.partition("(")[0]
    if "_" in bare_left and "_" in bare_right:
        return False
    if "(" in left and "(" in right:
        return bare_left == bare_right and _is_name(argument_of(left)) and _is_name(argument_of(right))
    bare_left, bare_right = bare_left.partition("_")[0], bare_right.partition("_")[0]
    return bare_left == bare_right or {bare_left, bare_right} == {"y", "f"}


def argument_of(name: str) -> str:
    """The `x` of `f(x)`, empty for a name without one."""
    return name.partition("(")[2].rstrip(")")


def _is_name(argument: str) -> bool:
    return argument[:1].isalpha() and argument != "None"
