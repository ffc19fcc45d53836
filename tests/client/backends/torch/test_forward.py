"""The pass that runs each prompt once gives the numbers of one that runs every row whole, gradients included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel, Qwen3NextConfig

from grpo_client.backends.torch import forward as torch_forward
from grpo_client.backends.torch import head as torch_head
from grpo_client.backends.torch.attention import shares_in_blocks, use_blocks
from grpo_client.backends.torch.backend import checkpoint_layers
from grpo_client.backends.torch.forward import (
    Logprobs,
    shared_logprobs,
    shared_prefix_length,
    whole_logprobs,
)
from grpo_client.backends.torch.sampling import sample_groups
from grpo_client.backends.torch.ways import SHARED, WHOLE, choose_way, drawn_rows
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.types import Prompt, Sampling
from tests.client.tiny import ARCHITECTURES, SMALL, tiny_model

TEMPERATURE = 0.7


@pytest.fixture(autouse=True, scope="module")
def short_beginnings_are_shared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_forward, "_SHARING_PAYS", 16)
        yield


def plain_row(model: PreTrainedModel, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """Of one row, alone, without cache, padding or mask."""
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].float() / TEMPERATURE
    chosen = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return chosen.gather(-1, torch.tensor(completion)[:, None])[:, 0]


def as_batch(prompts: list[list[int]], rows: list[tuple[int, list[int]]]) -> Batch:
    made = [CompletionRow(place, g, ids, [0.0] * len(ids), None, advantage=1.0) for g, (place, ids) in enumerate(rows)]
    counts = Denominators.from_lengths([len(ids) for _, ids in rows], max_completion_length=99)
    return Batch([tuple(prompt) for prompt in prompts], made, counts)


def logprobs_by(
    forward: Logprobs, model: PreTrainedModel, prompts: list[list[int]], rows: list[tuple[int, list[int]]]
) -> list[torch.Tensor]:
    logprobs, mask = forward(model, as_batch(prompts, rows), temperature=TEMPERATURE)
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


def by_blocks(model: PreTrainedModel) -> PreTrainedModel:
    """A model whose attention runs in blocks."""
    use_blocks(model)
    assert shares_in_blocks(model) is torch.backends.mkldnn.is_available()
    return model


@pytest.mark.parametrize(
    ("forward", "blocks"), [(shared_logprobs, False), (shared_logprobs, True), (whole_logprobs, False)]
)
@settings(max_examples=25, deadline=None)
@given(case=step())
def test_logprobs_and_gradients_are_those_of_each_row_alone(
    forward: Logprobs, blocks: bool, case: tuple[list[list[int]], list[tuple[int, list[int]]]]
) -> None:
    prompts, rows = case
    model = by_blocks(tiny_model()) if blocks else tiny_model()
    alone = [plain_row(model, prompts[place], ids) for place, ids in rows]
    together = logprobs_by(forward, model, prompts, rows)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other, one, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(gradients(model, together), gradients(model, alone), atol=2e-3, rtol=2e-4)


PROMPTS = [[1, 2, 3, *range(30)], [1, 2, 3, *range(18), 9], [5, 6]]
ROWS = [(0, [4, 5, 6]), (0, [7]), (1, [8, 9]), (2, list(range(40, 52)))]


def test_logits_in_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    whole = logprobs_by(shared_logprobs, model, PROMPTS, ROWS)
    whole_gradients = gradients(model, whole)
    monkeypatch.setattr(torch_head, "CHUNK_ELEMENTS", 2 * 260)
    chunked = logprobs_by(shared_logprobs, model, PROMPTS, ROWS)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(gradients(model, chunked), whole_gradients, atol=1e-4, rtol=1e-4)


def test_the_head_s_own_gradient_is_autograd_s() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(7, 5, dtype=torch.float64), torch.randn(11, 5, dtype=torch.float64)
    ids = torch.randint(0, 11, (7,))
    inputs = (hidden.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda h, w: torch_head.SelectedLogprobs.apply(h, w, ids, 3), inputs)


@pytest.mark.parametrize("blocks", [False, True])
def test_checkpointed_layers_change_nothing(blocks: bool) -> None:
    model = by_blocks(tiny_model()) if blocks else tiny_model()
    kept = logprobs_by(shared_logprobs, model, PROMPTS, ROWS)
    kept_gradients = gradients(model, kept)
    checkpoint_layers(model)
    again = logprobs_by(shared_logprobs, model, PROMPTS, ROWS)
    torch.testing.assert_close(gradients(model, again), kept_gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_shares_prompts_and_gives_the_numbers_of_each_row_alone(name: str) -> None:
    """Unequal prompts, longer than any window, in one batch; the sampler's numbers too."""
    model = tiny_model(ARCHITECTURES[name]())
    assert choose_way(model, drawn_rows(model)) == (SHARED, None)
    alone = [plain_row(model, PROMPTS[place], ids) for place, ids in ROWS]
    want = gradients(model, alone)
    ways = [(shared_logprobs, False), (whole_logprobs, False), (shared_logprobs, True), (whole_logprobs, True)]
    for way, blocks in ways:
        if blocks:
            use_blocks(model)  # where a layer has a window, nothing changes
        together = logprobs_by(way, model, PROMPTS, ROWS)
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close(other, one, atol=5e-5, rtol=5e-5)
        torch.testing.assert_close(gradients(model, together), want, atol=2e-3, rtol=1e-3)
    sampling = Sampling(group_size=3, max_tokens=10, temperature=TEMPERATURE, rows=6)
    prompts = [Prompt(i, [], tuple(ids), "7") for i, ids in enumerate(PROMPTS)]
    for place, group in sample_groups(model, prompts, sampling, stop_ids=frozenset(range(0, 260, 5))):
        for rollout in group:
            got = plain_row(model, PROMPTS[place], rollout.token_ids)
            torch.testing.assert_close(torch.tensor(rollout.sampling_logprobs), got, atol=5e-5, rtol=5e-5)


def test_a_model_that_keeps_more_than_keys_runs_every_row_whole_and_says_so() -> None:
    config = Qwen3NextConfig(
        **(SMALL | {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "num_experts": 4}),
        linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, head_dim=8,
        num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
    )  # fmt: skip
    model = tiny_model(config)
    way, note = choose_way(model, drawn_rows(model))
    assert way is WHOLE
    assert note is not None
    assert "prompts shared by their completions: " in note


@pytest.mark.parametrize(
    ("prompts", "shared"),
    [
        ([[1] * 300], 0),
        ([[1] * 30, [1] * 30], 29),
        ([[1] * 30 + [2], [1] * 30 + [3]], 30),
        ([[1] * 30 + [2, 5], [1] * 30], 29),
        ([[1] * 10 + [2], [1] * 10 + [3]], 0),
        ([[1] * 10 + [2], [1] * 10 + [3], [1] * 10], 9),
        ([[1, 2], [3, 4]], 0),
    ],
)
def test_what_all_prompts_share_leaves_each_a_token_of_its_own(prompts: list[list[int]], shared: int) -> None:
    assert shared_prefix_length(prompts) == shared
