"""What one optimizer step minimises, written once for numpy, torch and mlx.

    loss = aggregation over scored tokens of ( objective x importance weight + kl_coef x KL )

`make_loss` picks the four pieces before the training loop and returns one function of arrays. `OBJECTIVES`,
`AGGREGATIONS`, `IMPORTANCE_CORRECTIONS` and `kl.KL_ESTIMATORS` are all there is. Logprobs are natural logs at
logits / temperature, in float32 or float64 (never bfloat16: it cannot count past 256); all stays in their dtype.

A token counts where the mask is not 0. What lies elsewhere may be NaN or -inf and reaches neither value nor gradient:
each array is replaced by 0 there before any arithmetic, and the result again after it. A NaN that counts is not hidden.
Denominators are fixed for the whole optimizer step, so losses and gradients of micro-batches simply add up.

Upstream line numbers: TRL 1.16 trl/trainer/grpo_trainer.py `_compute_loss`; verl trainer/ppo/core_algos.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf

from grpo_client.learning.array_ops import Array, ArrayOps
from grpo_client.learning.kl import KL_ESTIMATORS, clamp_log_ratio
from grpo_client.learning.loss_inputs import Denominators, LossInputs, ScoredTokens, scored_tokens
from grpo_client.learning.loss_stats import LossStats, ratio_stats, sampler_stats, sum_and_count


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """Which loss, with which numbers. A combination that cannot be right raises ValueError and says what to do."""

    aggregation: str = "dapo"
    objective: str = "clipped"
    clip_low: float = 0.2  # offsets from 1 (DAPO, arXiv 2503.14476); the gspo paper uses 3e-4 and 4e-4
    clip_high: float = 0.28
    ratio_cap: float | None = None  # TRL's `delta`, INTELLECT-2's two-sided clip; None = no cap
    cispo_max_ratio: float = 5.0  # absolute, as TRL's epsilon_high under cispo; not an offset from 1
    kl_coef: float = 0.0
    kl_estimator: str = "k3"
    importance_correction: str = "off"
    importance_cap: float = 2.0
    importance_floor: float = 0.0  # `mask` only

    def __post_init__(self) -> None:
        _check_known("aggregation", self.aggregation, AGGREGATIONS)
        _check_known("objective", self.objective, OBJECTIVES)
        _check_known("kl_estimator", self.kl_estimator, KL_ESTIMATORS)
        _check_known("importance_correction", self.importance_correction, IMPORTANCE_CORRECTIONS)
        if self.objective == "gspo" and self.aggregation != "grpo":
            raise ValueError(
                f"objective gspo has one ratio per completion, and aggregation {self.aggregation} sums over tokens, so "
                "that long completions weigh more than gspo means them to; use aggregation grpo"
            )
        if not 0 < self.clip_low <= 1:
            raise ValueError(f"clip_low is an offset below 1, so 0 < clip_low <= 1; got {self.clip_low}")
        if not 0 < self.clip_high < inf:
            raise ValueError(f"clip_high is an offset above 1, so it must be positive and finite; got {self.clip_high}")
        if self.ratio_cap is not None and self.objective not in ("clipped", "gspo"):
            raise ValueError(f"ratio_cap does nothing under objective {self.objective}; leave it out")
        if self.ratio_cap is not None and not 1 + self.clip_high < self.ratio_cap < inf:
            raise ValueError(
                f"ratio_cap must lie above 1 + clip_high = {1 + self.clip_high}; got {self.ratio_cap}. "
                "Try 4, or leave it out"
            )
        if not 1 <= self.cispo_max_ratio < inf:
            raise ValueError(
                f"cispo_max_ratio is the largest ratio itself, at least 1; got {self.cispo_max_ratio}. "
                f"If you mean an offset from 1, write {1 + self.cispo_max_ratio}"
            )
        if not 0 <= self.kl_coef < inf:
            raise ValueError(f"kl_coef must be finite and not negative; got {self.kl_coef}. 0 means no KL in the loss")
        if not 1 <= self.importance_cap < inf:
            raise ValueError(
                f"importance_cap must be at least 1, a faithful sampler's weight; got {self.importance_cap}"
            )
        if not 0 <= self.importance_floor <= 1:
            raise ValueError(f"importance_floor must lie between 0 and 1; got {self.importance_floor}")
        if self.importance_floor and self.importance_correction != "mask":
            raise ValueError("importance_floor is for importance_correction mask; leave it out or choose mask")


def check_advantage_scale(*, aggregation: str, scale: str) -> None:
    """Raises ValueError where the advantages' scaling contradicts the aggregation; call it once, with the config.

    Dr. GRPO (arXiv 2503.20783) drops the division by the group's std as well as the one by the length. TRL's dr_grpo
    drops only the second and leaves scale_rewards to the user.
    """
    if aggregation == "dr_grpo" and scale != "none":
        raise ValueError(f"aggregation dr_grpo means unscaled advantages, and scale is {scale}; use scale none")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutputs:
    """`loss` is (), this micro-batch's share of the step's loss: call backward on each and add nothing else."""

    loss: Array
    stats: LossStats


LossFn = Callable[[ArrayOps, LossInputs, Denominators], LossOutputs]


def make_loss(config: LossConfig) -> LossFn:
    """The loss that `config` describes, every choice made. Called without an input it needs, it raises ValueError."""
    objective = OBJECTIVES[config.objective]
    importance_weight = IMPORTANCE_CORRECTIONS[config.importance_correction]
    kl_estimator = KL_ESTIMATORS[config.kl_estimator]
    aggregate = AGGREGATIONS[config.aggregation]

    def loss_fn(ops: ArrayOps, inputs: LossInputs, denominators: Denominators) -> LossOutputs:
        _check_present(config, inputs)
        batch = scored_tokens(ops, inputs)
        policy = objective(ops, batch, config)
        means, maxima = ratio_stats(ops, policy.ratio, clipped=policy.clipped, counted=policy.counted)
        token_loss = policy.loss
        if batch.sampler_gap is not None:
            weight = importance_weight(ops, ops.exp(clamp_log_ratio(ops, batch.sampler_gap)), config)
            token_loss = token_loss * weight  # the policy term only, as in TRL: KL is not a sampler's matter
            sampler_means, sampler_maxima = sampler_stats(ops, batch.sampler_gap, weight=weight, counted=batch.keep)
            means, maxima = means | sampler_means, maxima | sampler_maxima
        if batch.ref_log_ratio is not None:
            kl = kl_estimator(ops, clamp_log_ratio(ops, batch.ref_log_ratio))  # (B, T)
            means["kl"] = sum_and_count(ops, kl, batch.keep)
            if config.kl_coef:
                token_loss = token_loss + config.kl_coef * kl
        token_loss = ops.where(batch.keep, token_loss, 0.0)  # (B, T), also where gspo had (B, 1)
        stats = LossStats(tokens=ops.sum(batch.ones), means=means, maxima=maxima)
        return LossOutputs(loss=aggregate(ops, token_loss, batch, denominators), stats=stats)

    return loss_fn


# Objectives: what one token (gspo: one completion) contributes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """An objective's result, before weights, KL and aggregation."""

    loss: Array  # (B, T), or (B, 1) where the ratio is a completion's
    ratio: Array  # the same shape
    counted: Array  # the same shape, bool: what the metrics' means run over
    clipped: Mapping[str, Array]  # metric -> the same shape, bool


