"""How much memory a run takes, estimated from its model's sizes. What allocators and libraries take is left out."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_client.config import TrainConfig

_FLOAT32 = 4


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A transformer's sizes. `weights` are those of the model with its adapter, `trained` those that learn."""

    weights: int
    trained: int
    weight_bytes: int  # as they are held: in few bits, where they are quantised
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int


def estimate(sizes: ModelSizes, config: TrainConfig, *, prompt_tokens: int) -> dict[str, float]:
    """Bytes by what they are for. Cache and activations are not there at the same time: `peak` counts the larger.

    Activations of a layer, a token: what goes into its norms, projections, attention and product of gates, after
    Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1) without the attention matrix, which is not kept.
    """
    computed = 2 if config.dtype == "bfloat16" else _FLOAT32
    rows = min(config.sampling_rows, config.prompts_per_step * config.group_size)
    cached = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim * rows * (prompt_tokens + config.max_completion_length)
    attention = (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    layer = 6 * sizes.hidden + attention + 4 * sizes.intermediate
    kept = sizes.layers * sizes.hidden + layer if config.checkpoint_activations else sizes.layers * layer
    tokens = max(config.micro_batch_tokens, prompt_tokens + config.max_completion_length)
    full_copy = bool(config.kl_coef) and sizes.trained == sizes.weights
    parts = {
        "weights": float(sizes.weight_bytes),
        "reference": float(sizes.weight_bytes * (full_copy or config.ref_model is not None)),
        "gradients": float(_FLOAT32 * sizes.trained),
        "optimizer": float(2 * _FLOAT32 * sizes.trained),
        "cache in sampling": float(computed * cached),
        "activations in learning": float(computed * tokens * kept),
    }
    larger = max(parts["cache in sampling"], parts["activations in learning"])
    lasting = sum(parts[name] for name in ("weights", "reference", "gradients", "optimizer"))
    return parts | {"peak": lasting + larger}
