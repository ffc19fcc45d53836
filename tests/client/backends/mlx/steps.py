"""What tests of the MLX backend share: a batch to learn from, and prompts to sample from."""

from __future__ import annotations

from grpo_client.backends.base import Backend
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.types import Prompt, Rollout, Sampling

SAMPLING = Sampling(group_size=4, max_tokens=12, temperature=0.7, seed=3, step=5)
STOPS = frozenset(range(0, 260, 7))  # many, so that rows end at many lengths
NARROWED = [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 20, "top_p": 0.8, "min_p": 0.05}]


def prompt(index: int, *ids: int) -> Prompt:
    return Prompt(index, [], ids, "7")


PROMPTS = [prompt(0, 1, 2, 3), prompt(1, 9), prompt(2, *range(40)), prompt(3, *range(39), 77)]


def step_batch() -> Batch:
    """Rows of three prompts, of many lengths, with advantages of both signs."""
    given = [
        (0, [5, 6, 7], 1.0), (0, [8], -1.0), (1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.5), (2, [3, 4], 0.3),
        (2, [3, 4, 200], -0.7),
    ]  # fmt: skip
    rows = [
        CompletionRow(place, g, ids, [0.0] * len(ids), None, advantage)
        for g, (place, ids, advantage) in enumerate(given)
    ]
    return batch_of(rows)


def batch_of(rows: list[CompletionRow]) -> Batch:
    counts = Denominators.from_lengths([len(row.token_ids) for row in rows], max_completion_length=99)
    return Batch([(1, 2, 3), (9,), tuple(range(40))], rows, counts)


def in_order(batch: Batch) -> Batch:
    """Rows as they were before micro-batches put them in an order of their own."""
    return batch.having(sorted(batch.rows, key=lambda row: (row.prompt, row.completion)))


def draw(backend: Backend, sampling: Sampling = SAMPLING, prompts: list[Prompt] = PROMPTS) -> dict[int, list[Rollout]]:
    """Groups by the index of their prompt."""
    return {prompts[place].index: rollouts for place, rollouts in backend.sample(prompts, sampling)}


def ids_of(groups: dict[int, list[Rollout]]) -> dict[int, list[list[int]]]:
    return {index: [one.token_ids for one in rollouts] for index, rollouts in groups.items()}
