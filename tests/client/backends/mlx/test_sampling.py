"""The sampler draws from the softmax, whatever shares its batch, and keeps what it drew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

from grpo_client.backends.mlx import sampling as mlx_sampling
from grpo_client.backends.mlx.backend import MlxBackend
from grpo_client.backends.mlx.choice import choose, kept_tokens
from grpo_client.backends.torch import choice as torch_choice
from grpo_client.config import TrainConfig
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.learning.losses import make_loss
from grpo_client.types import Rollout
from tests.client.backends.mlx.steps import NARROWED, PROMPTS, SAMPLING, STOPS, draw, ids_of, prompt, step_batch

Settings = Callable[..., TrainConfig]


@pytest.fixture
def backend(settings: Settings) -> MlxBackend:
    return MlxBackend(settings(stop=[str(one) for one in sorted(STOPS)]))


def trained_logprobs(backend: MlxBackend, index: int, group: list[Rollout]) -> list[list[float]]:
    """What the training pass computes for a group of PROMPTS[index]."""
    rows = [
        CompletionRow(0, g, one.token_ids, one.sampling_logprobs, one.kept, advantage=1.0)
        for g, one in enumerate(group)
    ]
    counts = Denominators.from_lengths([len(row.token_ids) for row in rows], max_completion_length=12)
    batch = Batch([PROMPTS[index].token_ids], rows, counts)
    made, _ = backend._logprobs_of(backend._parts, batch, temperature=SAMPLING.temperature)
    lists: Any = made.tolist()
    return [one[: len(row.token_ids)] for one, row in zip(lists, rows, strict=True)]


def test_a_completion_ends_with_the_stop_token_it_drew_or_at_the_limit(backend: MlxBackend) -> None:
    groups = draw(backend)
    assert sorted(groups) == [0, 1, 2, 3]
    for one in (one for group in groups.values() for one in group):
        assert not (STOPS | {256}) & set(one.token_ids[:-1])
        ends_with_stop = one.token_ids[-1] in STOPS | {256}
        assert one.finish_reason == ("stop" if ends_with_stop else "length")
        assert ends_with_stop or len(one.token_ids) == SAMPLING.max_tokens
    assert {one.finish_reason for group in groups.values() for one in group} == {"stop", "length"}


def test_ignore_eos_samples_on_to_the_limit(backend: MlxBackend) -> None:
    groups = draw(backend, replace(SAMPLING, ignore_eos=True))
    assert {(one.finish_reason, len(one.token_ids)) for group in groups.values() for one in group} == {("length", 12)}


@pytest.mark.parametrize("options", [{}, *NARROWED])
def test_logprobs_are_those_that_training_computes(backend: MlxBackend, options: dict[str, Any]) -> None:
    for index, group in draw(backend, replace(SAMPLING, **options)).items():
        for one, want in zip(group, trained_logprobs(backend, index, group), strict=True):
            assert one.sampling_logprobs == pytest.approx(want, abs=5e-5)
            assert (one.kept is None) == (not options)
            for token, kept in zip(one.token_ids, one.kept or (), strict=bool(options)):
                assert token in kept


def test_who_shares_the_batch_and_when_rows_leave_it_moves_no_token(
    backend: MlxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = ids_of(draw(backend))
    assert {index: ids for one in PROMPTS for index, ids in ids_of(draw(backend, prompts=[one])).items()} == together
    assert ids_of(draw(backend, prompts=PROMPTS[::-1])) == together
    monkeypatch.setattr(mlx_sampling, "_PREFILL", 7)
    assert ids_of(draw(backend)) == together
    for compact_below in (0.0, 0.75, 0.99):
        monkeypatch.setattr(mlx_sampling, "_COMPACT_BELOW", compact_below)
        for rows in (4, 8, 9):  # prompts wait for a place
            assert ids_of(draw(backend, replace(SAMPLING, rows=rows))) == together


def test_long_completions_outgrow_the_caches_first_room(backend: MlxBackend) -> None:
    """mlx-lm's caches grow by 256 positions."""
    sampling = replace(SAMPLING, max_tokens=300, ignore_eos=True)
    alone = draw(backend, sampling, [prompt(0, 1, 2, 3)])
    beside = draw(backend, replace(sampling, rows=4), [prompt(0, 1, 2, 3), prompt(1, *range(30))])
    assert ids_of(alone)[0] == ids_of(beside)[0]
    assert {len(one.token_ids) for one in beside[1]} == {300}


