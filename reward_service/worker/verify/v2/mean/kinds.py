"""What an expression can stand for: a value, a set of solutions, a tuple, a region, an equation, a table, a text.

A tree says how something was written; a meaning says what it is, so that `1 < x < 2` and `(1,2)`, `x = 5` and `5`,
`\\pm 2` and `-2, 2` can meet in `decide/meanings.py`. `meaning.py` goes from the one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from reward_service.worker.verify.v2.algebra.expressions import (
    Bracket,
    Expr,
)
from reward_service.worker.verify.v2.mean.regions import (
    Region,
)


@dataclass(frozen=True, slots=True)
class Value:
    """A number or a function, without its unit and its percent or degree sign."""

    expr: Expr
    unit: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Finite:
    """Values in any order: `bare` without braces, `named` when each has its own name, `name` when all share one."""

    members: tuple[Meaning, ...]
    bare: bool = False
    named: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Values in their order; `bracket` as written, None for a sequence with dots."""

    members: tuple[Meaning, ...]
    bracket: Bracket | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """`name = inner`, and the same as an equation where both sides are expressions."""

    name: str
    inner: Meaning
    equation: Equation | None


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides that are equal."""

    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Inequality:
    """`difference` op 0, where op is <, <= or !=."""

    op: str
    difference: Expr


@dataclass(frozen=True, slots=True)
class Proportion:
    """A ratio of two or more parts."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A matrix of meanings."""

    kind: str
    rows: tuple[tuple[Meaning, ...], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Words that stand for themselves."""

    words: str


@dataclass(frozen=True, slots=True)
class Shape:
    """Something that is only ever equal to itself."""

    expr: Expr


Meaning: TypeAlias = (
    Value | Finite | Ordered | Assigned | Equation | Inequality | Proportion | Table | Text | Shape | Region
)  # fmt: skip
