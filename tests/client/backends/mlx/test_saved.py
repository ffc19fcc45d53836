"""What is saved is what was trained: for mlx-lm, for transformers, and for a run that goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
import torch
from mlx.utils import tree_flatten
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_client.backends.mlx.backend import MlxBackend
from grpo_client.backends.mlx.optimizer import STATE_FILE
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.learning.losses import make_loss
from tests.client.backends.mlx.conftest import MODELS
from tests.client.backends.mlx.steps import PROMPTS, SAMPLING, draw, step_batch
from tests.client.backends.mlx.test_adapters import GREEDY, KINDS, greedy, learnt

Settings = Callable[..., TrainConfig]


@pytest.mark.parametrize("name", MODELS)
def test_mlx_lm_and_transformers_read_a_saved_model_and_write_the_same_text(
    name: str, settings: Settings, saved: Callable[[str], str], tmp_path: Path
) -> None:
    backend = learnt(settings(model=saved(name), kl_coef=0.1))
    backend.save(tmp_path)
    want = {index: group[0].token_ids for index, group in draw(backend, GREEDY).items()}
    loaded = mlx_lm.load(str(tmp_path))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    again = MlxBackend(settings(model=str(tmp_path)))
    for one in PROMPTS:
        ids = want[one.index]
        assert greedy(loaded, one.token_ids, len(ids)) == ids
        prompt = torch.tensor([one.token_ids])
        made = theirs.generate(prompt, do_sample=False, max_new_tokens=len(ids), attention_mask=torch.ones_like(prompt))
        assert made[0, len(one.token_ids) :].tolist() == ids
        assert draw(again, GREEDY, [one])[one.index][0].token_ids == ids
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == backend.tokenizer.chat_template
    assert theirs.generation_config.eos_token_id == 256


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, *KINDS])
def test_a_resumed_backend_takes_the_same_steps_to_the_bit(
    options: dict[str, Any], settings: Settings, tmp_path: Path
) -> None:
    config = settings(kl_coef=0.1, weight_decay=0.1, **options)
    loss_fn = make_loss(config.loss_config())

    def step(backend: MlxBackend, rate: float) -> Any:
        batch = backend.with_logprobs(step_batch(), old=True, ref=True)
        stats = backend.update(batch, loss_fn, learning_rate=rate)
        return stats, draw(backend, replace(SAMPLING, step=1))

    through = MlxBackend(config)
    for rate in (1e-3, 2e-3):
        step(through, rate)
    through.save(tmp_path)
    through.save_state(tmp_path)
    resumed = MlxBackend(config)
    assert resumed.fingerprint == through.fingerprint
    resumed.load_state(tmp_path)
    for rate in (3e-3, 1e-3):
        (stats, samples), (same, same_samples) = step(through, rate), step(resumed, rate)
        assert stats == same
        assert samples == same_samples
    ours, theirs = (dict(tree_flatten(one.model.parameters())) for one in (through, resumed))
    assert all(mx.array_equal(one, theirs[name]) for name, one in ours.items())


def test_state_of_another_model_is_refused(settings: Settings, saved: Callable[[str], str], tmp_path: Path) -> None:
    other = MlxBackend(settings(model=saved("qwen3")))
    other.save(tmp_path)
    other.save_state(tmp_path)
    backend = MlxBackend(settings())
    with pytest.raises(ConfigError, match="belongs to another model"):
        backend.load_state(tmp_path)
    (tmp_path / STATE_FILE).write_bytes(b"cut short")
    with pytest.raises(ConfigError, match="cannot be read"):
        backend.load_state(tmp_path)
    with pytest.raises(ConfigError, match="holds no adapters"):
        MlxBackend(settings(lora_rank=2)).load_state(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_os_error(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for options in ({}, {"lora_rank": 2}):
        with pytest.raises(OSError, match="file"):
            MlxBackend(settings(**options)).save(tmp_path / "file")
    with pytest.raises(OSError, match=STATE_FILE):
        MlxBackend(settings()).save_state(tmp_path / "nowhere")


def test_fingerprints_tell_models_apart_and_not_adapters(settings: Settings, saved: Callable[[str], str]) -> None:
    llama = MlxBackend(settings()).fingerprint
    assert MlxBackend(settings(lora_rank=2)).fingerprint == llama
    assert MlxBackend(settings(model=saved("qwen3"))).fingerprint != llama
    assert learnt(settings(kl_coef=0.1)).fingerprint == llama
    assert np.isfinite(MlxBackend(settings()).peak_memory_gb())
