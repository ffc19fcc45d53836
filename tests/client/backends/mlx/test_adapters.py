"""Adapters in mlx-lm's format: what they learn, what they are compared with, and that mlx-lm takes them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest

from grpo_client.backends.mlx.backend import MlxBackend
from grpo_client.backends.mlx.trees import named
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.learning.losses import make_loss
from grpo_client.types import Sampling
from tests.client.backends.mlx.steps import PROMPTS, draw, in_order, step_batch

Settings = Callable[..., TrainConfig]
KINDS = [{"lora_rank": 4}, {"lora_rank": 4, "dora": True}]
GREEDY = Sampling(group_size=1, max_tokens=12, temperature=0.0)


def learnt(config: TrainConfig, steps: int = 3) -> MlxBackend:
    backend = MlxBackend(config)
    loss_fn = make_loss(config.loss_config())
    batch = backend.with_logprobs(step_batch(), old=True, ref=True)
    for _ in range(steps):
        assert backend.update(batch, loss_fn, learning_rate=0.02).applied
    return backend


def logprobs(backend: MlxBackend) -> tuple[list[float], list[float]]:
    """Of the policy and of the reference."""
    rows = in_order(backend.with_logprobs(step_batch(), old=True, ref=True)).rows
    return [x for row in rows for x in row.old_logprobs or ()], [x for row in rows for x in row.ref_logprobs or ()]


def greedy(model: Any, ids: tuple[int, ...], count: int) -> list[int]:
    """The likeliest tokens by mlx-lm's own generation."""
    network, tokenizer = model
    found = [step.token for step in mlx_lm.stream_generate(network, tokenizer, list(ids), max_tokens=count)]
    return found[:count]


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_of_a_fresh_adapter_is_the_model_under_it(kind: dict[str, Any], settings: Settings) -> None:
    config = settings(kl_coef=0.1, **kind)
    bare, _ = logprobs(MlxBackend(settings(kl_coef=0.1)))
    before = MlxBackend(config)
    policy, reference = logprobs(before)
    assert reference == bare
    assert policy == pytest.approx(bare, abs=1e-5)  # a DoRA divides by the norm that it multiplies with
    stats = before.update(
        before.with_logprobs(step_batch(), old=True, ref=True), make_loss(config.loss_config()), learning_rate=1e-3
    )
    assert stats.metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    policy, reference = logprobs(learnt(config))
    assert reference == bare
    assert np.abs(np.subtract(policy, bare)).max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_adapter_learns(kind: dict[str, Any], settings: Settings) -> None:
    before = dict(named(MlxBackend(settings(kl_coef=0.1, **kind)).model.parameters()))
    moved = {
        name
        for name, one in named(learnt(settings(kl_coef=0.1, **kind)).model.parameters())
        if not mx.array_equal(one, before[name])
    }
    assert {name.rsplit(".", 1)[1] for name in moved} == {"lora_a", "lora_b"} | ({"m"} if "dora" in kind else set())
    assert {name.split(".")[3] for name in moved} == {"self_attn", "mlp"}


def test_targets_name_the_layers_that_are_adapted(settings: Settings) -> None:
    backend = MlxBackend(settings(lora_rank=2, lora_targets=("q_proj", "mlp.up_proj")))
    names = {name.split(".", 3)[3] for name, _ in named(backend.model.trainable_parameters())}
    assert names == {f"{layer}.lora_{x}" for layer in ("self_attn.q_proj", "mlp.up_proj") for x in "ab"}


@pytest.mark.parametrize("kind", KINDS)
def test_mlx_lm_loads_and_fuses_what_was_saved(kind: dict[str, Any], settings: Settings, tmp_path: Path) -> None:
    config = settings(kl_coef=0.1, **kind)
    backend = learnt(config)
    backend.save(tmp_path / "adapter")
    want = {index: group[0].token_ids for index, group in draw(backend, GREEDY).items()}
    assert want != {index: group[0].token_ids for index, group in draw(MlxBackend(settings()), GREEDY).items()}
    loaded = mlx_lm.load(config.model, adapter_path=str(tmp_path / "adapter"))
    fused = str(tmp_path / "fused")
    command = ["-m", "mlx_lm", "fuse", "--model", config.model, "--adapter-path", str(tmp_path / "adapter")]
    subprocess.run([sys.executable, *command, "--save-path", fused], check=True, capture_output=True, timeout=120)
    for model in (loaded, mlx_lm.load(fused)):
        for one in PROMPTS:
            assert greedy(model, one.token_ids, len(want[one.index])) == want[one.index]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_learns_on_a_quantised_model(
    bits: int, kind: dict[str, Any], quantised: Callable[[int], str], settings: Settings, tmp_path: Path
) -> None:
    config = settings(model=quantised(bits), kl_coef=0.1, **kind)
    _, start = logprobs(MlxBackend(config))
    backend = learnt(config)
    policy, reference = logprobs(backend)
    assert reference == start
    assert np.abs(np.subtract(policy, reference)).max() > 1e-2
    kept = dict(named(backend.model.parameters()))
    assert kept["model.layers.0.mlp.up_proj.linear.weight"].dtype == mx.uint32
    backend.save(tmp_path)
    want = draw(backend, GREEDY)
    loaded = mlx_lm.load(config.model, adapter_path=str(tmp_path), model_config={})
    loaded[0].set_dtype(mx.float32)
    for one in PROMPTS:
        ids = want[one.index][0].token_ids
        assert greedy(loaded, one.token_ids, len(ids)) == ids


def test_quantised_weights_are_not_trained_themselves(quantised: Callable[[int], str], settings: Settings) -> None:
    with pytest.raises(ConfigError, match="--lora-rank"):
        MlxBackend(settings(model=quantised(4)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_continued_adapter_is_its_own_reference(kind: dict[str, Any], settings: Settings, tmp_path: Path) -> None:
    first = learnt(settings(kl_coef=0.1, **kind))
    first.save(tmp_path / "first")
    trained, _ = logprobs(first)
    config = settings(kl_coef=0.1, adapter=tmp_path / "first")
    policy, reference = logprobs(MlxBackend(config))
    assert policy == trained
    assert reference == trained
    second = learnt(config)
    policy, reference = logprobs(second)
    assert reference == trained
    assert policy != trained
    second.save(tmp_path / "second")
    one, other = (json.loads((tmp_path / name / "adapter_config.json").read_text()) for name in ("first", "second"))
    assert one == other


def test_an_adapter_of_another_model_is_refused(
    settings: Settings, saved: Callable[[str], str], tmp_path: Path
) -> None:
    MlxBackend(settings(model=saved("qwen3"), lora_rank=2)).save(tmp_path)
    with pytest.raises(ConfigError, match="no adapter of mlx-lm for this model"):
        MlxBackend(settings(adapter=tmp_path))
