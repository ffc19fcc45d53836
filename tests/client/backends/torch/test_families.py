"""Every family of causal language models that transformers can build: right, or refused with the reason.

`families.json` holds a tiny configuration of each, with windows, caps and scales small enough to matter. A model gets
the way that is chosen for it, and its numbers are held to `model(ids).logits` of each row alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from grpo_client.backends.torch.attention import use_blocks
from grpo_client.backends.torch.matmul import use_onednn
from grpo_client.backends.torch.ways import (
    SHARED,
    UNCACHED,
    WHOLE,
    Row,
    Way,
    check_lengths,
    choose_way,
    drawn_rows,
    fault_of,
    long_rows,
)
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt, Sampling
from tests.client.backends.torch.test_forward import gradients, logprobs_by, plain_row

FAMILIES = json.loads(Path(__file__).with_name("families.json").read_text())
LATER = {"granitemoehybrid_attn"}  # transformers itself refuses this configuration
MOVING = {"llama_dynamic_rope", "phi3_longrope"}  # positions depend on the length of the pass
PROMPTS = [[5, 6, 7, *range(10, 40)], [5, 6, 7, 8, 9], [9, 8, 7, 30, 31, 32, 33, 34]]
ROWS = [(0, [4, 5, 6]), (0, [*range(40, 60)]), (1, [8, 9]), (2, [*range(40, 52)])]
TEMPERATURE = 0.7


def family(name: str) -> PreTrainedModel:
    """A tiny model of the family, its matrices drawn wide enough that a wrong scale or window shows."""
    told = FAMILIES["families"][name]
    settings = {key: value for key, value in FAMILIES["base"].items() if key not in told["drop"]} | told["set"]
    torch.manual_seed(0)
    config = getattr(transformers, told["config"])(**settings)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() >= 2:
                weight.normal_(0, 0.2)
    model.eval()
    return model


def prompts(*token_ids: list[int]) -> list[Prompt]:
    return [Prompt(place, [], tuple(ids), "") for place, ids in enumerate(token_ids)]


LARGE = {"inkling", "gemma4_text"}  # their tables of embeddings have a size of their own
NAMES = sorted(FAMILIES["families"].keys() - LATER - MOVING)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in NAMES]
)
def test_sampler_and_trainer_give_what_the_model_s_own_forward_gives(name: str) -> None:
    model = family(name)
    alone = [plain_row(model, PROMPTS[place], ids) for place, ids in ROWS]
    want = gradients(model, alone)
    use_onednn(model)
    use_blocks(model)
    way, _ = choose_way(model, drawn_rows(model))
    check_lengths(model, long_rows(prompts(*PROMPTS), completion=12))

    together = logprobs_by(way.logprobs, model, PROMPTS, ROWS)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)
    scale = float(want.abs().max())
    torch.testing.assert_close(gradients(model, together) / scale, want / scale, atol=1e-3, rtol=0)

    sampling = Sampling(group_size=2, max_tokens=8, temperature=TEMPERATURE, rows=4)
    sampled = way.sample(model, prompts(*PROMPTS), sampling, stop_ids=frozenset(range(0, 260, 7)))
    for place, group in sampled:
        for rollout in group:
            own = plain_row(model, PROMPTS[place], rollout.token_ids)
            torch.testing.assert_close(torch.tensor(rollout.sampling_logprobs), own, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", sorted(MOVING))
def test_a_model_whose_earlier_tokens_move_as_a_row_grows_is_refused_past_that_length_only(name: str) -> None:
    model = family(name)
    choose_way(model, drawn_rows(model)[:1])
    check_lengths(model, long_rows(prompts(PROMPTS[1]), completion=12))
    with pytest.raises(ConfigError, match=r"computes earlier tokens anew as a row grows to 45 tokens .*rope scaling"):
        check_lengths(model, long_rows(prompts(PROMPTS[1]), completion=40))


def test_rows_beyond_learned_positions_are_refused() -> None:
    model = family("gpt2")
    check_lengths(model, long_rows(prompts(PROMPTS[1]), completion=500))
    with pytest.raises(ConfigError, match="rows may have 605 tokens, and this model's positions end at 512: lower"):
        check_lengths(model, long_rows(prompts(PROMPTS[1]), completion=600))


@pytest.mark.parametrize(("name", "way"), [("qwen3_moe", None), ("lfm2", WHOLE), ("gemma3n_text", WHOLE)])
def test_a_slower_way_is_said_with_its_reason(name: str, way: Any) -> None:
    model = family(name)
    chosen, note = choose_way(model, drawn_rows(model))
    assert (way is None) == (note is None)
    if way is not None:
        assert chosen is way
        assert note is not None
        assert way.name in note
        assert "prompts shared by their completions: " in note


@pytest.mark.parametrize("name", ["arcee", "lfm2", "deepseek_v3"])
def test_sampling_without_a_cache_is_right_too(name: str) -> None:
    model = family(name)
    assert fault_of(UNCACHED, model, drawn_rows(model)) is None


def test_a_way_that_no_longer_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose logits its passes do not give: every way differs, and its name and each gap are said."""
    model = family("arcee")
    forward = model.forward

    def other(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        output.logits = output.logits * torch.linspace(1.0, 2.0, output.logits.shape[1])[None, :, None]
        return output

    monkeypatch.setattr(model, "forward", other)
    with pytest.raises(ConfigError, match=r"ArceeForCausalLM: no way to run it .* differ by"):
        choose_way(model, drawn_rows(model))


def test_weights_that_are_not_finite_are_said_as_that() -> None:
    model = family("arcee")
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    with pytest.raises(ConfigError, match="the logits of this ArceeForCausalLM are not finite: its weights are broken"):
        choose_way(model, drawn_rows(model))


@pytest.mark.parametrize("row", [0, 1])
def test_a_way_that_gives_nan_in_any_row_is_none(row: int) -> None:
    model = family("arcee")

    def spoilt(*args: Any, **kwargs: Any) -> Any:
        logprobs, mask = SHARED.logprobs(*args, **kwargs)
        logprobs[row, -1] = float("nan")
        return logprobs, mask

    rows = drawn_rows(model)
    even = [Row(one.prompt, one.completion[:9]) for one in rows]
    assert fault_of(Way("spoilt", spoilt, SHARED.sample), model, even) == "logprobs differ by nan"
