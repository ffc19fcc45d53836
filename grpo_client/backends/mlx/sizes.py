"""The sizes of an mlx-lm model, from its config.json and its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from grpo_client.backends.mlx.head import CHUNK_ELEMENTS, ModelParts
from grpo_client.backends.mlx.trees import named
from grpo_client.memory import ModelSizes


def model_sizes(parts: ModelParts, config: Mapping[str, Any]) -> ModelSizes:
    """Sizes; of what a config does not say, what follows from the rest."""
    model: Any = parts.model
    text = config.get("text_config") or config
    trained = [one for _, one in named(model.trainable_parameters())]
    hidden, heads = int(text.get("hidden_size") or 0), int(text.get("num_attention_heads") or 0)
    head_dim = int(text.get("head_dim") or hidden // max(heads, 1))
    kv_heads = int(text.get("num_key_value_heads") or heads)
    return ModelSizes(
        weights=_weights(model),
        trained=sum(one.size for one in trained),
        weight_bytes=sum(one.nbytes for _, one in named(model.parameters())),
        copied_bytes=sum(4 * one.size for one in trained if one.dtype != mx.float32),
        packed_bytes=0,
        library_bytes=0,
        layers=len(model.layers),
        hidden=hidden,
        cached=2 * kv_heads * head_dim,
        activations=4 * hidden + (3 * heads + 2 * kv_heads) * head_dim + 4 * _intermediate(text, hidden),
        vocabulary=parts.vocabulary,
        head_trained=parts.head is not None and bool(parts.head.trainable_parameters()),
        logits_at_a_time=CHUNK_ELEMENTS,
    )


def _intermediate(text: Mapping[str, Any], hidden: int) -> int:
    """Width of the gated product of a layer, of all experts that a token goes through."""
    if text.get("num_experts_per_tok") and text.get("moe_intermediate_size"):
        return int(text["num_experts_per_tok"] * text["moe_intermediate_size"])
    return int(text.get("intermediate_size") or 4 * hidden)


def _weights(model: Any) -> int:
    """Each of those in few bits, of which an array holds several in an element, by itself; without their scales."""
    count = sum(one.size for _, one in named(model.parameters()))
    for _, module in model.named_modules():
        if hasattr(module, "bits"):
            count += 32 * module.weight.size // module.bits
            count -= sum(module[name].size for name in ("weight", "scales", "biases") if name in module)
    return count
