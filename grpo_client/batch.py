"""From groups and advantages to an optimizer step's batch. Masks come from lengths, never from token values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grpo_client.advantages import Advantages
from grpo_client.loss_inputs import Denominators
from grpo_client.types import Group


@dataclass(frozen=True, slots=True)
class Row:
    """One scored completion. `old_logprobs` and `ref_logprobs` are (T,) once a backend has computed them."""

    prompt: int  # place in Batch.prompts
    token_ids: list[int]  # (T,)
    sampling_logprobs: list[float]  # (T,)
    advantage: float
    old_logprobs: list[float] | None = None
    ref_logprobs: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The scored, non-empty completions of a step, and the counts that their loss is divided by."""

    prompts: list[tuple[int, ...]]
    rows: list[Row]
    denominators: Denominators

    def having(self, rows: Sequence[Row]) -> Batch:
        """The same step with other rows; the denominators stay those of the whole."""
        return replace(self, rows=list(rows))


def build_batch(groups: Sequence[Group], advantages: Advantages, *, max_completion_length: int) -> Batch:
    """The rows that count: scored completions of one token or more. Unscored ones are in no sum and no denominator."""
    rows = [
        Row(p, rollout.token_ids, rollout.sampling_logprobs, advantage)
        for p, group in enumerate(groups)
        for rollout, advantage in zip(group.rollouts, advantages.values_P_G[p], strict=True)
        if advantage is not None and rollout.token_ids
    ]
    denominators = Denominators.from_lengths(
        [len(row.token_ids) for row in rows], max_completion_length=max_completion_length
    )
    return Batch([group.prompt.token_ids for group in groups], rows, denominators)


def micro_batches(batch: Batch, *, token_budget: int) -> list[Batch]:
    """Parts of a batch that fit one pass: a prompt counts once, its completions padded to the part's longest.

    Rows of one prompt stay together where they fit, and within a prompt the long ones stand together.
    """
    parts: list[list[Row]] = []
    for row in sorted(batch.rows, key=lambda row: (row.prompt, -len(row.token_ids))):
        if parts and _tokens(batch, [*parts[-1], row]) <= token_budget:
            parts[-1].append(row)
        else:
            parts.append([row])
    return [batch.having(part) for part in parts]


def _tokens(batch: Batch, rows: Sequence[Row]) -> int:
    prompts = sum(len(batch.prompts[prompt]) for prompt in {row.prompt for row in rows})
    return prompts + len(rows) * max(len(row.token_ids) for row in rows)
