"""The backend as a run uses it: rates, temperature and rows reach the model as they were meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
import torch

from grpo_client.backends.torch.backend import TorchBackend
from grpo_client.config import TrainConfig
from grpo_client.learning.array_ops import ArrayOps
from grpo_client.learning.batch import Batch, CompletionRow, micro_batches
from grpo_client.learning.loss_inputs import Denominators, LossInputs
from grpo_client.learning.losses import LossConfig, LossOutputs, make_loss
from grpo_client.types import Prompt, Sampling

Settings = Callable[..., TrainConfig]
PROMPTS = [(1, 2, 3), (9,), tuple(range(40))]
LOGPROBS = {-100: "old_logprobs", -200: "ref_logprobs", -300: "sampling_logprobs"}


@pytest.fixture
def settings(tiny: str) -> Settings:
    def make(**changes: object) -> TrainConfig:
        base: dict[str, object] = {"model": tiny, "suite": "r1@1", "backend": "torch", "device": "cpu"}
        return TrainConfig.model_validate(base | changes)

    return make


def step_batch() -> Batch:
    """Rows of three prompts, of many lengths, with advantages of both signs."""
    given = [(0, [5, 6, 7], 1.0), (0, [8], -1.0), (1, list(range(1, 11)), 0.5), (2, [3, 4], 0.3), (2, [3, 200], -0.7)]
    rows = [CompletionRow(p, g, ids, [0.0] * len(ids), None, advantage) for g, (p, ids, advantage) in enumerate(given)]
    counts = Denominators.from_lengths([len(row.token_ids) for row in rows], max_completion_length=99)
    return Batch(PROMPTS, rows, counts)


def weights(backend: TorchBackend) -> dict[str, torch.Tensor]:
    return {name: one.detach().double().clone() for name, one in backend.model.named_parameters()}


def moved(config: TrainConfig, rates: list[float]) -> list[dict[str, torch.Tensor]]:
    """What each step of these rates adds to the weights."""
    backend, loss_fn, steps = TorchBackend(config), make_loss(config.loss_config()), []
    for rate in rates:
        before = weights(backend)
        assert backend.update(step_batch(), loss_fn, learning_rate=rate).applied
        steps.append({name: one - before[name] for name, one in weights(backend).items()})
    return steps


def test_a_step_is_as_long_as_its_rate_and_not_as_the_configured_one(settings: Settings) -> None:
    config = settings(optimizer="sgd", learning_rate=0.5, max_grad_norm=1e9)
    ((once,), (thrice,), (nothing,)) = (moved(config, [rate]) for rate in (1e-3, 3e-3, 0.0))
    assert any(one.abs().max() > 1e-4 for one in once.values())
    for name, one in once.items():
        torch.testing.assert_close(thrice[name], 3 * one, atol=2e-7, rtol=0)  # of weights around 1, in float32
        assert not nothing[name].any()


def test_a_rate_holds_for_its_own_step(settings: Settings) -> None:
    config = settings(optimizer="adamw", learning_rate=0.5)
    first, second, third = moved(config, [1e-3, 0.0, 1e-3])
    assert any(one.any() for one in first.values())
    assert not any(one.any() for one in second.values())
    assert any(one.any() for one in third.values())


def test_a_gradient_over_its_norm_is_cut_to_it(settings: Settings) -> None:
    (plain,) = moved(settings(optimizer="sgd", max_grad_norm=1e9), [0.1])
    whole = sum(float((one**2).sum()) for one in plain.values()) ** 0.5
    (cut,) = moved(settings(optimizer="sgd", max_grad_norm=whole / 0.1 / 4), [0.1])
    assert sum(float((one**2).sum()) for one in cut.values()) ** 0.5 == pytest.approx(whole / 4, rel=1e-4)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_weight_decay_is_of_matrices_alone(decay: float, settings: Settings) -> None:
    ((plain,), (decayed,)) = (moved(settings(weight_decay=one), [1e-3]) for one in (0.0, decay))
    start = weights(TorchBackend(settings()))
    for name, one in decayed.items():
        shrunk = -1e-3 * decay * start[name] if start[name].dim() >= 2 else torch.zeros_like(one)
        torch.testing.assert_close(one - plain[name], shrunk, atol=3e-7, rtol=0)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_trainer_and_sampler_compute_logprobs_at_one_temperature(temperature: float, settings: Settings) -> None:
    backend = TorchBackend(settings(temperature=temperature, kl_coef=0.1))
    prompts = [Prompt(index, [], ids, "7") for index, ids in enumerate(PROMPTS)]
    sampling = Sampling(group_size=2, max_tokens=6, temperature=temperature)
    sampled = [
        CompletionRow(place, g, rollout.token_ids, rollout.sampling_logprobs, None, advantage=1.0)
        for place, rollouts in backend.sample(prompts, sampling)
        for g, rollout in enumerate(rollouts)
    ]
    found = backend.with_logprobs(step_batch().having(sampled), old=True, ref=True).rows
    assert len(found) == 6
    for row in found:
        assert row.old_logprobs == pytest.approx(row.sampling_logprobs, abs=2e-5)
        assert row.ref_logprobs == row.old_logprobs


def test_what_is_computed_of_a_row_stays_with_it_whatever_the_parts(settings: Settings) -> None:
    def logprobs(**changes: Any) -> dict[tuple[int, int], CompletionRow]:
        backend = TorchBackend(settings(**changes))
        batch = backend.with_logprobs(step_batch(), old=True, ref=False)
        assert batch.denominators == step_batch().denominators
        return {(row.prompt, row.completion): row for row in batch.rows}

    whole, parts = logprobs(), logprobs(micro_batch_tokens=20)
    given = {(row.prompt, row.completion): row for row in step_batch().rows}
    assert whole.keys() == parts.keys() == given.keys()
    for place, row in given.items():
        assert replace(whole[place], old_logprobs=None) == row
        assert parts[place].old_logprobs == pytest.approx(whole[place].old_logprobs, abs=2e-5)


def test_a_loss_over_parts_is_the_mean_of_the_parts(settings: Settings) -> None:
    """bnpo divides by what shares its pass, so that only the number of passes makes the parts a mean."""
    config = settings(loss="bnpo", objective="reinforce", optimizer="sgd", max_grad_norm=1e9, micro_batch_tokens=20)
    loss_fn, backend = make_loss(config.loss_config()), TorchBackend(config)
    parts = micro_batches(step_batch(), token_budget=20)
    assert len(parts) > 1
    losses = [backend.update(part, loss_fn, learning_rate=0.0).loss for part in parts]
    assert backend.update(step_batch(), loss_fn, learning_rate=0.0).loss == pytest.approx(fmean(losses), rel=1e-5)


def test_a_loss_is_given_the_numbers_of_each_row_in_its_place(settings: Settings) -> None:
    def told(g: int, row: CompletionRow) -> dict[str, Any]:
        return {name: [k + 0.25 * g + t for t in range(len(row.token_ids))] for k, name in LOGPROBS.items()}

    rows = [replace(row, **told(g, row)) for g, row in enumerate(step_batch().rows)]
    seen: list[dict[str, Any]] = []
    plain = make_loss(LossConfig(kl_coef=0.1))

    def spy(ops: ArrayOps, inputs: LossInputs, denominators: Denominators) -> LossOutputs:
        for advantage, mask, *columns in zip(
            inputs.advantages, inputs.mask, *(getattr(inputs, name) for name in LOGPROBS.values()), strict=True
        ):
            lists = [column[mask != 0].tolist() for column in columns]
            seen.append({"advantage": float(advantage)} | dict(zip(LOGPROBS.values(), lists, strict=True)))
        return plain(ops, inputs, denominators)

    TorchBackend(settings(micro_batch_tokens=20)).update(step_batch().having(rows), spy, learning_rate=0.0)
    given = [
        {"advantage": pytest.approx(row.advantage)} | {name: getattr(row, name) for name in LOGPROBS.values()}
        for row in rows
    ]
    assert len(seen) == len(given)
    assert all(one in seen for one in given)
