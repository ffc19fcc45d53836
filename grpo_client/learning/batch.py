"""From groups and advantages to the batches of a step's updates. Masks come from lengths, never from token values.

Which rows count: a scored, non-empty completion, unless it was cut and those are masked, or its group is dead and those
are dropped. What does not count is in no sum and in no denominator. What counts with advantage 0 stays in the
denominators, but needs no pass where nothing else than the advantage makes a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from grpo_client.learning.advantages import Advantages, dead_groups
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.types import Group

_PASS_TOKENS = 64  # what a pass of its own costs besides its tokens, in tokens: padding below it is cheaper


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """One completion that counts. `old_logprobs` and `ref_logprobs` are (T,) once a backend has computed them."""

    prompt: int  # place in Batch.prompts
    completion: int  # place in its group
    token_ids: list[int]  # (T,)
    sampling_logprobs: list[float]  # (T,)
    kept: list[NDArray[np.int32]] | None  # (T,) as in Rollout
    advantage: float
    old_logprobs: list[float] | None = None
    ref_logprobs: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Completions of an optimizer step, and the counts that their loss is divided by."""

    prompts: list[tuple[int, ...]]
    rows: list[CompletionRow]
    denominators: Denominators

    def having(self, rows: Sequence[CompletionRow]) -> Batch:
        """The same optimizer step with other rows; the denominators stay those of the whole."""
        return replace(self, rows=list(rows))


def build_batch(
    groups: Sequence[Group],
    advantages: Advantages,
    *,
    max_completion_length: int,
    mask_truncated: bool = False,
    drop_dead: bool = False,
) -> Batch:
    """The rows of a step that count, and their denominators."""
    dropped = dead_groups([group.rewards.totals for group in groups]) if drop_dead else [False] * len(groups)
    rows = [
        CompletionRow(p, g, rollout.token_ids, rollout.sampling_logprobs, rollout.kept, advantage)
        for p, group in enumerate(groups)
        for g, (rollout, advantage) in enumerate(zip(group.rollouts, advantages.values_P_G[p], strict=True))
        if advantage is not None
        and rollout.token_ids
        and not dropped[p]
        and not (mask_truncated and rollout.finish_reason == "length")
    ]
    return _batch([group.prompt.token_ids for group in groups], rows, max_completion_length=max_completion_length)


def _batch(prompts: list[tuple[int, ...]], rows: list[CompletionRow], *, max_completion_length: int) -> Batch:
    lengths = [len(row.token_ids) for row in rows]
    return Batch(prompts, rows, Denominators.from_lengths(lengths, max_completion_length=max_completion_length))


def optimizer_batches(batch: Batch, *, count: int, skip_flat: bool) -> list[Batch]:
    """A step's rows as the batches of its optimizer steps: whole prompts dealt in turn, denominators of its own each.

    skip_flat leaves rows of advantage 0 out after counting them. A batch in which nothing counts is left out.
    """
    used = sorted({row.prompt for row in batch.rows})
    hand = {prompt: i % count for i, prompt in enumerate(used)}
    hands = [[row for row in batch.rows if hand[row.prompt] == i] for i in range(count)]
    longest = batch.denominators.max_completion_length
    parts = [_batch(batch.prompts, rows, max_completion_length=longest) for rows in hands if rows]
    return [part.having([row for row in part.rows if row.advantage or not skip_flat]) for part in parts]


def micro_batches(batch: Batch, *, token_budget: int) -> list[Batch]:
    """Parts of a batch that fit one pass: a prompt counts once, its completions padded to the part's longest.

    Completions of like length stand together, so that little is padding; those of one prompt too, so that it is run
    once, unless running it again is cheaper than padding to its longest completion.
    """
    parts: list[list[CompletionRow]] = []
    for segment in sorted(_segments(batch), key=lambda rows: -len(rows[0].token_ids)):
        joins = bool(parts) and len(segment) * _gap(parts[-1], segment) <= _PASS_TOKENS
        for row in segment:
            if joins and _tokens(batch, [*parts[-1], row]) <= token_budget:
                parts[-1].append(row)
            else:
                parts.append([row])
            joins = True
    return [batch.having(part) for part in parts]


def _segments(batch: Batch) -> Iterator[list[CompletionRow]]:
    """Each prompt's rows from long to short, cut where padding the rest would cost more than the prompt run again."""
    rows = sorted(batch.rows, key=lambda row: (row.prompt, -len(row.token_ids)))
    for prompt, group in groupby(rows, key=lambda row: row.prompt):
        members = list(group)
        start = 0
        for i in range(1, len(members)):
            padding = (len(members) - i) * _gap(members[start:], members[i:])
            if padding > len(batch.prompts[prompt]) + _PASS_TOKENS:
                yield members[start:i]
                start = i
        yield members[start:]


def _gap(rows: Sequence[CompletionRow], others: Sequence[CompletionRow]) -> int:
    return len(rows[0].token_ids) - len(others[0].token_ids)


def _tokens(batch: Batch, rows: Sequence[CompletionRow]) -> int:
    prompts = sum(len(batch.prompts[prompt]) for prompt in {row.prompt for row in rows})
    return prompts + len(rows) * max(len(row.token_ids) for row in rows)