def test_layers_that_keep_a_state_are_sampled_in_batches_and_trained_on_whole_rows(
    recurrent: str, settings: Settings
) -> None:
    config = settings(model=recurrent, stop=[str(one) for one in sorted(STOPS)])
    backend = MlxBackend(config)
    assert any("plain forward passes" in note for note in backend.notes)
    groups = draw(backend)
    for rows in (4, 9):
        assert ids_of(draw(backend, replace(SAMPLING, rows=rows))) == ids_of(groups)
    for one in PROMPTS:
        assert ids_of(draw(backend, prompts=[one]))[one.index] == ids_of(groups)[one.index]
    for index, group in groups.items():
        for rollout, want in zip(group, trained_logprobs(backend, index, group), strict=True):
            assert rollout.sampling_logprobs == pytest.approx(want, abs=5e-5)
    loss_fn = make_loss(config.loss_config())
    again = MlxBackend(config.model_copy(update={"checkpoint_activations": True}))
    norms = [each.update(step_batch(), loss_fn, learning_rate=1e-3).grad_norm for each in (backend, again)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    assert ids_of(draw(again)) == ids_of(draw(backend))


# ---- one draw ----------------------------------------------------------------------------------------------


def uniform(numbers: Any) -> mx.array:
    return mx.array(np.asarray(numbers, dtype=np.float64), dtype=mx.float64)


def test_tokens_are_drawn_as_often_as_the_softmax_says() -> None:
    logits = np.random.default_rng(0).normal(size=1300).astype(np.float32) * 2
    draws = 40_000
    numbers = (np.arange(draws) + 0.5) / draws
    counts = np.zeros(1300)
    for part in np.split(numbers, 20):
        token, logprob, _ = choose(mx.array(np.tile(logits, (len(part), 1))), uniform(part), SAMPLING)
        np.add.at(counts, np.array(token), 1)
        scaled = logits.astype(np.float64) / 0.7
        want = scaled - np.log(np.exp(scaled - scaled.max()).sum()) - scaled.max()
        np.testing.assert_allclose(np.array(logprob), want[np.array(token)], atol=1e-5)
    np.testing.assert_allclose(counts, np.exp(want) * draws, atol=1.01)


@pytest.mark.parametrize("vocabulary", [1, 40, 512, 513, 2000])
def test_a_draw_never_leaves_what_may_be_drawn(vocabulary: int) -> None:
    """Numbers at the edges, weights that vanish in float32, and blocks without any weight."""
    generator = np.random.default_rng(vocabulary)
    edges = [0.0, 1e-300, 0.5, 1 - 2**-52, 1 - 1e-8, 1 - 1e-4]
    for spread in (0.0, 5.0, 80.0):
        logits = generator.normal(size=(len(edges), vocabulary)).astype(np.float32) * spread
        logits[:, generator.random(vocabulary) < 0.5] = -np.inf
        logits[:, vocabulary // 2] = 0.0
        token, logprob, _ = choose(mx.array(logits), uniform(edges), SAMPLING)
        chosen = logits[np.arange(len(edges)), np.array(token)]
        assert np.isfinite(chosen).all()
        assert np.isfinite(np.array(logprob)).all()


@pytest.mark.parametrize("options", NARROWED)
def test_what_is_kept_is_what_pytorch_keeps(options: dict[str, Any]) -> None:
    scaled = np.random.default_rng(1).normal(size=(50, 300)).astype(np.float32) * 3
    sampling = replace(SAMPLING, **options)
    want = torch_choice.kept_tokens(torch.tensor(scaled), sampling)
    assert (np.array(kept_tokens(mx.array(scaled), sampling)) == want.numpy()).all()
