"""Rows that count, denominators of the whole step, and parts that fit a budget."""

from __future__ import annotations

import pytest

from grpo_client.learning.advantages import group_advantages
from grpo_client.learning.batch import Batch, build_batch, micro_batches, optimizer_batches
from grpo_client.types import FinishReason, Group, Prompt, Rollout, Scores


def group(
    index: int, lengths: list[int], totals: list[float | None], *, reasons: list[FinishReason] | None = None
) -> Group:
    ends = reasons or ["stop"] * len(lengths)
    rollouts = [Rollout([7] * n, [-1.0] * n, end) for n, end in zip(lengths, ends, strict=True)]
    return Group(Prompt(index, [], (1, 2, 3), "7"), rollouts, [""] * len(lengths), Scores(totals, {}, {}))


GROUPS = [group(0, [5, 1, 0], [1.0, None, 0.0]), group(1, [2, 3, 4], [0.5, 0.5, 0.5])]


def test_unscored_and_empty_completions_are_in_no_row_and_no_denominator() -> None:
    advantages = group_advantages([one.scores.totals for one in GROUPS], scale="group")
    batch = build_batch(GROUPS, advantages, max_completion_length=8)
    assert [(row.prompt, len(row.token_ids)) for row in batch.rows] == [(0, 5), (1, 2), (1, 3), (1, 4)]
    assert (batch.denominators.rows, batch.denominators.tokens) == (4, 14)
    assert [row.advantage for row in batch.rows][1:] == [0.0, 0.0, 0.0]


def built(groups: list[Group] = GROUPS, **options: bool) -> Batch:
    advantages = group_advantages([one.scores.totals for one in groups], scale="group")
    return build_batch(groups, advantages, max_completion_length=8, **options)


def places(batch: Batch) -> list[tuple[int, int]]:
    return [(row.prompt, row.completion) for row in batch.rows]


def test_a_dead_group_counts_unless_it_is_dropped() -> None:
    assert places(built()) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    dropped = built(drop_dead=True)
    assert places(dropped) == [(0, 0)]
    assert (dropped.denominators.rows, dropped.denominators.tokens) == (1, 5)


def test_masked_truncation_takes_a_row_out_of_every_count_but_leaves_its_reward_in_the_group() -> None:
    groups = [group(0, [8, 4, 4], [1.0, 0.0, 0.0], reasons=["length", "stop", "stop"])]
    plain, masked = built(groups), built(groups, mask_truncated=True)
    assert places(plain) == [(0, 0), (0, 1), (0, 2)]
    assert places(masked) == [(0, 1), (0, 2)]
    assert (masked.denominators.rows, masked.denominators.tokens) == (2, 8)
    assert [row.advantage for row in masked.rows] == [row.advantage for row in plain.rows][1:]


def test_all_truncated_leaves_no_batch() -> None:
    groups = [group(0, [8, 8], [1.0, 0.0], reasons=["length", "length"])]
    assert optimizer_batches(built(groups, mask_truncated=True), count=1, skip_flat=True) == []


def test_optimizer_batches_deal_out_whole_prompts_and_count_for_themselves() -> None:
    groups = [group(p, [p + 1, p + 2], [1.0, 0.0]) for p in range(5)]
    batches = optimizer_batches(built(groups), count=2, skip_flat=True)
    assert [sorted({row.prompt for row in one.rows}) for one in batches] == [[0, 2, 4], [1, 3]]
    assert [one.denominators.rows for one in batches] == [6, 4]
    assert [one.denominators.tokens for one in batches] == [1 + 2 + 3 + 4 + 5 + 6, 2 + 3 + 4 + 5]


def test_flat_rows_are_counted_before_they_are_skipped() -> None:
    (skipped,) = optimizer_batches(built(), count=1, skip_flat=True)
    (whole,) = optimizer_batches(built(), count=1, skip_flat=False)
    assert len(whole.rows) == 4
    assert places(skipped) == [(0, 0)]
    assert skipped.denominators == whole.denominators


LONG_AND_SHORT = [group(p, [200, 190, 10, 9], [1.0, 0.0, 1.0, 0.0]) for p in range(3)]


def test_completions_of_like_length_share_a_pass() -> None:
    advantages = group_advantages([one.scores.totals for one in LONG_AND_SHORT], scale="group")
    batch = build_batch(LONG_AND_SHORT, advantages, max_completion_length=200)
    parts = micro_batches(batch, token_budget=2000)
    assert [sorted({len(row.token_ids) for row in part.rows}) for part in parts] == [[190, 200], [9, 10]]


@pytest.mark.parametrize("budget", [1, 10, 20, 1000])
def test_parts_hold_every_row_once_within_the_budget_or_alone(budget: int) -> None:
    advantages = group_advantages([one.scores.totals for one in GROUPS], scale="group")
    batch = build_batch(GROUPS, advantages, max_completion_length=8)
    parts = micro_batches(batch, token_budget=budget)
    assert sorted(id(row) for part in parts for row in part.rows) == sorted(id(row) for row in batch.rows)
    assert all(part.denominators == batch.denominators for part in parts)
    for part in parts:
        prompts = len({row.prompt for row in part.rows})
        padded = len(part.rows) * max(len(row.token_ids) for row in part.rows)
        assert len(part.rows) == 1 or 3 * prompts + padded <= budget


@pytest.mark.parametrize(
    ("flat", "dealt"),
    [
        ([], [[0, 2, 4], [1, 3, 5]]),
        ([1, 3, 5], [[0, 4], [2]]),
        ([0], [[1, 3, 5], [2, 4]]),
        ([0, 1, 2, 3, 4], [[5]]),
        ([0, 1, 2, 3, 4, 5], []),
    ],
)
def test_the_prompts_that_count_are_dealt_in_turn_whichever_are_left_out(
    flat: list[int], dealt: list[list[int]]
) -> None:
    groups = [group(p, [2, 3], [1.0, 1.0 if p in flat else 0.0]) for p in range(6)]
    batches = optimizer_batches(built(groups, drop_dead=True), count=2, skip_flat=True)
    assert [sorted({row.prompt for row in one.rows}) for one in batches] == dealt
