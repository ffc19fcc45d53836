"""The pass that runs each prompt once gives the numbers of one that runs every row whole, gradients included."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from grpo_client.backends import torch_forward
from grpo_client.backends.torch_forward import completion_logprobs, run_prompts, shared_prefix_length
from tests.client.tiny import tiny_model

TEMPERATURE = 0.7


def plain_logprobs(model: PreTrainedModel, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """Of one row, alone, without cache, padding or mask."""
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].float() / TEMPERATURE
    chosen = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return chosen.gather(-1, torch.tensor(completion)[:, None])[:, 0]


def shared_logprobs(
    model: PreTrainedModel, prompts: list[list[int]], rows: list[tuple[int, list[int]]]
) -> list[torch.Tensor]:
    prefix = run_prompts(model, prompts).select(torch.tensor([place for place, _ in rows]))
    logprobs, mask = completion_logprobs(model, prefix, [ids for _, ids in rows], temperature=TEMPERATURE)
    assert mask.sum(1).tolist() == [len(ids) for _, ids in rows]
    return [one[: len(ids)] for one, (_, ids) in zip(logprobs, rows, strict=True)]


def gradients(model: PreTrainedModel, logprobs: list[torch.Tensor]) -> torch.Tensor:
    model.zero_grad()
    sum(((i + 1) * one).sum() for i, one in enumerate(logprobs)).backward()  # type: ignore[union-attr]
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


token = st.integers(0, 259)
tokens = st.lists(token, min_size=1, max_size=12)


@st.composite
def step(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[int, list[int]]]]:
    opening = draw(st.lists(token, max_size=24))
    prompts = [opening + own for own in draw(st.lists(tokens, min_size=1, max_size=3))]
    rows = draw(st.lists(st.tuples(st.integers(0, len(prompts) - 1), tokens), min_size=1, max_size=5))
    return prompts, rows


@settings(max_examples=25, deadline=None)
@given(step())
def test_logprobs_and_gradients_are_those_of_plain_passes(
    case: tuple[list[list[int]], list[tuple[int, list[int]]]],
) -> None:
    prompts, rows = case
    model = tiny_model()
    plain = [plain_logprobs(model, prompts[place], ids) for place, ids in rows]
    shared = shared_logprobs(model, prompts, rows)
    for one, other in zip(plain, shared, strict=True):
        torch.testing.assert_close(other, one, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(gradients(model, shared), gradients(model, plain), atol=2e-3, rtol=2e-4)


def test_logits_in_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts, rows = tiny_model(), [[1, 2, 3]], [(0, [4, 5, 6]), (0, [7])]
    whole = shared_logprobs(model, prompts, rows)
    whole_gradients = gradients(model, whole)
    monkeypatch.setattr(torch_forward, "LOGITS_CHUNK_ELEMENTS", 2 * 260)
    chunked = shared_logprobs(model, prompts, rows)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(gradients(model, chunked), whole_gradients, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("prompts", "shared"),
    [
        ([[1] * 30], 0),
        ([[1] * 30, [1] * 30], 29),
        ([[1] * 30 + [2], [1] * 30 + [3]], 30),
        ([[1] * 30 + [2, 5], [1] * 30], 29),
        ([[1] * 10 + [2], [1] * 10 + [3]], 0),
        ([[1, 2], [3, 4]], 0),
    ],
)
def test_what_all_prompts_share_leaves_each_a_token_of_its_own(prompts: list[list[int]], shared: int) -> None:
    assert shared_prefix_length(prompts) == shared