def clipped(ops: ArrayOps, batch: ScoredTokens, config: LossConfig) -> Surrogate:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), r per token (PPO; TRL grpo, dapo, dr_grpo, bnpo)."""
    ratio = ops.exp(clamp_log_ratio(ops, batch.log_ratio))
    return _clip(ops, ratio, batch.advantages, counted=batch.keep, config=config)


def gspo(ops: ArrayOps, batch: ScoredTokens, config: LossConfig) -> Surrogate:
    """The same with one r per completion, the geometric mean of its tokens' (GSPO, arXiv 2507.18071, eq. 7).

    TRL importance_sampling_level="sequence": the ordinary gradient through r. verl's form with a stopped gradient has
    the same value and gradient under aggregation grpo, the only one we allow; TRL merely warns about the others.
    """
    log_ratio = ops.sum_rows(batch.log_ratio) / batch.row_tokens
    ratio = ops.exp(clamp_log_ratio(ops, log_ratio))  # (B, 1)
    return _clip(ops, ratio, batch.advantages, counted=ops.sum_rows(batch.ones) > 0, config=config)


def cispo(ops: ArrayOps, batch: ScoredTokens, config: LossConfig) -> Surrogate:
    """-sg(min(r, cispo_max_ratio)) A logprob, without a lower bound (MiniMax-M1, arXiv 2506.13585; TRL cispo)."""
    ratio = ops.exp(clamp_log_ratio(ops, batch.log_ratio))
    weight = ops.stop_gradient(ops.clip(ratio, None, config.cispo_max_ratio))
    return Surrogate(
        loss=-weight * batch.advantages * batch.logprobs,
        ratio=ratio,
        counted=batch.keep,
        clipped={"cispo_clip_ratio": (ratio > config.cispo_max_ratio) & (batch.advantages > 0)},
    )


def reinforce(ops: ArrayOps, batch: ScoredTokens, config: LossConfig) -> Surrogate:
    """-A logprob: no ratio and no clip, so meant for one update per rollout (Williams 1992)."""
    ratio = ops.exp(clamp_log_ratio(ops, batch.log_ratio))
    return Surrogate(loss=-batch.advantages * batch.logprobs, ratio=ratio, counted=batch.keep, clipped={})


def _clip(ops: ArrayOps, ratio: Array, advantages: Array, *, counted: Array, config: LossConfig) -> Surrogate:
    """PPO's pessimistic minimum. ratio_cap (TRL `delta`) bounds the branch without the clip, so only A < 0 feels it."""
    low, high = 1 - config.clip_low, 1 + config.clip_high
    unclipped = ops.clip(ratio, None, config.ratio_cap) if config.ratio_cap is not None else ratio
    below, above = (ratio < low) & (advantages < 0), (ratio > high) & (advantages > 0)
    return Surrogate(
        loss=-ops.minimum(unclipped * advantages, ops.clip(ratio, low, high) * advantages),
        ratio=ratio,
        counted=counted,
        clipped={"clip_ratio/low_mean": below, "clip_ratio/high_mean": above, "clip_ratio/region_mean": below | above},
    )


