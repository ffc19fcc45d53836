"""Models and tokenizers through transformers: a hub id, a local folder, a `.gguf` file, or `smollm2`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from grpo_client.data.tokenizers import load_tokenizer, locate, public_name
from grpo_client.data.tokenizers import quiet as quiet  # the backend's, too
from grpo_client.errors import ConfigError

_PREFIXES = ("_orig_mod.", "module.", "base_model.model.")
_LAYER = re.compile(r"(.*?)\.\d+\.")


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
            model = _loaded(name, folder) if gguf_file is None else _dequantised(folder, gguf_file)
        except ConfigError:
            raise
        except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
            raise ConfigError(f"cannot load --model {name}: {str(error).splitlines()[0]}") from error
    model.to(torch.device(device))  # type: ignore[arg-type]  # its wrapper hides `self` from the checker
    model.name_or_path = public_name(name)  # an adapter's config says what it belongs to
    embedding: Any = model.get_input_embeddings()
    embedding.padding_idx = None  # else a pad token, which often also ends a turn, gets no gradient where it is read
    model.eval()  # dropout is off in sampling and in every pass of training alike
    return LoadedModel(model, tokenizer, stop_ids(model, tokenizer))


def _loaded(name: str, folder: str) -> PreTrainedModel:
    """The model in float32, all of its weights out of the files. Raises ConfigError for files of another model."""
    model, found = _from_files(folder, prefix="")
    prefix = next((one for one in _PREFIXES if any(key.startswith(one) for key in found["unexpected_keys"])), None)
    if prefix is not None:  # as torch.compile, data parallel wrappers and adapters save them
        model, found = _from_files(folder, prefix=prefix)
    faults = []
    if found["missing_keys"]:
        faults.append(f"{_some(found['missing_keys'])} missing")
    if extra := _of_its_layers(model, found["unexpected_keys"]):
        faults.append(f"{_some(extra)} that it has no place for")
    if found["mismatched_keys"]:
        faults.append(f"{_some([key for key, *_ in found['mismatched_keys']])} of another shape")
    if faults:
        raise ConfigError(
            f"--model {name}: its files are not those of a {type(model).__name__} with this config: "
            f"{'; '.join(faults)}. Training would go on from random weights; get the files anew, or mend config.json"
        )
    return model


def _from_files(folder: str, *, prefix: str) -> tuple[PreTrainedModel, dict[str, Any]]:
    renamed = {rf"^{re.escape(prefix)}": ""} if prefix else None
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, key_mapping=renamed
    )
    model, found = loaded
    return model, found


def _of_its_layers(model: PreTrainedModel, keys: Iterable[str]) -> list[str]:
    """Those that would belong to a further layer: what else a file holds (a vision tower) is no part of this model."""
    stems = {match[1] for name, _ in model.named_parameters() if (match := _LAYER.match(name))}
    return [key for key in keys if (match := _LAYER.match(key)) and match[1] in stems]


def _some(keys: Iterable[str]) -> str:
    names = sorted(keys)
    return f"{len(names)} weights ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"


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
