"""What the parser makes of a text: a small immutable tree.

Sums and products are flat, a quotient is a product with a power of -1: long chains stay shallow, so no walk over a tree
recurses deeper than the text is nested, and the parser bounds that.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Num:
    """An exact number; `places` says how many decimals were written, None when it was not written with a point."""

    value: Fraction
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable or an unknown command; the name carries subscript and primes."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """One of pi, e, i, inf, emptyset, reals."""

    name: str


@dataclass(frozen=True, slots=True)
class Dots:
    """An ellipsis inside a list."""


@dataclass(frozen=True, slots=True)
class Word:
    """Text that stands for itself, casefolded."""

    text: str


@dataclass(frozen=True, slots=True)
class Add:
    """A sum of signed terms."""

    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Mul:
    """A product; a quotient has a factor to the power of -1."""

    factors: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Pow:
    """A power."""

    base: Expr
    exponent: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """A function of its arguments, known (sin, log, root …) or not (f)."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """`body` with + or -; `flipped` for the lower sign first (\\mp)."""

    body: Expr
    flipped: bool = False


@dataclass(frozen=True, slots=True)
class Percent:
    """A value with a percent sign."""

    body: Expr


@dataclass(frozen=True, slots=True)
class Degree:
    """A value with a degree sign."""

    body: Expr


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit, the unit in one spelling."""

    body: Expr
    unit: str


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a named base."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Fold:
    """A finite sum or product: op is `sum` or `prod`."""

    op: str
    index: str
    low: Expr
    high: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix (`vmatrix` for its determinant, `cases` for a brace)."""

    kind: str
    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two or more items in brackets, or a braced set of any size (opener `{`)."""

    opener: str
    closer: str
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """Items without brackets; `joint` is `or` or `and` when only that word joins them, else a comma."""

    items: tuple[Expr, ...]
    joint: str = ","


@dataclass(frozen=True, slots=True)
class SetOp:
    """A union, an intersection or a difference."""

    op: str
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain: parts[0] ops[0] parts[1] ops[1] …"""

    ops: tuple[str, ...]
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Parts with colons between them."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A limit, an integral, a derivative: compared by structure only."""

    kind: str
    parts: tuple[Expr, ...]


Expr: TypeAlias = (
    Num | Sym | Const | Dots | Word | Add | Mul | Pow | Call | PlusMinus | Percent | Degree | Quantity | Based | Fold
    | Matrix | Bracket | Seq | SetOp | Relation | Ratio | Opaque
)  # fmt: skip

ONE = Num(Fraction(1))
MINUS_ONE = Num(Fraction(-1))
ZERO = Num(Fraction(0))


def negated(body: Expr) -> Expr:
    """Minus `body`, a plain number staying a plain number."""
    if isinstance(body, Num):
        return Num(-body.value, body.places)
    return Mul((MINUS_ONE, body))


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct parts of a node, in order."""
    match node:
        case Add(terms):
            return terms
        case Mul(factors):
            return factors
        case Pow(base, exponent):
            return (base, exponent)
        case Call(_, args):
            return args
        case PlusMinus(body) | Percent(body) | Degree(body) | Quantity(body):
            return (body,)
        case Fold(_, _, low, high, body):
            return (low, high, body)
        case Matrix(_, rows):
            return tuple(cell for row in rows for cell in row)
        case Bracket(_, _, items) | Seq(items):
            return items
        case SetOp(_, parts) | Relation(_, parts) | Ratio(parts) | Opaque(_, parts):
            return parts
        case _:
            return ()


def renamed(node: Expr, old: str, new: str) -> Expr:
    """The expression with one variable called otherwise."""
    match node:
        case Sym(name):
            return Sym(new) if name == old else node
        case Add(terms):
            return Add(tuple(renamed(term, old, new) for term in terms))
        case Mul(factors):
            return Mul(tuple(renamed(factor, old, new) for factor in factors))
        case Pow(base, exponent):
            return Pow(renamed(base, old, new), renamed(exponent, old, new))
        case Call(name, args):
            return Call(name, tuple(renamed(argument, old, new) for argument in args))
        case _:
            return node


def symbols(node: Expr) -> frozenset[str]:
    """Names of the free variables of an expression."""
    names: set[str] = set()
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Sym):
            names.add(here.name)
        elif isinstance(here, Fold):
            names |= symbols(here.body) - {here.index}
            stack += (here.low, here.high)
        else:
            stack += children(here)
    return frozenset(names)


def contains(node: Expr, kinds: tuple[type, ...]) -> bool:
    """Whether a node of one of these kinds stands anywhere in the tree."""
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, kinds):
            return True
        stack += children(here)
    return False
