"""Whether two expressions are the same number, the same function, or the same up to a constant factor.

Rational functions are compared modulo large primes (residues.py). Everything else is compared in real and complex
arithmetic whose precision follows the expressions: at 160 and 320 bits first, where a difference that stays put
proves them unequal, then at 640 bits plus twice the span between the largest and the smallest number met, where
agreement counts as equality. That is no proof; but the deepest coincidence people ever met among short expressions
is some 100 bits deep, and here it would have to be more than 500, relative to the values themselves, so 1/2004! and
1/2006! stay apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reward_service.worker.verify.v2.algebra.expressions import (
    Call,
    Const,
    Expr,
    PlusMinus,
    children,
    contains,
    symbols,
)
from reward_service.worker.verify.v2.algebra.points import REAL_RANGES, primes_for
from reward_service.worker.verify.v2.algebra.reals import (
    Unsupported,
    combined,
    distance_magnitude,
    evaluate,
    is_real,
    magnitude,
)
from reward_service.worker.verify.v2.algebra.residues import KNOWN_FUNCTIONS, NotRational, Residues, Undefined

_FIRST, _SECOND, _THIRD = 160, 320, 640
_STABLE = 2
_ENOUGH_POINTS = 2

# A sample of both sides at a point with a precision, and the span of the numbers met.
Sampler = Callable[[int, int], tuple[Any, Any, int]]


def same_function(left: Expr, right: Expr) -> bool:
    """Whether two expressions agree wherever they are defined; False for whatever has no value."""
    if left == right:
        return True
    seed = _seed(left, right)
    verdict = _same_residues(left, right, seed)
    if verdict is None:
        verdict = _same_samples(_pair_sampler(left, right, seed), _points(left, right), _is_complex(left, right))
    return verdict


def proportional(left: Expr, right: Expr) -> bool:
    """Whether left is a constant (not zero) times right."""
    if left == right:
        return True
    seed = _seed(left, right)
    verdict = _proportional_residues(left, right, seed)
    if verdict is None:
        points = _points(left, right)
        if points <= 1:
            return False
        verdict = _same_samples(_cross_sampler(left, right, seed), points, True)
    return verdict


def sign_of_factor(left: Expr, right: Expr) -> int:
    """The sign of left / right at a sample point: +1 or -1, 0 when it has none."""
    seed = _seed(left, right)
    for point in range(_points(left, right)):
        try:
            above, _ = evaluate(left, seed=seed, point=point, precision=_FIRST)
            below, _ = evaluate(right, seed=seed, point=point, precision=_FIRST)
        except (Undefined, Unsupported):
            continue
        if above and below and is_real(above, _FIRST) and is_real(below, _FIRST):
            return 1 if (above.real > 0) == (below.real > 0) else -1
    return 0


def _seed(left: Expr, right: Expr) -> str:
    """The same for both orders: swapping the sides cannot change a verdict."""
    return "|".join(sorted(symbols(left) | symbols(right)))


def _is_constant(node: Expr) -> bool:
    return not symbols(node) and not _has_opaque(node)


def _has_opaque(node: Expr) -> bool:
    from_here = [node]
    while from_here:
        here = from_here.pop()
        if isinstance(here, Call) and here.name not in KNOWN_FUNCTIONS:
            return True
        from_here += list(children(here))
    return False


def _points(left: Expr, right: Expr) -> int:
    return 1 if _is_constant(left) and _is_constant(right) else len(REAL_RANGES)


def _is_complex(left: Expr, right: Expr) -> bool:
    return _has_imaginary(left) or _has_imaginary(right)


def _has_imaginary(node: Expr) -> bool:
    stack = [node]
    while stack:
        here = stack.pop()
        if here == Const("i"):
            return True
        stack += list(children(here))
    return False


# ---- modulo primes


def _same_residues(left: Expr, right: Expr, seed: str) -> bool | None:
    """The verdict for two rational functions, None for others."""
    if contains(left, (Const, PlusMinus)) or contains(right, (Const, PlusMinus)):
        return None
    compared = 0
    for point, prime in enumerate(primes_for(seed)):
        try:
            if Residues(seed, point, prime).value(left) != Residues(seed, point, prime).value(right):
                return False
            compared += 1
        except Undefined:
            continue
        except NotRational:
            return None
    return compared > 0


def _proportional_residues(left: Expr, right: Expr, seed: str) -> bool | None:
    if contains(left, (Const,)) or contains(right, (Const,)):
        return None
    prime = primes_for(seed)[0]
    values: list[tuple[int, int]] = []
    for point in range(4):
        try:
            values.append((Residues(seed, point, prime).value(left), Residues(seed, point, prime).value(right)))
        except Undefined:
            continue
        except NotRational:
            return None
    if len(values) < _ENOUGH_POINTS or not values[0][0] or not values[0][1]:
        return False
    first_left, first_right = values[0]
    return all((a * first_right - b * first_left) % prime == 0 for a, b in values[1:])


# ---- with real and complex numbers


def _pair_sampler(left: Expr, right: Expr, seed: str) -> Sampler:
    def sample(point: int, precision: int) -> tuple[Any, Any, int]:
        a, span_a = evaluate(left, seed=seed, point=point, precision=precision)
        b, span_b = evaluate(right, seed=seed, point=point, precision=precision)
        return a, b, max(span_a, span_b)

    return sample


def _cross_sampler(left: Expr, right: Expr, seed: str) -> Sampler:
    """left(p) right(p0) against right(p) left(p0): equal at all p exactly when left / right is constant."""
    plain = _pair_sampler(left, right, seed)

    def sample(point: int, precision: int) -> tuple[Any, Any, int]:
        a, b, span = plain(point, precision)
        first_a, first_b, first_span = plain((point + 1) % len(REAL_RANGES), precision)
        if not (a and b and first_a and first_b):
            raise Unsupported
        return combined(a, first_b, precision), combined(b, first_a, precision), 2 * max(span, first_span)

    return sample


def _same_samples(sample: Sampler, points: int, compare_complex: bool) -> bool:
    """All defined points agree, and enough are defined; points where neither side is real count only when none is."""
    compared = 0
    skipped: list[int] = []
    for point in range(points):
        try:
            a, b, _ = sample(point, _FIRST)
            if not compare_complex and points > 1:
                real_a, real_b = is_real(a, _FIRST), is_real(b, _FIRST)
                if real_a != real_b:
                    return False
                if not real_a:
                    skipped.append(point)
                    continue
            if not _agree(sample, point):
                return False
            compared += 1
        except Undefined:
            continue
        except Unsupported:
            return False
    if compared == 0 and skipped:
        return all(_agree(sample, point) for point in skipped)
    return compared >= min(points, _ENOUGH_POINTS)


def _agree(sample: Sampler, point: int) -> bool:
    distances: list[int | None] = []
    span = 0
    for precision in (_FIRST, _SECOND):
        a, b, span = sample(point, precision)
        distances.append(distance_magnitude(a, b, precision))
    if _is_stable(distances[0], distances[1]):
        return False
    precision = _THIRD + 2 * span
    a, b, _ = sample(point, precision)
    last = distance_magnitude(a, b, precision)
    if last is None:
        return True
    if _is_stable(distances[1], last):
        return False
    return last <= max(magnitude(a), magnitude(b)) + span - precision + 60


def _is_stable(first: int | None, second: int | None) -> bool:
    """A distance that more digits do not shrink is a real one."""
    return first is not None and second is not None and abs(first - second) <= _STABLE
