"""Models and tokenizers through transformers: a hub id, a local folder, a `.gguf` file, or `smollm2`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from grpo_client.data.tokenizers import load_tokenizer, locate, public_name
from grpo_client.data.tokenizers import quiet as quiet  # the backend's, too
from grpo_client.errors import ConfigError


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model in float32, its tokenizer, and the ids that end a completion."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: frozenset[int]


def load_model(name: str, *, device: str) -> LoadedModel:
    """Load by name. Raises ConfigError that says what was looked for, where, and what now."""
    folder, gguf_file = locate(name)
    if gguf_file is None:
        _check_weights(name, Path(folder))
    tokenizer = load_tokenizer(name)
    with quiet():
        try:
            model: PreTrainedModel
            if gguf_file is None:
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            else:
                model = _dequantised(folder, gguf_file)
        except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
            raise ConfigError(f"cannot load --model {name}: {str(error).splitlines()[0]}") from error
    model.to(torch.device(device))  # type: ignore[arg-type]  # its wrapper hides `self` from the checker
    model.name_or_path = public_name(name)  # an adapter's config says what it belongs to
    embedding: Any = model.get_input_embeddings()
    embedding.padding_idx = None  # else a pad token, which often also ends a turn, gets no gradient where it is read
    model.eval()  # dropout is off in sampling and in every pass of training alike
    return LoadedModel(model, tokenizer, stop_ids(model, tokenizer))


def _check_weights(name: str, folder: Path) -> None:
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        found = ", ".join(sorted(child.name for child in folder.iterdir())[:10]) or "nothing"
        raise ConfigError(f"--model {name}: the folder holds no weights (*.safetensors); found: {found}")


def _dequantised(folder: str, gguf_file: str) -> PreTrainedModel:
    """The weights of a GGUF file in a fresh float32 model, whose config no longer says that it is quantised."""
    quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf_file, dtype=torch.float32)
    settings = {key: value for key, value in quantised.config.to_dict().items() if key != "quantization_config"}
    config = AutoConfig.for_model(**settings)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    return model


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a completion: of the generation config (which may have several) and of the tokenizer."""
    configured: Any = getattr(model.generation_config, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(one for one in (*listed, tokenizer.eos_token_id) if one is not None)
