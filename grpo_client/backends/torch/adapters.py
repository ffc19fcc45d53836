"""What is trained, against which reference: all weights and a frozen copy, or a LoRA adapter and the bare model.

A continued adapter is its own reference: a second, frozen adapter with the same weights, as `kl` must begin at 0.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from grpo_client.backends.torch.attention import use_blocks
from grpo_client.backends.torch.matmul import use_onednn
from grpo_client.backends.torch.models import load_model, quiet
from grpo_client.backends.torch.ways import Way, choose_way, drawn_rows
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError

_FROZEN = "reference"
_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Trained:
    """The policy, what saves and loads it, and the reference: entering `reference` gives the model to run."""

    policy: PreTrainedModel
    save: Callable[[Path], None]
    load: Callable[[Path], None]  # what `save` wrote, into the policy
    reference: Callable[[], AbstractContextManager[PreTrainedModel]]
    reference_way: Way | None = None  # of a reference that is a model of its own
    note: str | None = None


def prepare_training(model: PreTrainedModel, config: TrainConfig, *, device: str) -> Trained:
    """Attach an adapter where one is asked for, and keep a reference where a KL needs one. Raises ConfigError."""
    if config.lora_rank or config.adapter is not None:
        return _with_adapter(model, config, device=device)
    return Trained(
        model,
        model.save_pretrained,
        lambda path: load_weights(model, path),
        *_frozen_reference(model, config, device=device),
        note=None if config.ref_dtype == "float32" else "the reference is in bfloat16: KL begins near 1e-3, not at 0",
    )


def load_weights(model: PreTrainedModel, path: Path) -> None:
    """Weights that `save_pretrained` wrote, in place. Raises ConfigError for another model's.

    Through `from_pretrained`, which alone knows under which names and in how many files a model is saved.
    """
    with quiet():
        saved = dict(type(model).from_pretrained(str(path), dtype=torch.float32).named_parameters())
    with torch.no_grad():
        for name, ours in model.named_parameters():
            if name not in saved or saved[name].shape != ours.shape:
                raise ConfigError(f"{path} holds another model: {name} is missing or has another shape")
            ours.copy_(saved[name])


def _frozen_reference(
    model: PreTrainedModel, config: TrainConfig, *, device: str
) -> tuple[Callable[[], AbstractContextManager[PreTrainedModel]], Way | None]:
    if not config.kl_coef:
        return _no_reference, None
    if config.ref_model is None:
        reference = copy.deepcopy(model)
    else:
        reference = load_model(config.ref_model, device=device).model
        ours, theirs = (one.get_output_embeddings().weight.shape[0] for one in (model, reference))
        if ours != theirs:
            raise ConfigError(
                f"--ref-model {config.ref_model} has {theirs} tokens and --model {ours}; they must share a tokenizer"
            )
    reference.requires_grad_(False)
    use_onednn(reference)
    use_blocks(reference)
    way, _ = choose_way(reference, drawn_rows(reference))  # in float32, where no fault hides in rounding
    reference.to(getattr(torch, config.ref_dtype))
    return lambda: contextlib.nullcontext(reference), way


def _no_reference() -> AbstractContextManager[PreTrainedModel]:
    raise AssertionError("a reference is kept only when kl_coef > 0")


def _attached(model: PreTrainedModel, config: TrainConfig) -> Any:
    """The model with a new adapter, or with the one to go on with and its frozen copy. Raises ConfigError."""
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError as error:
        raise ConfigError(f"adapters need peft ({error}): pip install peft") from error
    try:
        if config.adapter is None:
            wanted = LoraConfig(
                r=config.lora_rank,
                lora_alpha=config.lora_alpha,  # type: ignore[arg-type]  # a float does; peft says int
                target_modules=list(config.lora_targets) or "all-linear",
                use_dora=config.dora,
                task_type="CAUSAL_LM",
            )
            return get_peft_model(model, wanted)
        adapted: Any = PeftModel.from_pretrained(model, str(config.adapter), is_trainable=True)
        check_adapter(adapted, config.adapter, config.model)
        if config.kl_coef and config.ref_model is None:
            adapted.load_adapter(str(config.adapter), adapter_name=_FROZEN, is_trainable=False)
        return adapted
    except ConfigError:
        raise
    except SafetensorError as error:
        raise ConfigError(f"--adapter {config.adapter}: its weights cannot be read ({error}); copy it again") from error
    except (ValueError, OSError) as error:
        raise ConfigError(f"cannot attach the adapter: {str(error).splitlines()[0]}") from error
    except RuntimeError as error:  # what torch raises for weights of other shapes
        if config.adapter is None:
            raise
        raise ConfigError(f"--adapter {config.adapter} does not fit --model {config.model}: other shapes") from error


def check_adapter(adapted: Any, adapter: Path, model: str) -> None:
    """Raise ConfigError when file and model have not the same adapted layers: peft passes over that in silence."""
    from peft import get_peft_model_state_dict

    if not (adapter / _WEIGHTS).exists():
        return
    prefix = adapted.base_model.prefix
    wanted = {name for name in get_peft_model_state_dict(adapted, save_embedding_layers=False) if prefix in name}
    with safe_open(adapter / _WEIGHTS, framework="pt") as file:
        there = {name for name in file.keys() if prefix in name}  # noqa: SIM118  # it is no mapping
    for names, what in ((there - wanted, "have no place there"), (wanted - there, "are missing in it")):
        if names:
            raise ConfigError(misfit(adapter, model, f"{len(names)} weights {what}, such as {min(names)}"))


def misfit(adapter: Path, model: str, reason: str) -> str:
    """That an adapter is not this model's, in words."""
    return f"--adapter {adapter} does not fit --model {model}: {reason}. Name the model that it was trained on"


def _with_adapter(model: PreTrainedModel, config: TrainConfig, *, device: str) -> Trained:
    adapted = _attached(model, config)
    adapted.eval()  # dropout is off in sampling and in every pass of training alike
    policy: PreTrainedModel = adapted.get_base_model()

    @contextlib.contextmanager
    def frozen_adapter() -> Any:
        adapted.set_adapter(_FROZEN)
        try:
            yield policy
        finally:
            adapted.set_adapter("default")

    @contextlib.contextmanager
    def without_adapter() -> Any:
        with adapted.disable_adapter():
            yield policy

    reference: Any = without_adapter if config.adapter is None else frozen_adapter
    reference_way: Way | None = None
    if config.ref_model is not None:
        reference, reference_way = _frozen_reference(policy, config, device=device)

    def load_adapter(path: Path) -> None:
        from peft import load_peft_weights, set_peft_model_state_dict

        found: Any = set_peft_model_state_dict(adapted, load_peft_weights(str(path), device=device), "default")
        if found.unexpected_keys:
            raise ConfigError(f"{path} holds another adapter: it has {found.unexpected_keys[0]}")

    trained, total = adapted.get_nb_trainable_parameters()
    return Trained(
        policy,
        lambda path: adapted.save_pretrained(str(path), selected_adapters=["default"], save_embedding_layers=False),
        load_adapter,
        reference,
        reference_way,
        note=f"training an adapter: {trained:,} of {total:,} weights",
    )


def trainable(model: PreTrainedModel) -> list[torch.nn.Parameter]:
    """The weights that learn."""
    return [one for one in model.parameters() if one.requires_grad]
