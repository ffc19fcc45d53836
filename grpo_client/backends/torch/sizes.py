"""The sizes of a transformers model, from its config and weights."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from grpo_client.backends.torch.head import CHUNK_ELEMENTS
from grpo_client.backends.torch.matmul import packed_bytes
from grpo_client.memory import ModelSizes


def model_sizes(model: PreTrainedModel, *, library_bytes: int) -> ModelSizes:
    """Sizes; of what a config does not say, what follows from the rest."""
    config = model.config.get_text_config()
    head: Any = model.get_output_embeddings()
    heads = int(getattr(config, "num_attention_heads", None) or 0)
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // max(heads, 1))
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    return ModelSizes(
        weights=sum(one.numel() for one in model.parameters()),
        trained=sum(one.numel() for one in model.parameters() if one.requires_grad),
        weight_bytes=sum(one.nbytes for one in model.parameters()),
        copied_bytes=0,
        packed_bytes=packed_bytes(model),
        library_bytes=library_bytes,
        layers=int(config.num_hidden_layers),
        hidden=int(config.hidden_size),
        cached=2 * kv_heads * head_dim,
        activations=_norms(model) * int(config.hidden_size)
        + (3 * heads + 2 * kv_heads) * head_dim
        + 4 * _intermediate(config)
        + _ranks(model) // int(config.num_hidden_layers),
        vocabulary=int(head.weight.shape[0]),
        head_trained=bool(head.weight.requires_grad),
        logits_at_a_time=CHUNK_ELEMENTS,
    )


def _norms(model: PreTrainedModel) -> int:
    """Hidden states that a layer's two norms keep: what goes in and out and, for their weights, what is between."""
    trained = all(one.requires_grad for name, one in model.named_parameters() if name.endswith("norm.weight"))
    return 6 if trained else 4


def _intermediate(config: Any) -> int:
    """Width of the gated product of a layer, of all experts that a token goes through."""
    if getattr(config, "num_experts_per_tok", None) and getattr(config, "moe_intermediate_size", None):
        return int(config.num_experts_per_tok * config.moe_intermediate_size)
    return int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)


def _ranks(model: PreTrainedModel) -> int:
    """Width of all adapters' inner products."""
    return sum(len(one) for name, one in model.named_parameters() if "lora_A" in name)
