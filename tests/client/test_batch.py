"""Rows that count, denominators of the whole step, and parts that fit a budget."""

from __future__ import annotations

import pytest

from grpo_client.advantages import group_advantages
from grpo_client.batch import build_batch, micro_batches
from grpo_client.types import Group, Prompt, Rollout, Scores


def group(index: int, lengths: list[int], totals: list[float | None]) -> Group:
    rollouts = [Rollout([7] * n, [-1.0] * n, "stop") for n in lengths]
    return Group(Prompt(index, [], (1, 2, 3), "7"), rollouts, [""] * len(lengths), Scores(totals, {}, {}))


GROUPS = [group(0, [5, 1, 0], [1.0, None, 0.0]), group(1, [2, 3, 4], [0.5, 0.5, 0.5])]


def test_unscored_and_empty_completions_are_in_no_row_and_no_denominator() -> None:
    advantages = group_advantages([one.scores.totals for one in GROUPS], scale="group")
    batch = build_batch(GROUPS, advantages, max_completion_length=8)
    assert [(row.prompt, len(row.token_ids)) for row in batch.rows] == [(0, 5), (1, 2), (1, 3), (1, 4)]
    assert (batch.denominators.rows, batch.denominators.tokens) == (4, 14)
    assert [row.advantage for row in batch.rows][1:] == [0.0, 0.0, 0.0]


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
