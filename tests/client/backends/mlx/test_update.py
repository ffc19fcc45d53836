"""Steps: what may change nothing changes nothing, what is not finite is skipped, memory stays where it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from grpo_client.backends.mlx import head as mlx_head
from grpo_client.backends.mlx.backend import MlxBackend
from grpo_client.backends.mlx.trees import named
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.learning.batch import CompletionRow
from grpo_client.learning.losses import make_loss
from grpo_client.types import Sampling
from tests.client.backends.mlx.conftest import DEEP
from tests.client.backends.mlx.steps import PROMPTS, draw, in_order, step_batch

Settings = Callable[..., TrainConfig]


def weights(backend: MlxBackend) -> dict[str, Any]:
    return {name: np.array(one.astype(mx.float32)) for name, one in named(backend.model.parameters())}


def stepped(config: TrainConfig, steps: int = 2) -> tuple[MlxBackend, list[float]]:
    """A backend after some steps on one batch, and their gradients' norms."""
    backend = MlxBackend(config)
    batch = backend.with_logprobs(step_batch(), old=True, ref=config.kl_coef > 0)
    loss_fn = make_loss(config.loss_config())
    return backend, [backend.update(batch, loss_fn, learning_rate=1e-3).grad_norm for _ in range(steps)]


@pytest.mark.parametrize("adapter", [{}, {"lora_rank": 2}, {"lora_rank": 2, "dora": True}])
@pytest.mark.parametrize("options", [{"micro_batch_tokens": 20}, {"checkpoint_activations": True}])
def test_how_a_step_is_computed_changes_nothing_but_rounding(
    adapter: dict[str, Any], options: dict[str, Any], settings: Settings
) -> None:
    whole, norms = stepped(settings(kl_coef=0.1, **adapter))
    other, other_norms = stepped(settings(kl_coef=0.1, **adapter, **options))
    assert other_norms == pytest.approx(norms, rel=1e-4)
    theirs = weights(other)
    for name, one in weights(whole).items():
        np.testing.assert_allclose(theirs[name], one, atol=2e-5, err_msg=name)


def test_the_head_in_chunks_is_the_head_at_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    _, norms = stepped(settings(kl_coef=0.1))
    monkeypatch.setattr(mlx_head, "CHUNK_ELEMENTS", 600)  # two rows of logits
    assert stepped(settings(kl_coef=0.1))[1] == pytest.approx(norms, rel=1e-5)


def test_checkpointing_keeps_fewer_activations(settings: Settings, saved: Callable[[str], str]) -> None:
    config = settings(model=saved(DEEP), micro_batch_tokens=4_000)
    rows = [replace(row, token_ids=list(range(200)), sampling_logprobs=[0.0] * 200) for row in step_batch().rows]
    loss_fn = make_loss(config.loss_config())

    def peak(backend: MlxBackend) -> int:
        mx.reset_peak_memory()
        backend.update(step_batch().having(rows), loss_fn, learning_rate=1e-3)
        return mx.get_peak_memory()

    plain = peak(MlxBackend(config))
    assert peak(MlxBackend(config.model_copy(update={"checkpoint_activations": True}))) < 0.6 * plain


def test_a_step_that_is_not_finite_is_skipped_and_the_next_one_is_taken(settings: Settings) -> None:
    config = settings()
    backend = MlxBackend(config)
    loss_fn = make_loss(config.loss_config())
    before = weights(backend)
    batch = step_batch()
    broken = batch.having([replace(row, advantage=math.nan) for row in batch.rows])
    stats = backend.update(broken, loss_fn, learning_rate=1e-3)
    assert not stats.applied
    assert all((one == before[name]).all() for name, one in weights(backend).items())
    assert backend.update(batch, loss_fn, learning_rate=1e-3).applied
    fresh, _ = stepped(config, steps=1)
    assert all((one == weights(fresh)[name]).all() for name, one in weights(backend).items())


def test_a_batch_whose_rows_make_no_gradient_takes_no_step(settings: Settings) -> None:
    backend = MlxBackend(settings(weight_decay=0.5))
    before = weights(backend)
    stats = backend.update(step_batch().having([]), make_loss(settings().loss_config()), learning_rate=1e-3)
    assert (stats.loss, stats.grad_norm, stats.applied, stats.metrics) == (0.0, 0.0, True, {})
    assert all((one == before[name]).all() for name, one in weights(backend).items())


