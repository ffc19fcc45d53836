"""How far the policy has moved from the reference, per sampled token.

With d = ref_logprob - logprob of the token that was sampled (Schulman, "Approximating KL divergence", 2020):

    k1   -d             unbiased value; as a loss its gradient is 0 in expectation, so it belongs in the reward
    k2   d^2 / 2        as a loss on-policy it has the gradient of the reverse KL
    k3   e^d - d - 1    unbiased, never negative, low variance; its gradient (1 - e^d) is biased
    k3+  k3 in value, k2 in gradient (verl's "k3+")

d is clamped to +-20 as in verl core_algos.py; TRL clamps nothing, and one token can send its KL to 1e6. Beyond the
clamp the value stands still and the gradient is 0. verl also clamps k3 itself to +-10; we do not.
"""

from __future__ import annotations

from collections.abc import Callable

from grpo_client.learning.array_ops import Array, ArrayOps

LOG_RATIO_LIMIT = 20.0  # e^20 = 4.9e8: finite in float32, and nothing that large is worth a gradient


def clamp_log_ratio(ops: ArrayOps, log_ratio: Array) -> Array:
    """The log-ratio within +-20, so that its exponential is finite. Same shape; the gradient beyond is 0."""
    return ops.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k1(ops: ArrayOps, d: Array) -> Array:
    """-d, elementwise."""
    return -d


def k2(ops: ArrayOps, d: Array) -> Array:
    """d^2 / 2, elementwise."""
    return d * d / 2


def k3(ops: ArrayOps, d: Array) -> Array:
    """e^d - d - 1, elementwise."""
    return ops.expm1(d) - d  # expm1: near 0, where training lives, e^d - 1 in float32 would be rounding noise


def k3_plus(ops: ArrayOps, d: Array) -> Array:
    """k3 in value, k2 in gradient."""
    gradient = k2(ops, d)
    return gradient + ops.stop_gradient(k3(ops, d) - gradient)


KlEstimator = Callable[[ArrayOps, Array], Array]
KL_ESTIMATORS: dict[str, KlEstimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
