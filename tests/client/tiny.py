"""Tiny random models in Hugging Face format, with a byte-level tokenizer whose pad id is its eos id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def tiny_tokenizer() -> Any:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    fast.chat_template = TEMPLATE
    return fast


SMALL: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "tie_word_embeddings": True,
    "eos_token_id": 256,
    "pad_token_id": 256,
    "bos_token_id": None,
}


def tiny_config(**changes: Any) -> LlamaConfig:
    return LlamaConfig(**(SMALL | changes))


_WINDOW: dict[str, Any] = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
ARCHITECTURES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": tiny_config,
    "qwen2": lambda: Qwen2Config(**SMALL),
    "qwen3": lambda: Qwen3Config(**SMALL, head_dim=16),
    "gemma3": lambda: Gemma3TextConfig(**SMALL, **_WINDOW, head_dim=8, query_pre_attn_scalar=8),
    "mistral": lambda: MistralConfig(**SMALL, sliding_window=6, head_dim=8),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        **(SMALL | {"head_dim": 8}), num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
}


def tiny_model(config: object = None, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config or tiny_config(), dtype=torch.float32)
    model.eval()
    return model


def save_tiny(folder: Path, seed: int = 0) -> str:
    tiny_model(seed=seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def save_adapter(
    model: str, folder: Path, *, scale: float = 0.3, seed: int = 1, targets: str | list[str] = "all-linear"
) -> str:
    """A LoRA adapter of random weights that changes what the model says."""
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted: Any = get_peft_model(base, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=scale)
    adapted.save_pretrained(str(folder))
    return str(folder)
