"""Loss and gradient of a step do not depend on how it is cut, padded or ordered: through the model, not the loss alone.

A step is drawn at random, and so is a budget, which decides the micro-batches: their number, who shares one, how far
each row is padded. The same rows in one pass, in order, are what it must equal.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_client.backends.torch.backend import TORCH_OPS
from grpo_client.backends.torch.forward import Logprobs, shared_logprobs, whole_logprobs
from grpo_client.learning.batch import Batch, CompletionRow, micro_batches
from grpo_client.learning.loss_inputs import Denominators, LossInputs
from grpo_client.learning.losses import LossConfig, make_loss
from tests.client.tiny import tiny_model

MODEL = tiny_model()
LOSSES = {
    "dapo": LossConfig(kl_coef=0.1),
    "grpo": LossConfig(aggregation="grpo", kl_coef=0.1, kl_estimator="k2"),
    "dr_grpo": LossConfig(aggregation="dr_grpo", ratio_cap=3.0),
    "gspo": LossConfig(aggregation="grpo", objective="gspo"),
    "cispo": LossConfig(objective="cispo", importance_correction="truncate"),
}
numbers = st.floats(-3, 0, width=32)
ids = st.integers(0, 259)


@st.composite
def steps(draw: st.DrawFn) -> Batch:
    opening = draw(st.lists(ids, max_size=20))
    prompts = [tuple(opening + draw(st.lists(ids, min_size=1, max_size=8))) for _ in range(draw(st.integers(1, 3)))]
    rows = []
    for p in range(len(prompts)):
        for g in range(draw(st.integers(1, 3))):
            token_ids = draw(st.lists(ids, min_size=1, max_size=12))
            arrays = [draw(st.lists(numbers, min_size=len(token_ids), max_size=len(token_ids))) for _ in range(3)]
            advantage = draw(st.sampled_from([-1.0, -0.25, 0.0, 0.5, 1.0]))
            rows.append(CompletionRow(p, g, token_ids, arrays[0], None, advantage, arrays[1], arrays[2]))
    lengths = [len(row.token_ids) for row in rows]
    return Batch(prompts, rows, Denominators.from_lengths(lengths, max_completion_length=12))


def padded(lists: list[list[float] | None], shape: torch.Size) -> torch.Tensor:
    array = torch.full(shape, torch.nan)  # what is under the mask must not matter
    for i, one in enumerate(lists):
        array[i, : len(one or ())] = torch.tensor(one)
    return array


def step_of(forward: Logprobs, parts: list[Batch], loss: LossConfig) -> tuple[float, torch.Tensor]:
    MODEL.zero_grad()
    total = 0.0
    for part in parts:
        logprobs, mask = forward(MODEL, part, temperature=0.7)
        inputs = LossInputs(
            logprobs=logprobs,
            advantages=torch.tensor([row.advantage for row in part.rows]),
            mask=mask,
            old_logprobs=padded([row.old_logprobs for row in part.rows], mask.shape),
            ref_logprobs=padded([row.ref_logprobs for row in part.rows], mask.shape),
            sampling_logprobs=padded([list(row.sampling_logprobs) for row in part.rows], mask.shape),
        )
        outputs = make_loss(loss)(TORCH_OPS, inputs, part.denominators)
        outputs.loss.backward()
        total += outputs.loss.item()
    return total, torch.cat([one.grad.flatten() for one in MODEL.parameters() if one.grad is not None])


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(step=steps(), budget=st.integers(1, 120), order=st.randoms(use_true_random=False))
def test_cut_padding_order_and_company_change_neither_loss_nor_gradient(
    name: str, step: Batch, budget: int, order: object
) -> None:
    rows = list(step.rows)
    order.shuffle(rows)  # type: ignore[attr-defined]
    whole_loss, whole = step_of(shared_logprobs, [step], LOSSES[name])
    for forward in (shared_logprobs, whole_logprobs):
        parts = micro_batches(step.having(rows), token_budget=budget)
        loss, gradient = step_of(forward, parts, LOSSES[name])
        assert loss == pytest.approx(whole_loss, rel=1e-4, abs=1e-5)
        scale = max(float(whole.norm()), 1e-2)
        assert float((gradient - whole).norm()) < 1e-3 * scale


def test_rows_of_advantage_0_add_nothing_without_kl() -> None:
    rows = [
        CompletionRow(0, g, [5 + g, 6, 7], [-1.0] * 3, None, advantage) for g, advantage in enumerate([1.0, 0.0, -1.0])
    ]
    step = Batch([(1, 2, 3)], rows, Denominators.from_lengths([3] * 3, max_completion_length=12))
    rows = [replace(row, old_logprobs=row.sampling_logprobs, ref_logprobs=row.sampling_logprobs) for row in rows]
    whole_loss, whole = step_of(shared_logprobs, [step.having(rows)], LOSSES["dr_grpo"])
    loss, gradient = step_of(shared_logprobs, [step.having([row for row in rows if row.advantage])], LOSSES["dr_grpo"])
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    torch.testing.assert_close(gradient, whole, atol=1e-5, rtol=1e-5)
