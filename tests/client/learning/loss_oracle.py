"""The losses again, as slowly and plainly as possible: Python numbers, one row and one token at a time.

Nothing here comes from grpo_client, so a slip has to be made twice to go unseen. Gradients are exact: each logprob in
turn gets an imaginary part of 1e-30, and the imaginary part of the loss is the derivative, without the cancellation of
finite differences (complex-step differentiation). A stopped gradient reads the real logprobs instead.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass, field
from typing import Any

Number = float | complex
Rows = list[list[float]]
STEP = 1e-30


@dataclass(frozen=True, kw_only=True)
class Case:
    """A whole optimizer step. Rows may hold anything where the mask is 0."""

    logprobs: Rows
    advantages: list[float]
    mask: list[list[int]]
    old: Rows | None = None
    ref: Rows | None = None
    sampling: Rows | None = None
    max_completion_length: int = 8
    options: dict[str, Any] = field(default_factory=dict)  # of LossConfig, by name

    def option(self, name: str) -> object:
        defaults: dict[str, object] = {
            "aggregation": "dapo",
            "objective": "clipped",
            "clip_low": 0.2,
            "clip_high": 0.28,
            "ratio_cap": None,
            "cispo_max_ratio": 5.0,
            "kl_coef": 0.0,
            "kl_estimator": "k3",
            "importance_correction": "off",
            "importance_cap": 2.0,
            "importance_floor": 0.0,
        }
        return self.options.get(name, defaults[name])

    def number(self, name: str) -> float:
        value = self.option(name)
        assert isinstance(value, int | float)
        return float(value)


def oracle_loss(case: Case) -> float:
    value = _loss(case, _as_complex(case.logprobs))
    return value.real


def oracle_gradient(case: Case) -> Rows:
    """d loss / d logprobs, 0 where masked."""
    gradient = []
    for i, row in enumerate(case.logprobs):
        gradient.append([0.0] * len(row))
        for t in range(len(row)):
            if case.mask[i][t]:
                moved = _as_complex(case.logprobs)
                moved[i][t] += STEP * 1j
                gradient[i][t] = _loss(case, moved).imag / STEP
    return gradient


def oracle_scale(case: Case) -> float:
    """The loss with every term made positive: what a relative error is relative to.

    The loss itself is a sum that cancels, advantages having mean 0, and can be far smaller than its rounding errors. So
    does k3 = (e^d - 1) - d near 0.
    """
    logprobs = _as_complex(case.logprobs)
    sizes = [[abs(x) for x in row] for row in _token_losses(case, logprobs)]
    if case.ref is not None and case.option("kl_coef"):
        for i, positions in enumerate(_positions(case)):
            for place, t in enumerate(positions):
                sizes[i][place] += case.number("kl_coef") * abs(_limited(case.ref[i][t] - case.logprobs[i][t]))
    return _aggregate(case, sizes).real


def oracle_gradient_scale(case: Case) -> float:
    """The largest derivative, or that of one term of k3 where its two all but cancel: (1 - e^d) at d near 0."""
    rows = max(1, sum(any(row) for row in case.mask))
    one_term = case.number("kl_coef") / (rows * case.max_completion_length)
    return max([one_term, *(abs(x) for row in oracle_gradient(case) for x in row)])


def oracle_metrics(case: Case) -> dict[str, float]:
    """ratio/mean, ratio/max and the clipped shares, over tokens (gspo: over completions)."""
    ratios: list[tuple[float, float]] = []
    for i, positions in enumerate(_positions(case)):
        of_row = [_ratio(case, _as_complex(case.logprobs), i, t).real for t in positions]
        ratios += [(r, case.advantages[i]) for r in (of_row[:1] if case.option("objective") == "gspo" else of_row)]
    low, high = 1 - case.number("clip_low"), 1 + case.number("clip_high")
    below = [r < low and a < 0 for r, a in ratios]
    above = [r > high and a > 0 for r, a in ratios]
    return {
        "ratio/mean": sum(r for r, _ in ratios) / len(ratios),
        "ratio/max": max(r for r, _ in ratios),
        "clip_ratio/low_mean": sum(below) / len(ratios),
        "clip_ratio/high_mean": sum(above) / len(ratios),
        "clip_ratio/region_mean": (sum(below) + sum(above)) / len(ratios),
    }


def _loss(case: Case, logprobs: list[list[complex]]) -> complex:
    return _aggregate(case, _token_losses(case, logprobs))


def _aggregate(case: Case, token_losses: list[list[complex]] | list[list[float]]) -> complex:
    scored = [row for row in token_losses if row]
    tokens = sum(len(row) for row in scored)
    if not tokens:
        return 0j
    total = complex(sum(x for row in scored for x in row))
    aggregation = case.option("aggregation")
    if aggregation in ("dapo", "bnpo"):
        return total / tokens
    if aggregation == "grpo":
        return complex(sum(sum(row) / len(row) for row in scored)) / len(scored)
    assert aggregation == "dr_grpo"
    return total / (len(scored) * case.max_completion_length)


def _token_losses(case: Case, logprobs: list[list[complex]]) -> list[list[complex]]:
    """Per row, the losses of its scored tokens only."""
    losses: list[list[complex]] = []
    for i, positions in enumerate(_positions(case)):
        losses.append([])
        for t in positions:
            loss = _policy_loss(case, logprobs, i, t) * _importance_weight(case, i, t)
            if case.option("kl_coef"):
                loss += case.number("kl_coef") * _kl(case, logprobs, i, t)
            losses[-1].append(loss)
    return losses


def _policy_loss(case: Case, logprobs: list[list[complex]], i: int, t: int) -> complex:
    advantage = case.advantages[i]
    objective = case.option("objective")
    ratio = _ratio(case, logprobs, i, t)
    if objective == "reinforce":
        return -advantage * logprobs[i][t]
    if objective == "cispo":
        return -min(ratio.real, case.number("cispo_max_ratio")) * advantage * logprobs[i][t]
    low, high = 1 - case.number("clip_low"), 1 + case.number("clip_high")
    unclipped = ratio
    if case.option("ratio_cap") is not None and ratio.real > case.number("ratio_cap"):
        unclipped = complex(case.number("ratio_cap"))
    bounded = ratio
    if ratio.real < low:
        bounded = complex(low)
    if ratio.real > high:
        bounded = complex(high)
    first, second = unclipped * advantage, bounded * advantage
    return -first if first.real <= second.real else -second


def _ratio(case: Case, logprobs: list[list[complex]], i: int, t: int) -> complex:
    if case.option("objective") != "gspo":
        return cmath.exp(_limited(logprobs[i][t] - _old(case, i, t)))
    positions = _positions(case)[i]
    gaps = [logprobs[i][u] - _old(case, i, u) for u in positions]
    return cmath.exp(_limited(sum(gaps) / len(positions)))


def _importance_weight(case: Case, i: int, t: int) -> float:
    if case.option("importance_correction") == "off":
        return 1.0
    assert case.sampling is not None
    ratio = math.exp(_limited(_old(case, i, t) - case.sampling[i][t]).real)
    cap = case.number("importance_cap")
    if case.option("importance_correction") == "truncate":
        return min(ratio, cap)
    return ratio if case.number("importance_floor") <= ratio <= cap else 0.0


def _kl(case: Case, logprobs: list[list[complex]], i: int, t: int) -> complex:
    assert case.ref is not None
    d = _limited(case.ref[i][t] - logprobs[i][t])
    k2, k3 = d * d / 2, cmath.exp(d) - d - 1
    estimator = case.option("kl_estimator")
    if estimator == "k3+":
        return complex(k3.real, k2.imag)
    return {"k1": -d, "k2": k2, "k3": k3}[str(estimator)]


def _old(case: Case, i: int, t: int) -> float:
    return case.logprobs[i][t] if case.old is None else case.old[i][t]


def _limited(log_ratio: Number) -> complex:
    """Within +-20, with no derivative outside."""
    z = complex(log_ratio)
    if z.real > 20:
        return 20 + 0j
    return -20 + 0j if z.real < -20 else z


def _positions(case: Case) -> list[list[int]]:
    return [[t for t, kept in enumerate(row) if kept] for row in case.mask]


def _as_complex(rows: Rows) -> list[list[complex]]:
    return [[complex(x) for x in row] for row in rows]
