"""Attention in blocks gives the numbers of attention written down plainly, in float64, gradients included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_client.backends.torch import attention as torch_attention
from grpo_client.backends.torch.attention import (
    BlockAttention,
    SharedStates,
    attention,
    has_windows,
    segments,
    shares_in_blocks,
    use_blocks,
)
from tests.client.tiny import ARCHITECTURES, tiny_model

SCALE = 0.3
SIZE, OF_VALUES = 8, 5

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")


def plainly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """softmax(q k / scale) v, (B, H, T, d), over keys (B, h, S, d) that `seen` (B, T, S) lets each query see."""
    k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for one in (k, v))
    scores = (q @ k.transpose(2, 3) * SCALE).masked_fill(~seen[:, None], -torch.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v


def padded(lengths: list[int], *, on_the_left: bool) -> torch.Tensor:
    places = torch.arange(max(lengths)).expand(len(lengths), -1)
    ends = torch.tensor(lengths)[:, None]
    return (places >= max(lengths) - ends if on_the_left else places < ends).long()


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], int]:
    """Lengths of prompts; of each row its prompt and its own length, in order; on which side rows are padded."""
    prompts = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(st.integers(0, len(prompts) - 1), st.integers(0, 9)), min_size=1, max_size=5))
    rows.sort()
    return prompts, [prompt for prompt, _ in rows], [length for _, length in rows], draw(st.integers(0, 1))


@pytest.mark.parametrize(("queries", "scores", "row_by_row"), [(256, 1 << 20, 1 << 15), (3, 40, 0), (2, 1, 1 << 15)])
@settings(max_examples=40, deadline=None)
@given(case=passes(), heads=st.sampled_from([(4, 2), (2, 2), (3, 1)]), seed=st.integers(0, 999))
def test_blocks_of_any_size_give_what_plain_attention_gives(
    queries: int,
    scores: int,
    row_by_row: int,
    case: tuple[list[int], list[int], list[int], int],
    heads: tuple[int, int],
    seed: int,
) -> None:
    prompts, prompt_of, own, left = case
    torch.manual_seed(seed)
    width, before = max(own), max(prompts)
    mask, prompt_mask = padded(own, on_the_left=bool(left)), padded(prompts, on_the_left=True)
    of = torch.tensor(prompt_of)
    shapes = [
        (len(own), heads[0], width, SIZE),
        *[(len(own), heads[1], width, size) for size in (SIZE, OF_VALUES)],
        *[(len(prompts), heads[1], before, size) for size in (SIZE, OF_VALUES)],
    ]
    arrays = [torch.randn(shape) for shape in shapes]
    above = torch.randn(len(own), heads[0], width, OF_VALUES) * mask[:, None, :, None]

    exact = [one.double().requires_grad_() for one in arrays]
    q, k, v, prompt_k, prompt_v = exact
    seen = torch.cat(
        [
            prompt_mask[of][:, None, :].expand(-1, width, -1).bool(),
            mask[:, None, :].bool() & torch.ones(width, width, dtype=torch.bool).tril(),
        ],
        dim=2,
    )
    want = plainly(q, torch.cat([prompt_k[of], k], dim=2), torch.cat([prompt_v[of], v], dim=2), seen)
    want.backward(above.double())

    blocks = [one.clone().requires_grad_() for one in arrays]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_attention, "_QUERIES", queries)
        patch.setattr(torch_attention, "_SCORES", scores)
        patch.setattr(torch_attention, "_ROW_BY_ROW", row_by_row)
        got = BlockAttention.apply(*blocks, segments(mask, of, prompt_mask), SCALE)
        got.backward(above)
    real = mask[:, None, :, None].bool()
    torch.testing.assert_close(got * real, (want * real).float(), atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(blocks, exact, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad.float(), atol=1e-4, rtol=1e-4)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_takes_to_blocks_unless_a_layer_has_a_window(name: str, tmp_path: Path) -> None:
    model = tiny_model(ARCHITECTURES[name]())
    use_blocks(model)
    assert shares_in_blocks(model) is not has_windows(model)
    model.save_pretrained(tmp_path)
    assert "hallmark" not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize("option", ["softcap", "s_aux"])
def test_a_model_that_wants_more_of_attention_is_refused(option: str) -> None:
    x = torch.randn(1, 2, 3, 4)
    states = SharedStates(x[:, :, :0], x, segments(torch.ones(1, 3), torch.tensor([0]), torch.ones(1, 0)))
    assert attention(torch.nn.Module(), x, states, states, None, softcap=None)[0].shape == (1, 3, 2, 4)
    with pytest.raises(ValueError, match=option):
        attention(torch.nn.Module(), x, states, states, None, **{option: 30.0})


def test_blocks_are_for_float32_on_a_cpu() -> None:
    model = tiny_model()
    use_blocks(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not shares_in_blocks(model)
    assert shares_in_blocks(model)
    assert not shares_in_blocks(model.to(torch.bfloat16))  # type: ignore[arg-type]
