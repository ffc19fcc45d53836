"""The sizes of an mlx-lm model, from its config.json and its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlx_lm.utils import get_total_parameters

from grpo_client.backends.mlx.trees import named
from grpo_client.memory import ModelSizes


def model_sizes(model: Any, config: Mapping[str, Any]) -> ModelSizes:
    """Sizes; of what a config does not say, what follows from the rest. Weights in few bits are counted one by one."""
    text = config.get("text_config") or config
    hidden, heads = int(text.get("hidden_size") or 0), int(text.get("num_attention_heads") or 0)
    return ModelSizes(
        weights=int(get_total_parameters(model)),
        trained=sum(one.size for _, one in named(model.trainable_parameters())),
        weight_bytes=sum(one.nbytes for _, one in named(model.parameters())),
        layers=len(model.layers),
        hidden=hidden,
        intermediate=int(text.get("intermediate_size") or 4 * hidden),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // max(heads, 1)),
    )
