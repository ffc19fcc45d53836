"""Processes that share a run: every rank knows every group, and each learns from rows of its own."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.ranks import Alone, all_groups, anyone, own_places, own_rows
from grpo_client.types import Group, Prompt, Rollout, Scores


class Threads:
    """Ranks that are threads of this process."""

    def __init__(self, rank: int, size: int, messages: list[bytes], barrier: Barrier) -> None:
        self.rank, self.size, self._messages, self._barrier = rank, size, messages, barrier

    def gather(self, own: bytes) -> list[bytes]:
        self._messages[self.rank] = own
        self._barrier.wait(10)
        heard = list(self._messages)
        self._barrier.wait(10)
        return heard


def ranks_of(size: int) -> list[Threads]:
    messages, barrier = [b""] * size, Barrier(size)
    return [Threads(rank, size, messages, barrier) for rank in range(size)]


def group(prompt: Prompt, *, kept: bool) -> Group:
    ids = [np.array([1, 2, prompt.index], np.int32)] if kept else None
    rollouts = [Rollout([prompt.index], [-0.1 / 3 - prompt.index], "stop", ids), Rollout([], [], "length", None)]
    scores = Scores([1 / 3, None], {"a": [1 / 3, None]}, {"a": ["scored", "timeout"]})
    return Group(prompt, rollouts, ["é\u2028", ""], scores)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("prompts", [1, 2, 5])
@pytest.mark.parametrize("kept", [False, True])
def test_every_rank_knows_every_group_exactly_and_in_order(size: int, prompts: int, kept: bool) -> None:
    asked = [Prompt(10 + i, [], (1,), "7") for i in range(prompts)]
    whole = [group(prompt, kept=kept) for prompt in asked]

    def one(ranks: Threads) -> list[Group]:
        own = {place: whole[place] for place in own_places(ranks, prompts)}
        return all_groups(ranks, own, asked)

    with ThreadPoolExecutor(size) as pool:
        for found in pool.map(one, ranks_of(size)):
            assert [json.dumps(str(one)) for one in found] == [json.dumps(str(one)) for one in whole]


@given(st.integers(1, 5), st.integers(0, 12))
def test_prompts_and_rows_are_shared_out_without_overlap(size: int, count: int) -> None:
    rows = [CompletionRow(place, 0, [1], [0.0], None, 1.0) for place in range(count)]
    batch = Batch([(1,)] * count, rows, Denominators.from_lengths([1] * count, max_completion_length=1))
    shares = ranks_of(size)
    assert sorted(place for one in shares for place in own_places(one, count)) == list(range(count))
    for one in shares:
        own = own_rows(one, batch)
        assert [row.prompt for row in own.rows] == list(own_places(one, count))
        assert own.denominators == batch.denominators


def test_one_rank_that_wants_to_stop_stops_all() -> None:
    ranks = ranks_of(2)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(anyone, ranks, [False, True])) == [True, True]
        assert list(pool.map(anyone, ranks, [False, False])) == [False, False]
    assert anyone(Alone(), True)
    assert not anyone(Alone(), False)
