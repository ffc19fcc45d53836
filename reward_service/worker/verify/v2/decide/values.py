"""Whether two values are equal: units, percent and degree signs, bases, exact numbers, decimals that approximate."""

from __future__ import annotations

from fractions import Fraction

from reward_service.worker.types import TooLarge
from reward_service.worker.verify.v2.algebra.expressions import (
    Add,
    Based,
    Const,
    Degree,
    Expr,
    Mul,
    Num,
    Percent,
    Pow,
    Sym,
    children,
    contains,
    symbols,
)
from reward_service.worker.verify.v2.algebra.identity import same_function
from reward_service.worker.verify.v2.algebra.numbers import is_terminating, rational, rounds_to, significant_digits
from reward_service.worker.verify.v2.algebra.reals import Unsupported, as_fraction, evaluate, is_real
from reward_service.worker.verify.v2.algebra.residues import Undefined
from reward_service.worker.verify.v2.algebra.sizes import surely_exceeds
from reward_service.worker.verify.v2.algebra.structure import same_structure
from reward_service.worker.verify.v2.mean.kinds import Value

_PRECISION = 256


def same_end(gold: Expr, answer: Expr) -> bool:
    """Whether two ends of intervals are equal."""
    return same_value(Value(gold), Value(answer))


def has_value(value: Value) -> bool:
    """A quotient by zero is equal to nothing, itself included."""
    return not (
        isinstance(value.expr, Mul) and any(isinstance(f, Pow) and rational(f.base) == 0 for f in value.expr.factors)
    )


def same_value(gold: Value, answer: Value) -> bool:
    """Two values: units may be missing on one side but not differ, a percentage is its number or its hundredth."""
    gold, answer = _with_area_unit(gold, answer), _with_area_unit(answer, gold)
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if {gold.sign, answer.sign} == {"", "%"} and (gold.unit or answer.unit):
        return False
    if isinstance(gold.expr, Based) or isinstance(answer.expr, Based):
        return _same_digits(gold.expr, answer.expr)
    if gold.sign == answer.sign:
        return same_number(gold.expr, answer.expr)
    if "%" in (gold.sign, answer.sign):
        if "degree" in (gold.sign, answer.sign):
            return False
        return same_number(gold.expr, answer.expr) or same_number(_unsigned(gold), _unsigned(answer))
    if not contains(gold.expr, (Const,)) and not contains(answer.expr, (Const,)):
        return same_number(gold.expr, answer.expr)
    return same_number(_unsigned(gold), _unsigned(answer))


def _with_area_unit(value: Value, other: Value) -> Value:
    """`12 m^2` beside a number without variables: the m is a unit."""
    match value.expr:
        case Mul((Num() as number, Pow(Sym("m"), Num(exponent)))) if exponent in (2, 3) and rational(other.expr):
            return Value(number, f"metre ^{exponent}", value.sign)
        case _:
            return value


def _unsigned(value: Value) -> Expr:
    if value.sign == "%":
        return Percent(value.expr)
    return Degree(value.expr) if value.sign == "degree" else value.expr


def _same_digits(gold: Expr, answer: Expr) -> bool:
    """A number in base 8 is equal to the same digits, with or without the base: a conversion undone is not paid."""
    if isinstance(gold, Based) and isinstance(answer, Based):
        return gold == answer
    based, other = (gold, answer) if isinstance(gold, Based) else (answer, gold)
    return isinstance(based, Based) and isinstance(other, Num) and other == Num(Fraction(int(based.digits)))


def same_number(gold: Expr, answer: Expr) -> bool:
    """Exactly equal, or a decimal that approximates what no decimal can spell. A number out of all reach is neither."""
    try:
        return _same_number(gold, answer)
    except TooLarge:
        for one, two in ((gold, answer), (answer, gold)):
            if isinstance(one, Num) and surely_exceeds(two, one):
                return False
        raise


def _same_number(gold: Expr, answer: Expr) -> bool:
    exact_gold, exact_answer = rational(gold), rational(answer)
    if exact_gold is not None and exact_answer is not None:
        return exact_gold == exact_answer or _approximate(gold, answer, exact_gold, exact_answer)
    if (isinstance(gold, Num) or isinstance(answer, Num)) and _approximate(gold, answer, exact_gold, exact_answer):
        return True
    if _infinite(gold) or _infinite(answer):
        return gold == answer
    return same_structure(gold, answer) or same_function(gold, answer)


def _infinite(node: Expr) -> bool:
    return node == Const("inf") or (isinstance(node, Mul | Add) and any(map(_infinite, children(node))))


def _approximate(gold: Expr, answer: Expr, exact_gold: Fraction | None, exact_answer: Fraction | None) -> bool:
    gold_written, answer_written = _written(gold), _written(answer)
    if gold_written is not None and answer_written is None:
        return approximates(gold_written, answer, exact_answer, trusted=True)
    if answer_written is not None and gold_written is None:
        return approximates(answer_written, gold, exact_gold, trusted=False)
    return False


def _written(node: Expr) -> Num | None:
    return node if isinstance(node, Num) and node.places else None


def approximates(decimal: Num, other: Expr, exact: Fraction | None, *, trusted: bool) -> bool:
    """Whether the decimal is the rounded value of a number that no decimal spells out.

    A gold decimal is trusted with three digits or two places: its author rounded. A model's decimal must show more:
    five digits for a fraction, ten for an irrational number (1000.0005 is not the root of 1000001). From ten digits on,
    the last one may be cut off instead of rounded.
    """
    digits = significant_digits(decimal)
    if exact is not None and is_terminating(exact):
        return False
    enough = digits >= 3 or (decimal.places or 0) >= 2 if trusted else digits >= (5 if exact is not None else 10)
    if not enough or (exact is None and symbols(other)):
        return False
    value = exact if exact is not None else _real_value(other)
    if value is None:
        return False
    if digits >= 10:
        return bool(abs(value - decimal.value) * 10 ** (decimal.places or 0) < 1)
    return rounds_to(value, decimal)


def _real_value(node: Expr) -> Fraction | None:
    try:
        value, _ = evaluate(node, seed="", point=0, precision=_PRECISION)
        return as_fraction(value) if is_real(value, _PRECISION) else None
    except (Undefined, Unsupported):
        return None
