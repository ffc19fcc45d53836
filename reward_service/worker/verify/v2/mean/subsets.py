"""What stands for a subset of the real line: intervals, regions, finite sets of values."""

from __future__ import annotations

from reward_service.worker.verify.v2.algebra.expressions import Bracket
from reward_service.worker.verify.v2.mean.kinds import Finite, Meaning, Ordered, Value
from reward_service.worker.verify.v2.mean.regions import Interval, Region, from_bracket


def as_set(part: Meaning) -> Meaning:
    """`{2}` between set signs: LaTeX hides the braces, the sign tells."""
    return Finite((part,)) if isinstance(part, Value) else part


def as_region(one: Meaning) -> Region | None:
    """An interval in brackets, a region, or a finite set of values as a subset of the line."""
    match one:
        case Region():
            return one
        case Ordered(_, Bracket() as bracket):
            return from_bracket(bracket)
        case Finite(members):
            points = [member.expr for member in members if isinstance(member, Value)]
            return Region(tuple(Interval(p, True, p, True) for p in points)) if len(points) == len(members) else None
        case _:
            return None
