"""What a loss tells besides its value: sums and counts that add up over micro-batches, named as in TRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_client.learning.array_ops import Array, ArrayOps

SumAndCount = tuple[Array, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStats:
    """A micro-batch's share of the step's metrics: scalars without gradient, still on the device."""

    tokens: Array
    means: Mapping[str, SumAndCount]
    maxima: Mapping[str, Array]


def merge_stats(parts: Sequence[LossStats]) -> dict[str, float]:
    """The step's metrics from all its micro-batches. Empty when no token was scored: unknown is not 0."""
    scored = [part for part in parts if float(part.tokens) > 0]
    metrics: dict[str, float] = {}
    for name in {name: None for part in scored for name in part.means}:
        pairs = [part.means[name] for part in scored if name in part.means]
        metrics[name] = sum(float(total) for total, _ in pairs) / sum(float(count) for _, count in pairs)
    for name in {name: None for part in scored for name in part.maxima}:
        metrics[name] = max(float(part.maxima[name]) for part in scored if name in part.maxima)
    return metrics


def ratio_stats(
    ops: ArrayOps, ratio: Array, *, clipped: Mapping[str, Array], counted: Array
) -> tuple[dict[str, SumAndCount], dict[str, Array]]:
    """Means and maxima of the policy ratio and of where it was clipped; all arrays have one shape."""
    ratio = ops.stop_gradient(ratio)
    ones = ops.ones_like(ratio)
    means = {"ratio/mean": sum_and_count(ops, ratio, counted)}
    for name, was_clipped in clipped.items():
        means[name] = sum_and_count(ops, ops.where(was_clipped, ones, 0.0), counted)
    return means, {"ratio/max": ops.max(ops.where(counted, ratio, 0.0))}


def sampler_stats(
    ops: ArrayOps, gap: Array, *, weight: Array, counted: Array
) -> tuple[dict[str, SumAndCount], dict[str, Array]]:
    """How far trainer and sampler disagree: the cheapest detector of padding, position and template bugs.

    `gap` (B, T) is their logprobs' difference, `weight` (B, T) the importance weight applied for it.
    """
    distance = ops.where(gap < 0, -gap, gap)
    means = {
        "sampling/logp_diff_mean": sum_and_count(ops, distance, counted),
        "sampling/importance_sampling_ratio/mean": sum_and_count(ops, weight, counted),
    }
    return means, {"sampling/logp_diff_max": ops.max(distance)}


def sum_and_count(ops: ArrayOps, values: Array, counted: Array) -> SumAndCount:
    """The sum of `values` where `counted`, and how many that is; no gradient."""
    values = ops.stop_gradient(values)
    return ops.sum(ops.where(counted, values, 0.0)), ops.sum(ops.where(counted, ops.ones_like(values), 0.0))
