"""The sizes of a transformers model, from its config and weights."""

from __future__ import annotations

from transformers import PreTrainedModel

from grpo_client.memory import ModelSizes


def model_sizes(model: PreTrainedModel) -> ModelSizes:
    """Sizes; of what a config does not say, what follows from the rest."""
    config = model.config.get_text_config()
    heads = int(getattr(config, "num_attention_heads", None) or 0)
    hidden = int(config.hidden_size)
    return ModelSizes(
        weights=sum(one.numel() for one in model.parameters()),
        trained=sum(one.numel() for one in model.parameters() if one.requires_grad),
        weight_bytes=sum(one.nbytes for one in model.parameters()),
        layers=int(config.num_hidden_layers),
        hidden=hidden,
        intermediate=int(getattr(config, "intermediate_size", None) or 4 * hidden),
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or hidden // max(heads, 1)),
    )