Objective = Callable[[ArrayOps, ScoredTokens, LossConfig], Surrogate]
OBJECTIVES: dict[str, Objective] = {"clipped": clipped, "cispo": cispo, "gspo": gspo, "reinforce": reinforce}


# Importance corrections: old / sampling per token, for a sampler that computes other logprobs than the trainer.


def uncorrected(ops: ArrayOps, ratio: Array, config: LossConfig) -> Array:
    """1: the sampler is taken at its word."""
    return ops.ones_like(ratio)


def truncated(ops: ArrayOps, ratio: Array, config: LossConfig) -> Array:
    """min(ratio, cap): truncated importance sampling (TRL token_truncate)."""
    return ops.clip(ratio, None, config.importance_cap)


def masked(ops: ArrayOps, ratio: Array, config: LossConfig) -> Array:
    """The ratio within [floor, cap], 0 outside (IcePop; TRL token_mask). Masked tokens stay in the denominators."""
    within = (ratio >= config.importance_floor) & (ratio <= config.importance_cap)
    return ops.where(within, ratio, 0.0)


ImportanceCorrection = Callable[[ArrayOps, Array, LossConfig], Array]
IMPORTANCE_CORRECTIONS: dict[str, ImportanceCorrection] = {"off": uncorrected, "truncate": truncated, "mask": masked}


# Aggregations: from (B, T) token losses, 0 where masked, to this micro-batch's share of the step's loss.


def dapo(ops: ArrayOps, token_loss: Array, batch: ScoredTokens, denominators: Denominators) -> Array:
    """The mean over the step's tokens (DAPO, arXiv 2503.14476; TRL and verl default).

    TRL counts the tokens of a completion without a score and gives it advantage 0; we leave it out of all three.
    """
    return ops.sum(token_loss) / max(denominators.tokens, 1)


def grpo(ops: ArrayOps, token_loss: Array, batch: ScoredTokens, denominators: Denominators) -> Array:
    """The mean over the step's rows of each row's token mean (DeepSeekMath, arXiv 2402.03300).

    TRL counts every row, also those with nothing in the mask; we, like verl, count scored rows.
    """
    return ops.sum(ops.sum_rows(token_loss) / batch.row_tokens) / max(denominators.rows, 1)


def dr_grpo(ops: ArrayOps, token_loss: Array, batch: ScoredTokens, denominators: Denominators) -> Array:
    """The sum over rows x max_completion_length (Dr. GRPO, arXiv 2503.20783). Scored rows, where TRL counts all."""
    return ops.sum(token_loss) / max(denominators.rows * denominators.max_completion_length, 1)


def bnpo(ops: ArrayOps, token_loss: Array, batch: ScoredTokens, denominators: Denominators) -> Array:
    """The mean over this micro-batch's tokens: only to match TRL, as the result depends on how the step is cut."""
    return ops.sum(token_loss) / ops.clip(ops.sum(batch.ones), 1.0, None) / denominators.micro_batches


Aggregation = Callable[[ArrayOps, Array, ScoredTokens, Denominators], Array]
AGGREGATIONS: dict[str, Aggregation] = {"dapo": dapo, "grpo": grpo, "dr_grpo": dr_grpo, "bnpo": bnpo}


def _check_known(name: str, value: str, table: Mapping[str, object]) -> None:
    if value not in table:
        close = get_close_matches(str(value), table, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"no {name} {value!r}; {hint}there are {', '.join(table)}")


def _check_present(config: LossConfig, inputs: LossInputs) -> None:
    if config.kl_coef and inputs.ref_logprobs is None:
        raise ValueError(f"kl_coef {config.kl_coef} needs ref_logprobs; run the reference pass or set kl_coef to 0")
    if config.importance_correction != "off" and inputs.sampling_logprobs is None:
        raise ValueError(
            f"importance_correction {config.importance_correction} needs sampling_logprobs; keep them, or choose off"
        )
