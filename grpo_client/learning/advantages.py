"""From the rewards of a group to one advantage per completion: plain numpy, in one place, for every backend.

A null reward is never 0: its completion gets no advantage (None), the statistics use the others, and `build_batch`
makes no row of it.
TRL gives such a row advantage 0 and leaves it in the denominators. Standard deviations have ddof 1 as in TRL and verl;
numpy and mlx default to 0, and two backends that compute it themselves would disagree.

A group is dead when it cannot teach: fewer than two scores, or all of them within 1e-6. The range is tested, not
std == 0, because the std of eight equal floats may be 1e-9. Its scored completions get exactly 0.0 and still count.

Upstream: TRL 1.16 trl/trainer/grpo_trainer.py `_generate_and_score_completions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STD_EPSILON = 1e-4  # as TRL; verl has 1e-6, OpenRLHF 1e-9
DEAD_RANGE = 1e-6
Totals = Sequence[Sequence[float | None]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantages:
    """One step's advantages, shaped as its rewards, and what is charted about those rewards.

    The mean and std run over all scored completions of the step, as TRL logs them, without any KL penalty.
    """

    values_P_G: list[list[float | None]]  # None where unscored
    dead_P: list[bool]
    frac_reward_zero_std: float  # dead groups / groups, whatever the scale; TRL takes the batch's std under scale batch
    reward_mean: float | None  # None = nothing was scored
    reward_std: float | None  # None = fewer than two were scored


def group_advantages(
    totals_P_G: Totals,
    *,
    scale: str,
    estimator: str = "grpo",
    kl_P_G: Sequence[Sequence[float]] | None = None,
    kl_coef: float = 0.0,
    std_epsilon: float = STD_EPSILON,
) -> Advantages:
    """How much better each completion's total reward is than the mean of its group.

    scale: what that is divided by. "group": the group's std + std_epsilon (GRPO, arXiv 2402.03300); "batch": the std
    over all scored totals of the step + std_epsilon (LitePPO, arXiv 2508.08221); "none": nothing (Dr. GRPO, arXiv
    2503.20783).
    estimator: "rloo" compares with the mean of the n - 1 others, which is (r - mean) n / (n - 1) over the group's n
    scores (arXiv 2402.14740). It is unscaled by definition.
    kl_P_G: each completion's k1 against the reference, summed over its tokens, in nats (`penalty.kl_penalties`);
    kl_coef times it is subtracted before any statistic. What stands beside a null total is not read.

    ValueError: no groups, a group of fewer than two completions, a number that is not finite, an unknown or
    contradictory option.
    """
    _check_options(scale=scale, estimator=estimator)
    _check_groups(totals_P_G)
    penalised_P_G = _subtract_kl(totals_P_G, kl_P_G, kl_coef=kl_coef) if kl_coef else totals_P_G
    compare, divisor = ESTIMATORS[estimator], SCALES[scale]
    scores_P = [_scored(group) for group in penalised_P_G]
    dead_P = [_is_flat(scores) for scores in scores_P]
    step_scores = np.concatenate(scores_P)
    values_P = [
        np.zeros(len(scores)) if dead else compare(scores) / divisor(scores, step_scores, std_epsilon)
        for scores, dead in zip(scores_P, dead_P, strict=True)
    ]
    return _summarise(values_P, dead_P, totals_P_G)


def gdpo_advantages(
    scores_P_G: Sequence[Sequence[Sequence[float | None]]],
    *,
    weights: Sequence[float],
    std_epsilon: float = STD_EPSILON,
) -> Advantages:
    """Each reward standardised within its group before the weighted sum, so that none drowns the others by its range.

    GDPO (arXiv 2601.05242), TRL multi_objective_aggregation="normalize_then_sum": the sums are divided by their
    std + std_epsilon over the step. TRL also subtracts their mean, which is 0 by construction. A completion that lacks
    a reward of non-zero weight is unscored; TRL puts that reward at its group's mean. A group is dead when every reward
    in it is flat.
    scores_P_G: each completion's list of scores, one per weight.

    ValueError: as `group_advantages`, and when a completion has not one score per weight.
    """
    if not all(math.isfinite(weight) for weight in weights):
        raise ValueError(f"weights must be finite; got {list(weights)}")
    totals_P_G = [[_weighted_total(scores, weights) for scores in group] for group in scores_P_G]
    _check_groups(totals_P_G)
    sums_P: list[Floats] = []
    dead_P: list[bool] = []
    for group, totals in zip(scores_P_G, totals_P_G, strict=True):
        rows = [scores for scores, total in zip(group, totals, strict=True) if total is not None]
        sums, dead = np.zeros(len(rows)), True
        for k, weight in enumerate(weights):
            column = _scored(scores[k] for scores in rows) if weight else np.zeros(0)
            if not _is_flat(column):
                sums, dead = sums + weight * (column - column.mean()) / (_std(column) + std_epsilon), False
        sums_P.append(sums)
        dead_P.append(dead)
    divisor = _std(np.concatenate(sums_P)) + std_epsilon
    return _summarise([sums / divisor for sums in sums_P], dead_P, totals_P_G)


def dead_groups(totals_P_G: Totals) -> list[bool]:
    """Which groups cannot teach: fewer than two scores, or all of them equal."""
    return [_is_flat(_scored(group)) for group in totals_P_G]


def _summarise(values_P: Sequence[Floats], dead_P: list[bool], totals_P_G: Totals) -> Advantages:
    """Puts the scored completions' advantages back among the unscored, and describes the rewards."""
    rewards = _scored(total for group in totals_P_G for total in group)
    return Advantages(
        values_P_G=[_spread(values, over=group) for values, group in zip(values_P, totals_P_G, strict=True)],
        dead_P=dead_P,
        frac_reward_zero_std=sum(dead_P) / len(dead_P),
        reward_mean=float(rewards.mean()) if len(rewards) else None,
        reward_std=_std(rewards) if len(rewards) > 1 else None,
    )


