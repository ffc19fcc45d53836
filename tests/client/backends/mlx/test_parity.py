"""MLX and PyTorch on the same weights, tokens and noise: the same logprobs, gradients, steps and samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from grpo_client.backends.mlx.backend import MLX_OPS, MlxBackend
from grpo_client.backends.mlx.forward import plain_logprobs, shared_logprobs
from grpo_client.backends.mlx.head import cut_model
from grpo_client.backends.mlx.models import load_model
from grpo_client.backends.mlx.trees import named
from grpo_client.backends.torch.backend import TORCH_OPS, TorchBackend
from grpo_client.backends.torch.forward import shared_logprobs as torch_logprobs
from grpo_client.config import TrainConfig
from grpo_client.learning.batch import Batch
from grpo_client.learning.loss_inputs import LossInputs
from grpo_client.learning.losses import LossFn, make_loss
from tests.client.backends.mlx.conftest import MODELS
from tests.client.backends.mlx.steps import NARROWED, SAMPLING, draw, ids_of, in_order, step_batch
from tests.client.tiny import ARCHITECTURES, tiny_model, tiny_tokenizer

Settings = Callable[..., TrainConfig]
LOSSES = [
    {"loss": "dapo"},
    {"loss": "grpo"},
    {"loss": "dr_grpo"},
    {"loss": "bnpo", "micro_batch_tokens": 60},
    {"loss": "grpo", "objective": "gspo"},
    {"objective": "cispo"},
    {"objective": "reinforce"},
    {"kl_coef": 0.1, "kl_estimator": "k1"},
    {"kl_coef": 0.1, "kl_estimator": "k3+", "importance_correction": "truncate"},
]


@pytest.mark.parametrize("name", MODELS)
def test_logprobs_are_those_of_pytorch(name: str, saved: Callable[[str], str]) -> None:
    parts, note = cut_model(load_model(saved(name), dtype="float32").model)
    assert note is None
    batch = step_batch()
    want, _ = torch_logprobs(tiny_model(MODELS[name]()), batch, temperature=0.7)
    for forward in (shared_logprobs, plain_logprobs):
        got, mask = forward(parts, batch, temperature=0.7)
        np.testing.assert_allclose(np.array(got), want.detach().numpy(), atol=1e-4)
        assert np.array(mask).sum(1).tolist() == [len(row.token_ids) for row in batch.rows]


def torch_gradients(model: PreTrainedModel, batch: Batch, loss_fn: LossFn) -> dict[str, Any]:
    logprobs, mask = torch_logprobs(model, batch, temperature=0.7)
    loss_fn(TORCH_OPS, _inputs(batch, logprobs, mask, torch.tensor), batch.denominators).loss.backward()
    return {name: weight.grad.numpy() for name, weight in model.named_parameters() if weight.grad is not None}


def mlx_gradients(folder: str, batch: Batch, loss_fn: LossFn) -> dict[str, Any]:
    model = load_model(folder, dtype="float32").model
    parts, _ = cut_model(model)

    def loss() -> mx.array:
        logprobs, mask = shared_logprobs(parts, batch, temperature=0.7)
        value: mx.array = loss_fn(MLX_OPS, _inputs(batch, logprobs, mask, mx.array), batch.denominators).loss
        return value

    return {name: np.array(one) for name, one in named(nn.value_and_grad(model, loss)()[1])}


def _inputs(batch: Batch, logprobs: Any, mask: Any, array: Callable[[Any], Any]) -> LossInputs:
    other = np.linspace(-6, -4, int(np.prod(logprobs.shape)), dtype=np.float32).reshape(tuple(logprobs.shape))
    return LossInputs(
        logprobs=logprobs,
        advantages=array([row.advantage for row in batch.rows]),
        mask=mask,
        old_logprobs=None,
        ref_logprobs=array(other.tolist()),
        sampling_logprobs=array((other + 0.2).tolist()),
    )


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("options", LOSSES)
def test_gradients_are_those_of_pytorch(
    name: str, options: dict[str, Any], saved: Callable[[str], str], settings: Settings
) -> None:
    loss_fn = make_loss(settings(**options).loss_config())
    want = torch_gradients(tiny_model(MODELS[name]()), step_batch(), loss_fn)
    got = mlx_gradients(saved(name), step_batch(), loss_fn)
    assert got.keys() == want.keys()
    for key in want:
        assert np.linalg.norm(got[key] - want[key]) <= 1e-3 * np.linalg.norm(want[key]) + 1e-7, key


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize(
    "options",
    [
        {"kl_coef": 0.1},
        {"loss": "bnpo", "micro_batch_tokens": 60},
        {"weight_decay": 1},
        {"optimizer": "adam"},
        {"optimizer": "sgd", "weight_decay": 0.1},
    ],
)
def test_three_optimizer_steps_stay_together(
    name: str, options: dict[str, Any], saved: Callable[[str], str], settings: Settings
) -> None:
    config = settings(model=saved(name), **options)
    loss_fn = make_loss(config.loss_config())
    ours, theirs = MlxBackend(config), TorchBackend(config)
    ref = config.kl_coef > 0
    mlx_batch, torch_batch = (one.with_logprobs(step_batch(), old=True, ref=ref) for one in (ours, theirs))
    for _ in range(3):
        got = ours.update(mlx_batch, loss_fn, learning_rate=1e-3)
        want = theirs.update(torch_batch, loss_fn, learning_rate=1e-3)
        assert got.applied
        assert got.loss == pytest.approx(want.loss, rel=1e-3, abs=1e-5)
        assert got.grad_norm == pytest.approx(want.grad_norm, rel=1e-3)
        assert got.metrics == pytest.approx(want.metrics, rel=1e-3, abs=1e-5)
    weights = dict(named(ours.model.parameters()))
    for key, weight in theirs.model.named_parameters():
        np.testing.assert_allclose(np.array(weights[key]), weight.detach().numpy(), atol=1e-4, err_msg=key)
    again, want_again = (in_order(one.with_logprobs(step_batch(), old=True, ref=False)) for one in (ours, theirs))
    for row, other in zip(again.rows, want_again.rows, strict=True):
        assert row.old_logprobs == pytest.approx(other.old_logprobs, abs=1e-3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, *NARROWED])
def test_the_same_noise_draws_the_same_tokens(
    name: str, options: dict[str, Any], saved: Callable[[str], str], settings: Settings
) -> None:
    config = settings(model=saved(name), stop=[str(one) for one in range(0, 260, 7)])
    sampling = replace(SAMPLING, **options)
    got, want = draw(MlxBackend(config), sampling), draw(TorchBackend(config), sampling)
    assert ids_of(got) == ids_of(want)
    for index, rollouts in want.items():
        for one, other in zip(got[index], rollouts, strict=True):
            assert one.finish_reason == other.finish_reason
            assert one.sampling_logprobs == pytest.approx(other.sampling_logprobs, abs=1e-4)
            assert (one.kept is None) == (other.kept is None)
            for kept, also_kept in zip(one.kept or (), other.kept or (), strict=True):
                assert kept.tolist() == also_kept.tolist()


def test_layers_that_see_a_window_are_the_same_in_both_passes(tmp_path: Path) -> None:
    """mlx-lm takes Gemma's pattern of windows from a number, which transformers no longer writes."""
    tiny_model(ARCHITECTURES["gemma3"]()).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"sliding_window_pattern": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    parts, _ = cut_model(load_model(str(tmp_path), dtype="float32").model)
    want, _ = torch_logprobs(tiny_model(ARCHITECTURES["gemma3"]()), step_batch(), temperature=0.7)
    shared, _ = shared_logprobs(parts, step_batch(), temperature=0.7)
    plain, _ = plain_logprobs(parts, step_batch(), temperature=0.7)
    np.testing.assert_allclose(np.array(shared), np.array(plain), atol=2e-5)
    np.testing.assert_allclose(np.array(shared), want.detach().numpy(), atol=2e-3)  # mlx-lm's GELU is another
