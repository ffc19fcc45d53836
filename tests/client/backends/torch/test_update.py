"""What the settings of the optimizer, of memory and of adapters do to one update of a tiny model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_client.backends.base import UpdateStats
from grpo_client.backends.torch.backend import TorchBackend
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.learning.losses import make_loss

RATE = 0.01
ANSWERS = [([5, 6, 7], 1.0), ([8, 9], -1.0)]  # of one prompt, with their advantages


def backend(model: str, **changes: Any) -> TorchBackend:
    return TorchBackend(TrainConfig.model_validate({"model": model, "suite": "r1@1", "device": "cpu"} | changes))


def batch(*, scale: float = 1.0) -> Batch:
    rows = [CompletionRow(0, g, ids, [0.0] * len(ids), None, scale * adv) for g, (ids, adv) in enumerate(ANSWERS)]
    return Batch([(1, 2, 3)], rows, Denominators.from_lengths([3, 2], max_completion_length=9))


def weights(one: TorchBackend) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in one.model.named_parameters()}


def updated(one: TorchBackend, *, scale: float = 1.0) -> tuple[UpdateStats, dict[str, torch.Tensor]]:
    """What an update says, and by how much it moved each weight."""
    before = weights(one)
    stats = one.update(batch(scale=scale), make_loss(TrainConfig(suite="r1@1").loss_config()), learning_rate=RATE)
    return stats, {name: weight - before[name] for name, weight in weights(one).items()}


def norm(moves: dict[str, torch.Tensor]) -> float:
    return float(torch.cat([one.flatten() for one in moves.values()]).norm())


# ---- the optimizer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.01, 0.05])
def test_a_gradient_longer_than_the_limit_is_cut_to_it_and_told_as_it_was(limit: float, tiny: str) -> None:
    stats, moves = updated(backend(tiny, optimizer="sgd", max_grad_norm=limit))
    assert stats.grad_norm > 0.1
    assert norm(moves) == pytest.approx(RATE * limit, rel=1e-3)


def test_a_gradient_within_the_limit_is_taken_as_it_is(tiny: str) -> None:
    stats, moves = updated(backend(tiny, optimizer="sgd", max_grad_norm=1e6))
    assert norm(moves) == pytest.approx(RATE * stats.grad_norm, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_weight_decay_shrinks_matrices_alone(optimizer: str, tiny: str) -> None:
    one = backend(tiny, optimizer=optimizer, weight_decay=0.5)
    before = weights(one)
    _, moves = updated(one, scale=0.0)  # no gradient but the decay
    for name, weight in before.items():
        kept = 1 - RATE * 0.5 if weight.dim() >= 2 else 1.0
        torch.testing.assert_close(weight + moves[name], weight * kept)
    assert {weight.dim() for weight in before.values()} == {1, 2}


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_adam_moves_each_weight_by_the_rate_and_keeps_moments_that_sgd_does_not(optimizer: str, tiny: str) -> None:
    one, plain = backend(tiny, optimizer=optimizer), backend(tiny, optimizer="sgd")
    _, moves = updated(one)
    updated(plain)
    assert max(float(move.abs().max()) for move in moves.values()) == pytest.approx(RATE, rel=1e-3)
    assert all({"exp_avg", "exp_avg_sq"} <= state.keys() for state in one._optimizer.state.values())
    assert not any(value is not None for state in plain._optimizer.state.values() for value in state.values())


# ---- memory ------------------------------------------------------------------------------------------------


def passes(one: TorchBackend) -> tuple[int, float]:
    """How often an update enters the first layer's feed-forward network, and the gradient's norm."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    handle = one.model.model.layers[0].mlp.register_forward_pre_hook(counted)
    stats, _ = updated(one)
    handle.remove()
    return count, stats.grad_norm


def test_activations_that_are_not_kept_are_computed_again_to_the_same_gradient(tiny: str) -> None:
    kept, again = passes(backend(tiny)), passes(backend(tiny, checkpoint_activations=True))
    assert again[0] > kept[0]
    assert again[1] == pytest.approx(kept[1], rel=1e-5)


def test_a_smaller_budget_of_tokens_takes_more_passes_to_the_same_gradient(tiny: str) -> None:
    whole, parts = passes(backend(tiny)), passes(backend(tiny, micro_batch_tokens=6))
    assert parts[0] > whole[0]
    assert parts[1] == pytest.approx(whole[1], rel=1e-5)


# ---- adapters ----------------------------------------------------------------------------------------------


def learning(one: TorchBackend) -> list[str]:
    return [name for name, weight in one.model.named_parameters() if weight.requires_grad]


def adapted(one: TorchBackend) -> set[str]:
    """The names of the layers that learn."""
    return {name.split(".lora_")[0].rpartition(".")[2] for name in learning(one)}


def test_alpha_over_rank_is_how_strongly_an_adapter_acts(tiny: str) -> None:
    """Of a new adapter only the half that is 0 has a gradient, and that is proportional to the scale."""
    norms = {
        (rank, alpha): updated(backend(tiny, lora_rank=rank, lora_alpha=alpha))[0].grad_norm
        for rank, alpha in [(4, 32.0), (4, 64.0), (8, 32.0)]
    }
    assert norms[4, 64.0] == pytest.approx(2 * norms[4, 32.0], rel=1e-4)
    assert norms[8, 32.0] != pytest.approx(norms[4, 32.0], rel=1e-2)


def test_an_adapter_is_on_every_linear_layer_or_on_those_named(tiny: str) -> None:
    every = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert adapted(backend(tiny, lora_rank=4)) == every
    assert adapted(backend(tiny, lora_rank=4, lora_targets=("q_proj", "v_proj"))) == {"q_proj", "v_proj"}


def test_a_dora_adapter_learns_magnitudes_too(tiny: str) -> None:
    for dora in (False, True):
        one = backend(tiny, lora_rank=4, dora=dora)
        assert any("magnitude" in name for name in learning(one)) == dora
        _, moves = updated(one)
        assert any("magnitude" in name and float(move.abs().max()) > 0 for name, move in moves.items()) == dora


# ---- the machine -------------------------------------------------------------------------------------------


def test_the_device_is_the_one_named_or_the_run_is_refused(tiny: str) -> None:
    assert {weight.device.type for weight in backend(tiny).model.parameters()} == {"cpu"}
    with pytest.raises(ConfigError, match="--device nowhere: there is no such device"):
        backend(tiny, device="nowhere")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="sees no CUDA device"):
            backend(tiny, device="cuda:1")
