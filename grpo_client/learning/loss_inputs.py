"""What goes into a loss: a micro-batch of arrays, the counts of the whole step, and how masked numbers are dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grpo_client.learning.array_ops import Array, ArrayOps


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """One micro-batch: B >= 1 rows by T >= 1 positions, one dtype, one device. ValueError if shapes do not match.

    The optional arrays have no default: a forgotten `old_logprobs` would silently mean ratio 1.
    """

    logprobs: Array  # (B, T), carries the gradient
    advantages: Array  # (B,), any number where a row has no scored token
    mask: Array  # (B, T), not 0 = a scored completion's token, its stop token included
    old_logprobs: Array | None  # (B, T), policy when the update began; None = this is its only optimizer step, ratio 1
    ref_logprobs: Array | None  # (B, T); None = no reference pass
    sampling_logprobs: Array | None  # (B, T), as the sampler computed them; None = not kept

    def __post_init__(self) -> None:
        shape = tuple(self.logprobs.shape)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"logprobs must be (rows, positions), at least one of each; got {shape}. Skip an empty batch"
            )
        for name in ("mask", "old_logprobs", "ref_logprobs", "sampling_logprobs"):
            array = getattr(self, name)
            if array is not None and tuple(array.shape) != shape:
                raise ValueError(f"{name} has shape {tuple(array.shape)}; logprobs has {shape}, and they must be equal")
        if tuple(self.advantages.shape) != shape[:1]:
            raise ValueError(f"advantages has shape {tuple(self.advantages.shape)}; {shape[0]} rows need {shape[:1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """What sums are divided by: scored rows and tokens of the whole optimizer step, all micro-batches and ranks."""

    tokens: int
    rows: int
    max_completion_length: int
    micro_batches: int = 1  # for bnpo alone

    def __post_init__(self) -> None:
        if not 0 <= self.rows <= self.tokens <= self.rows * self.max_completion_length or self.micro_batches < 1:
            raise ValueError(f"no batch has these counts: {self}; use Denominators.from_lengths")

    @classmethod
    def from_lengths(
        cls, lengths: Iterable[int], *, max_completion_length: int, micro_batches: int = 1
    ) -> Denominators:
        """From the masked-in tokens of each row of the step; rows with none are not counted."""
        counted = [length for length in lengths if length > 0]
        return cls(
            tokens=sum(counted),
            rows=len(counted),
            max_completion_length=max_completion_length,
            micro_batches=micro_batches,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTokens:
    """`LossInputs` with 0 wherever a number does not count."""

    keep: Array  # (B, T) bool
    ones: Array  # (B, T), 1 where kept, in the dtype of the logprobs
    row_tokens: Array  # (B, 1), at least 1
    logprobs: Array  # (B, T)
    log_ratio: Array  # (B, T), policy / old
    advantages: Array  # (B, 1)
    ref_log_ratio: Array | None  # (B, T), reference / policy
    sampler_gap: Array | None  # (B, T), old - sampling, no gradient


def scored_tokens(ops: ArrayOps, inputs: LossInputs) -> ScoredTokens:
    """Drops what is masked, before any arithmetic: 0 x NaN is NaN, in the gradient as well."""
    keep = inputs.mask != 0

    def kept(array: Array | None) -> Array | None:
        return None if array is None else ops.where(keep, array, 0.0)

    logprobs, ref, sampling = kept(inputs.logprobs), kept(inputs.ref_logprobs), kept(inputs.sampling_logprobs)
    old = ops.stop_gradient(logprobs if inputs.old_logprobs is None else kept(inputs.old_logprobs))
    ones = kept(ops.ones_like(inputs.logprobs))
    row_tokens = ops.sum_rows(ones)
    return ScoredTokens(
        keep=keep,
        ones=ones,
        row_tokens=ops.clip(row_tokens, 1.0, None),
        logprobs=logprobs,
        log_ratio=logprobs - old,
        advantages=ops.where(row_tokens > 0, inputs.advantages[:, None], 0.0),
        ref_log_ratio=None if ref is None else ops.stop_gradient(ref) - logprobs,
        sampler_gap=None if sampling is None else old - ops.stop_gradient(sampling),
    )