def test_bfloat16_computes_on_float32_weights_so_small_steps_add_up(settings: Settings) -> None:
    config = settings(dtype="bfloat16")
    backend = MlxBackend(config)
    assert {one.dtype for _, one in named(backend.model.parameters())} == {mx.bfloat16}
    start = dict(named(backend._optimizer.weights))
    loss_fn = make_loss(config.loss_config())
    for _ in range(3):
        backend.update(step_batch(), loss_fn, learning_rate=1e-6)
    moved = dict(named(backend._optimizer.weights))
    gaps = [np.abs(np.array(moved[name] - one)).max() for name, one in start.items()]
    assert all(gap > 1e-6 for gap in gaps)  # far below what bfloat16 can tell from weights around 0.3
    in_float32 = MlxBackend(settings())
    again = [in_order(one.with_logprobs(step_batch(), old=True, ref=False)).rows for one in (backend, in_float32)]
    ours, theirs = ([x for row in rows for x in row.old_logprobs or ()] for rows in again)
    apart = np.abs(np.subtract(ours, theirs))
    assert 0 < apart.mean() < backend.logprob_tolerance


@pytest.mark.slow  # 200 steps
def test_memory_stays_where_it_is_over_200_steps(settings: Settings) -> None:
    """Rows of ever other lengths, sampled and learnt from."""
    config = settings(kl_coef=0.1)
    backend = MlxBackend(config)
    loss_fn = make_loss(config.loss_config())
    peaks, held = [], []
    for step in range(200):
        if step % 50 == 0:
            mx.reset_peak_memory()
        draw(backend, Sampling(group_size=2, max_tokens=2 + step % 5, temperature=0.7, step=step), PROMPTS[:2])
        lengths = [1 + (step * 7 + 3 * i) % 12 for i in range(5)]
        batch = step_batch()
        rows = [
            replace(row, token_ids=list(range(n)), sampling_logprobs=[0.0] * n)
            for row, n in zip(batch.rows, lengths, strict=True)
        ]
        batch = backend.with_logprobs(batch.having(rows), old=True, ref=True)
        assert backend.update(batch, loss_fn, learning_rate=1e-4).applied
        if step % 50 == 49:
            peaks.append(mx.get_peak_memory())
            held.append(mx.get_active_memory() + mx.get_cache_memory())
    assert peaks[-1] <= 1.1 * peaks[0]
    assert held[-1] <= 1.1 * held[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "smollm2"}, "GGUF"),
        ({"model": "./nowhere"}, "no such folder"),
        ({"model": "tests"}, "holds no weights"),
        ({"device": "cuda"}, "gpu or cpu"),
        ({"stop": ("two words",)}, "not one token"),
        ({"lora_rank": 2, "lora_targets": ("q_prj",)}, "self_attn.q_proj"),
        ({"adapter": "tests"}, "no adapter of mlx-lm"),
    ],
)
def test_what_cannot_be_is_refused_with_what_there_is(options: dict[str, Any], said: str, settings: Settings) -> None:
    with pytest.raises(ConfigError, match=said):
        MlxBackend(settings(**options))


def moved(config: TrainConfig, rate: float) -> dict[str, Any]:
    """What one step of this rate adds to the weights."""
    backend = MlxBackend(config)
    before = weights(backend)
    assert backend.update(step_batch(), make_loss(config.loss_config()), learning_rate=rate).applied
    return {name: one - before[name] for name, one in weights(backend).items()}


def test_a_step_is_as_long_as_its_rate_and_not_as_the_configured_one(settings: Settings) -> None:
    config = settings(optimizer="sgd", learning_rate=0.5, max_grad_norm=1e9)
    once, thrice, nothing = (moved(config, rate) for rate in (1e-3, 3e-3, 0.0))
    assert any(np.abs(one).max() > 1e-4 for one in once.values())
    for name, one in once.items():
        np.testing.assert_allclose(thrice[name], 3 * one, atol=3e-7, rtol=0, err_msg=name)
        assert not nothing[name].any()


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_trainer_and_sampler_compute_logprobs_at_one_temperature(temperature: float, settings: Settings) -> None:
    backend = MlxBackend(settings(temperature=temperature))
    sampling = Sampling(group_size=2, max_tokens=6, temperature=temperature)
    rows = [
        CompletionRow(place, g, rollout.token_ids, rollout.sampling_logprobs, None, advantage=1.0)
        for place, rollouts in backend.sample(PROMPTS[:3], sampling)
        for g, rollout in enumerate(rollouts)
    ]
    found = backend.with_logprobs(step_batch().having(rows), old=True, ref=False).rows
    assert len(found) == 6
    for row in found:
        assert row.old_logprobs == pytest.approx(row.sampling_logprobs, abs=1e-4)
