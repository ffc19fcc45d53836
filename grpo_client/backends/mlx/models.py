"""Models and tokenizers through mlx-lm, saved again as mlx-lm and transformers read them; the device they run on."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache
from mlx_lm.utils import save_config, save_model
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

from grpo_client.backends.mlx.trees import named
from grpo_client.data.tokenizers import load_tokenizer, locate
from grpo_client.errors import ConfigError

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}
_FINGERPRINT_VALUES = 64  # of each weight


@dataclass(frozen=True)
class LoadedModel:
    """A model in the dtype that is computed in (what is quantised stays so), and what belongs to it."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    config: dict[str, Any]
    generation: GenerationConfig
    stop_ids: frozenset[int]

    @property
    def quantised(self) -> bool:
        """Whether some weights are stored in few bits, which cannot be trained themselves."""
        return any(hasattr(module, "bits") for _, module in self.model.named_modules())


def ignored_window(loaded: LoadedModel) -> int | None:
    """The sliding window that the model's config asks for and mlx-lm's model knows nothing of; None for none."""
    window = loaded.config.get("sliding_window")
    used = loaded.config.get("use_sliding_window", True)
    kept = any(isinstance(cache, RotatingKVCache) for cache in make_prompt_cache(loaded.model))
    return int(window) if window and used and not kept else None


def versions() -> str:
    """What a report of a wrong number needs."""
    return f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}, {platform.system()} {platform.machine()}"


def prepare_device(name: str) -> list[str]:
    """Choose the device, and do without compiled kernels where they cannot be built. Returns notes for the log.

    Raises ConfigError for a device that is not there.
    """
    if name not in ("auto", "gpu", "cpu"):
        raise ConfigError(f"--device {name}: the MLX backend runs on gpu or cpu; leave it out to take the gpu")
    if name == "gpu" and not mx.is_available(mx.gpu):
        raise ConfigError(f"--device gpu: this MLX has none ({versions()}); use --device cpu")
    if name == "cpu":
        mx.set_default_device(mx.cpu)
    if mx.metal.is_available():
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    try:
        mx.eval(mx.compile(lambda x: mx.exp(x) * x + 1.0)(mx.ones(3)))
    except RuntimeError as error:
        mx.disable_compile()
        reason = str(error).strip().splitlines()[0]
        return [f"without compiled kernels, so slower: MLX cannot build them here ({reason}); it needs a C++ compiler"]
    return []


def load_model(name: str, *, dtype: str) -> LoadedModel:
    """Load by hub id or folder. Raises ConfigError that says what was looked for, where, and what now."""
    _check_name(name)
    try:
        plain, _ = PreTrainedConfig.get_config_dict(name)
        loaded: Any = mlx_lm.load(name, model_config=rope_settings(plain), return_config=True)
        model, _, config = loaded
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"cannot load --model {name}: {reason} ({versions()})") from error
    unbatched = sorted({type(one).__name__ for one in make_prompt_cache(model) if not hasattr(one, "merge")})
    if unbatched:
        raise ConfigError(
            f"--model {name} cannot be sampled in batches by mlx-lm (its caches: {', '.join(unbatched)}); use another"
        )
    model.set_dtype(DTYPES[dtype])
    model.eval()  # dropout is off in sampling and in every pass of training alike
    mx.eval(model.parameters())
    tokenizer = load_tokenizer(name)
    configured = config.get("eos_token_id")
    listed = configured if isinstance(configured, list) else [configured]
    stop_ids = frozenset(one for one in (*listed, tokenizer.eos_token_id) if one is not None)
    try:
        generation = GenerationConfig.from_pretrained(name)
    except OSError:  # it has none
        generation = GenerationConfig(eos_token_id=sorted(stop_ids))
    return LoadedModel(model, tokenizer, config, generation, stop_ids)


def rope_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Angles of positions under the names that mlx-lm reads, from `rope_parameters`, where transformers 5 writes them.

    Most of mlx-lm's models pass over that and take 10,000 for the base, without a word.
    """
    given = config.get("rope_parameters") or {}
    full = given.get("full_attention", given)
    found = {
        "rope_theta": full.get("rope_theta"),
        "rope_local_base_freq": given.get("sliding_attention", {}).get("rope_theta"),
    }
    if full.get("rope_type", "default") != "default":
        found["rope_scaling"] = full
    return {key: value for key, value in found.items() if value is not None and config.get(key) is None}


def _check_name(name: str) -> None:
    folder, gguf_file = locate(name)
    path = Path(folder)
    if gguf_file is not None:
        raise ConfigError(
            f"--model {name} is a GGUF file, which only the PyTorch backend reads; for MLX name a Hugging Face model "
            "or folder, such as mlx-community/SmolLM2-135M-Instruct"
        )
    if path.is_dir() and not any(path.glob("model*.safetensors")):
        found = ", ".join(sorted(child.name for child in path.iterdir())[:10]) or "nothing"
        raise ConfigError(f"--model {name}: the folder holds no weights (model*.safetensors); found: {found}")


def save_whole(path: Path, loaded: LoadedModel) -> None:
    """Weights and configs, as mlx-lm and transformers read them. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)
    try:
        save_model(path, loaded.model)
    except RuntimeError as error:
        raise OSError(None, str(error)) from error
    save_config(dict(loaded.config), path / "config.json")


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 over every weight's name, shape and some of its values."""
    digest = hashlib.sha256()
    for name, weight in named(model.parameters()):
        some = weight.reshape(-1)[:: max(1, weight.size // _FINGERPRINT_VALUES)].astype(mx.float32)
        digest.update(f"{name} {tuple(weight.shape)}".encode() + np.array(some).tobytes())
    return f"sha256:{digest.hexdigest()}"