def _scored(totals: Iterable[float | None]) -> Floats:
    return np.array([total for total in totals if total is not None], dtype=np.float64)


def _spread(values: Floats, *, over: Sequence[float | None]) -> list[float | None]:
    remaining = iter(values.tolist())
    return [None if total is None else next(remaining) for total in over]


def _is_flat(scores: Floats) -> bool:
    return len(scores) < 2 or bool(np.ptp(scores) <= DEAD_RANGE)


def _std(scores: Floats) -> float:
    return float(scores.std(ddof=1)) if len(scores) > 1 else 0.0


def _subtract_kl(
    totals_P_G: Totals, kl_P_G: Sequence[Sequence[float]] | None, *, kl_coef: float
) -> list[list[float | None]]:
    if kl_P_G is None:
        raise ValueError(f"kl_coef {kl_coef} needs kl_P_G, each completion's summed k1; pass it, or set kl_coef to 0")
    penalised_P_G = [
        [None if total is None else total - kl_coef * kl for total, kl in zip(totals, kls, strict=True)]
        for totals, kls in zip(totals_P_G, kl_P_G, strict=True)
    ]
    _check_groups(penalised_P_G)
    return penalised_P_G


def _weighted_total(scores: Sequence[float | None], weights: Sequence[float]) -> float | None:
    if len(scores) != len(weights):
        raise ValueError(f"a completion has {len(scores)} scores for {len(weights)} weights; give one score per weight")
    total = 0.0
    for score, weight in zip(scores, weights, strict=True):
        if score is not None:
            total += weight * score
        elif weight:
            return None
    return total


SCALES: dict[str, Callable[[Floats, Floats, float], float]] = {  # (the group's scores, the step's, epsilon) -> divisor
    "group": lambda group, step, epsilon: _std(group) + epsilon,
    "batch": lambda group, step, epsilon: _std(step) + epsilon,
    "none": lambda group, step, epsilon: 1.0,
}
ESTIMATORS: dict[str, Callable[[Floats], Floats]] = {
    "grpo": lambda scores: scores - float(scores.mean()),
    "rloo": lambda scores: (scores - float(scores.mean())) * (len(scores) / (len(scores) - 1)),
}


def _check_options(*, scale: str, estimator: str) -> None:
    if scale not in SCALES:
        raise ValueError(f"no scale {scale!r}; there are {', '.join(SCALES)}")
    if estimator not in ESTIMATORS:
        raise ValueError(f"no estimator {estimator!r}; there are {', '.join(ESTIMATORS)}")
    if estimator == "rloo" and scale != "none":
        raise ValueError(f"estimator rloo is unscaled, and scale is {scale}; use scale none, or estimator grpo")


def _check_groups(totals_P_G: Totals) -> None:
    if not totals_P_G:
        raise ValueError("no groups, so no advantages; skip the step")
    for p, group in enumerate(totals_P_G):
        if len(group) < 2:
            raise ValueError(
                f"group {p} has {len(group)} completion(s), and an advantage compares two or more; raise the group size"
            )
        for g, total in enumerate(group):
            if total is not None and not math.isfinite(total):
                raise ValueError(f"completion {g} of group {p} scored {total}; a reward is a finite number or None")
