"""What is trained, against which reference: all weights, or a LoRA or DoRA adapter in mlx-lm's own format.

MLX arrays never change, so a frozen copy of weights is the arrays that the model began with: nothing is held twice
until training has moved them. The reference of a fresh adapter is the layers that it wraps; a DoRA at scale 0 would not
be that.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

from grpo_client.backends.mlx.models import LoadedModel, load_model, save_whole
from grpo_client.backends.mlx.trees import named
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError

_WEIGHTS, _CONFIG = "adapters.safetensors", "adapter_config.json"
_LINEAR = (nn.Linear, nn.QuantizedLinear, SwitchLinear, QuantizedSwitchLinear)

Reference = Callable[[], AbstractContextManager[nn.Module]]


@dataclass(frozen=True)
class Trained:
    """The policy, what saves it, the file that holds what was saved, and the reference to enter and run."""

    policy: nn.Module
    save: Callable[[Path], None]
    saved_as: str  # pattern of the files that `save` writes weights to
    reference: Reference
    note: str | None = None


def prepare_training(loaded: LoadedModel, config: TrainConfig) -> Trained:
    """Attach an adapter where one is asked for, and keep a reference where a KL needs one. Raises ConfigError."""
    if config.ref_dtype != "float32":
        raise ConfigError(f"--ref-dtype {config.ref_dtype}: on MLX a reference is computed in --dtype; leave it out")
    if config.lora_rank or config.adapter is not None:
        return _with_adapter(loaded, config)
    if loaded.quantised:
        raise ConfigError(
            f"--model {config.model} is quantised, and weights in few bits cannot be trained; train an adapter on it "
            "(--lora-rank 8, say), or name the model that is not quantised"
        )
    model = loaded.model
    reference = _no_reference
    if config.kl_coef:
        reference = _other_model(config) if config.ref_model is not None else _as_now(model)
    return Trained(model, lambda path: save_whole(path, loaded), "model*.safetensors", reference)


def _no_reference() -> AbstractContextManager[nn.Module]:
    raise AssertionError("a reference is kept only when kl_coef > 0")


def _as_now(model: nn.Module) -> Reference:
    """The model with the weights that train now, as they are now."""
    frozen = model.trainable_parameters()

    @contextlib.contextmanager
    def entered() -> Iterator[nn.Module]:
        current = model.trainable_parameters()
        model.update(frozen)
        try:
            yield model
        finally:
            model.update(current)

    return entered


def _without_adapter(model: nn.Module) -> Reference:
    """The model with the layers that the adapter wraps in their old places."""
    wrapped = [(name, module) for name, module in model.named_modules() if "lora_a" in module]
    bare = [(name, module["linear"]) for name, module in wrapped]

    @contextlib.contextmanager
    def entered() -> Iterator[nn.Module]:
        model.update_modules(tree_unflatten(bare))
        try:
            yield model
        finally:
            model.update_modules(tree_unflatten(wrapped))

    return entered


def _other_model(config: TrainConfig) -> Reference:
    assert config.ref_model is not None
    reference = load_model(config.ref_model, dtype=config.dtype).model
    reference.freeze()
    return lambda: contextlib.nullcontext(reference)


def _with_adapter(loaded: LoadedModel, config: TrainConfig) -> Trained:
    model: Any = loaded.model
    model.freeze()
    if config.adapter is None:
        settings = _settings(model, config)
        linear_to_lora_layers(
            model, settings["num_layers"], settings["lora_parameters"], use_dora=settings["fine_tune_type"] == "dora"
        )
        reference = _without_adapter(model)
    else:
        settings = _attach(model, config.adapter)
        reference = _as_now(model)
    if config.ref_model is not None:
        reference = _other_model(config)
    model.eval()
    mx.eval(model.parameters())
    count = sum(one.size for _, one in named(model.trainable_parameters()))

    def save(path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        try:
            mx.save_safetensors(str(path / _WEIGHTS), dict(named(model.trainable_parameters())))
        except RuntimeError as error:
            raise OSError(None, str(error)) from error
        (path / _CONFIG).write_text(json.dumps(settings, indent=4, sort_keys=True))

    kind = {"lora": "LoRA", "dora": "DoRA"}[settings["fine_tune_type"]]
    note = f"training a {kind} adapter: {count:,} weights in {len(settings['lora_parameters']['keys'])} kinds of layers"
    return Trained(model, save, _WEIGHTS, reference, note)


def _settings(model: Any, config: TrainConfig) -> dict[str, Any]:
    """adapter_config.json of a new adapter, as mlx-lm reads it."""
    linear = {name for layer in model.layers for name, module in layer.named_modules() if isinstance(module, _LINEAR)}
    keys = linear
    if config.lora_targets:
        named = {
            target: {name for name in linear if f".{name}".endswith(f".{target}")} for target in config.lora_targets
        }
        for target, names in named.items():
            if not names:
                there = ", ".join(sorted(linear))
                raise ConfigError(f"--lora-targets {target}: no layer is called so; there are {there}")
        keys = set().union(*named.values())
    return {
        "fine_tune_type": "dora" if config.dora else "lora",
        "num_layers": len(model.layers),
        "lora_parameters": {
            "rank": config.lora_rank,
            "scale": config.lora_alpha / config.lora_rank,
            "dropout": 0.0,
            "keys": sorted(keys),
        },
        "model": config.model,
    }


def _attach(model: nn.Module, folder: Path) -> dict[str, Any]:
    """Put an adapter on the model, to go on with; returns its adapter_config.json. Raises ConfigError."""
    try:
        settings: dict[str, Any] = json.loads((folder / _CONFIG).read_text())
        kind = settings.get("fine_tune_type", "lora")
        if kind not in ("lora", "dora"):
            raise ConfigError(
                f"--adapter {folder} is a {kind} fine-tune, not an adapter; fuse it and name it as --model"
            )
        load_adapters(model, str(folder))
        names = {name for name, _ in named(model.trainable_parameters())}
        weights: Any = mx.load(str(folder / _WEIGHTS))
        unknown = sorted(weights.keys() - names)
    except (OSError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise ConfigError(
            f"--adapter {folder} is no adapter of mlx-lm for this model ({_WEIGHTS} and {_CONFIG}): {error}"
        ) from error
    if unknown or not names:
        raise ConfigError(f"--adapter {folder} does not fit this model: it has no {(unknown or ['layer of it'])[0]}")
    settings["fine_tune_type"] = kind
    settings["lora_parameters"].setdefault("keys", sorted({name.rsplit(".", 1)[0] for name in names}))
    return settings
