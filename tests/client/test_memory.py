"""What a run's memory is estimated from, held to real tensors of tiny models, and the arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_client.backends import load_backend
from grpo_client.backends.base import Backend
from grpo_client.backends.torch.backend import TorchBackend
from grpo_client.backends.torch.forward import run_prompts
from grpo_client.config import TrainConfig
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.learning.losses import make_loss
from grpo_client.memory import Estimate, ModelSizes, estimate
from tests.client.tiny import tiny_config, tiny_model, tiny_tokenizer

PROMPT, TOKENS, ROWS = 10, 40, 4
WAYS = [{}, {"lora_rank": 4}, {"optimizer": "sgd"}, {"lora_rank": 4, "dora": True}]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose activations outweigh what is there once a pass."""
    folder = tmp_path_factory.mktemp("wide")
    tiny_model(tiny_config(hidden_size=64, intermediate_size=160, num_hidden_layers=6)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def loaded(model: str, **changes: object) -> tuple[TrainConfig, Backend]:
    settings: dict[str, object] = {"model": model, "suite": "r1@1", "prompts_per_step": 1, "group_size": ROWS}
    settings |= {"max_completion_length": TOKENS}
    config = TrainConfig.model_validate(settings | changes)
    return config, load_backend(config)


def batch() -> Batch:
    rows = [CompletionRow(0, g, [7 + g] * TOKENS, [0.0] * TOKENS, None, 1.0 - g) for g in range(ROWS)]
    return Batch([tuple(range(PROMPT))], rows, Denominators.from_lengths([TOKENS] * ROWS, max_completion_length=TOKENS))


@pytest.mark.parametrize("options", WAYS)
def test_weights_gradients_and_optimizer_of_torch_are_counted_to_the_byte(options: dict[str, Any], wide: str) -> None:
    config, backend = loaded(wide, backend="torch", device="cpu", **options)
    assert isinstance(backend, TorchBackend)
    gradients: list[int] = []
    backend._optimizer.register_step_pre_hook(
        lambda *_: gradients.append(sum(one.grad.nbytes for one in backend.model.parameters() if one.grad is not None))
    )
    backend.update(batch(), make_loss(config.loss_config()), learning_rate=1e-3)
    moments = [one for state in backend._optimizer.state.values() for one in state.values() if torch.is_tensor(one)]
    parts = estimate(backend.sizes(), config, prompt_tokens=PROMPT).parts
    assert parts["weights"] == sum(one.nbytes for one in backend.model.parameters())
    assert [parts["gradients"]] == gradients
    assert parts["optimizer"] == sum(one.nbytes for one in moments if one.dim())


@pytest.mark.parametrize("options", [{}, {"lora_rank": 4}, {"dtype": "bfloat16"}])
@pytest.mark.parametrize("quantised", [False, True])
def test_weights_gradients_and_optimizer_of_mlx_are_counted_to_the_byte(
    options: dict[str, Any], quantised: bool, wide: str, tmp_path: Path
) -> None:
    pytest.importorskip("mlx_lm")
    from mlx_lm import convert

    from grpo_client.backends.mlx.backend import MlxBackend
    from grpo_client.backends.mlx.trees import named

    whole = loaded(wide, backend="mlx", device="cpu")[1].sizes().weights
    if quantised:
        convert(wide, str(tmp_path / "few bits"), quantize=True, q_bits=4, q_group_size=32)
        wide, options = str(tmp_path / "few bits"), {"lora_rank": 4} | options
    config, backend = loaded(wide, backend="mlx", device="cpu", **options)
    assert isinstance(backend, MlxBackend)
    gradients: list[int] = []

    def summed(tree: Any) -> Any:
        gradients.append(sum(one.nbytes for _, one in named(tree[1])))
        return tree

    backend._mlx_ranks.total = summed  # type: ignore[method-assign]  # sees them on their way to the optimizer
    backend.update(batch(), make_loss(config.loss_config()), learning_rate=1e-3)
    sizes = backend.sizes()
    parts = estimate(sizes, config, prompt_tokens=PROMPT).parts
    arrays = named(backend.model.parameters())
    assert sizes.weights == whole + (sizes.trained if config.lora_rank else 0)
    assert parts["weights"] == sum(one.nbytes for _, one in arrays)
    assert [parts["gradients"]] == gradients
    moments = [one for name, one in named(backend._optimizer._inner.state) if name.endswith((".m", ".v"))]
    assert parts["optimizer"] == sum(one.nbytes for one in moments)
    copies = sum(one.nbytes for _, one in named(backend._optimizer.weights))
    assert parts["float32 copies of weights"] == (copies if config.dtype == "bfloat16" and not config.lora_rank else 0)


def test_the_cache_of_a_prompt_is_counted_to_the_byte(wide: str) -> None:
    _, backend = loaded(wide, backend="torch", device="cpu")
    assert isinstance(backend, TorchBackend)
    with torch.no_grad():
        prefix = run_prompts(backend.model, [list(range(PROMPT))])
    sizes = backend.sizes()
    kept = sum(one.nbytes for pair in prefix.pairs for one in pair)
    assert kept == 4 * sizes.layers * sizes.cached * PROMPT


@pytest.mark.parametrize("options", [{}, {"lora_rank": 4}])
def test_activations_of_torch_are_those_that_a_pass_keeps(options: dict[str, Any], wide: str) -> None:
    config, backend = loaded(wide, backend="torch", device="cpu", **options)
    assert isinstance(backend, TorchBackend)
    weights = {one.untyped_storage().data_ptr() for one in backend.model.parameters()}
    kept: dict[int, int] = {}

    def pack(one: torch.Tensor) -> torch.Tensor:
        storage = one.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        held = backend._logprobs(backend.model, batch())
    assert held[0].shape == (ROWS, TOKENS)
    parts = estimate(backend.sizes(), config, prompt_tokens=PROMPT).parts
    assert sum(kept.values()) == pytest.approx(parts["activations in learning"], rel=0.15)


def sizes(trained: int = 1000, **changes: Any) -> ModelSizes:
    fixed: dict[str, Any] = {"weights": 1000, "weight_bytes": 4000, "copied_bytes": 0, "packed_bytes": 600}
    fixed |= {"library_bytes": 50, "layers": 2, "hidden": 8, "cached": 8, "activations": 100, "vocabulary": 20}
    fixed |= {"head_trained": True, "logits_at_a_time": 40}
    return ModelSizes(**fixed | {"trained": trained} | changes)


def estimated(trained: int = 1000, **changes: object) -> Estimate:
    return estimate(sizes(trained), TrainConfig.model_validate({"suite": "r1@1"} | changes), prompt_tokens=10)


def test_the_largest_phase_is_the_peak() -> None:
    found = estimated()
    parts = found.parts
    lasting = 50 + 4000 + 8000
    assert parts["cache in sampling"] == 4 * 8 * (2 + 1) * (4 * 8) * (10 + 256)
    assert parts["activations in learning"] == 4 * 2 * 100 * 2048
    assert parts["logits in learning"] == 4 * (3 * 40 + 20 * 8)
    assert found.phases["learning"] == lasting + 4000 + parts["activations in learning"] + parts["logits in learning"]
    sampled = sum(parts[f"{name} in sampling"] for name in ("packed weights", "cache", "logits"))
    assert found.phases["sampling"] == lasting + sampled
    assert found.peak == pytest.approx(1.3 * max(found.phases.values()) - 0.3 * parts["libraries"])


def test_what_a_setting_saves_is_not_counted() -> None:
    full = estimated().parts
    assert full["reference"] == 0
    assert estimated(kl_coef=0.1).parts["reference"] == 4000
    assert estimated(kl_coef=0.1, ref_dtype="bfloat16").parts["reference"] == 2000
    assert estimated(trained=10, kl_coef=0.1).parts["reference"] == 0
    assert estimated(trained=10).parts["optimizer"] == 80
    assert estimated(optimizer="sgd").parts["optimizer"] == 0
    kept = estimated(checkpoint_activations=True).parts["activations in learning"]
    assert kept == 4 * 2048 * (2 * 8 + 100)
    assert estimated(dtype="bfloat16").parts["cache in sampling"] == full["cache in sampling"] / 2
    assert estimated(sampling_rows=8).parts["cache in sampling"] == full["cache in sampling"] / 4


def test_evaluation_is_a_phase_with_rows_of_its_own_where_there_is_one() -> None:
    assert "evaluation" not in estimated(eval_every=0).phases
    parts = estimated(eval_prompts=64, prompts_per_step=2).parts
    assert parts["cache in evaluation"] == 4 * parts["cache in sampling"]


def test_a_step_of_one_pass_never_has_all_gradients_beside_all_activations() -> None:
    one = estimated(prompts_per_step=1, max_completion_length=16, eval_every=0)
    assert one.parts["activations in learning"] == 4 * 2 * 100 * (10 + 8 * 16)
    head = one.parts["logits in learning"]
    assert one.phases["learning"] == 50 + 4000 + 8000 + head + max(one.parts["activations in learning"], 4000)
