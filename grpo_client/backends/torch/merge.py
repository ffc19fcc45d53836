"""An adapter added into the weights that it was trained on, as a model of its own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from grpo_client.backends.torch.adapters import check_adapter, misfit
from grpo_client.backends.torch.models import load_model, quiet
from grpo_client.data.tokenizers import public_name
from grpo_client.errors import ConfigError


def merge_adapter(model: str, adapter: Path, output: Path, *, dtype: str, same_base: bool) -> int:
    """Write base + adapter as a Hugging Face model with tokenizer and generation config. Returns its weights' number.

    Added in float32, written in dtype. same_base: that the adapter was trained on another name is no reason to refuse.
    Raises ConfigError when the adapter does not belong to the model, or the output is there already; OSError.
    """
    from peft import PeftModel

    settings = _settings(adapter)
    _check_name(settings.get("base_model_name_or_path"), model, adapter, same_base=same_base)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"--output {output} is there already; name another folder, or remove it")
    loaded = load_model(model, device="cpu")
    try:
        adapted: Any = PeftModel.from_pretrained(loaded.model, str(adapter))
    except (ValueError, RuntimeError, KeyError, OSError, SafetensorError) as error:
        raise ConfigError(misfit(adapter, model, str(error).strip().splitlines()[0])) from error
    if not hasattr(adapted, "merge_and_unload"):
        raise ConfigError(f"--adapter {adapter}: adapters of type {settings.get('peft_type')} cannot be merged")
    check_adapter(adapted, adapter, model)
    _check_tied(loaded.model, adapted, adapter)
    try:
        merged = adapted.merge_and_unload(safe_merge=True)
    except (ValueError, NotImplementedError, AttributeError) as error:
        raise ConfigError(f"--adapter {adapter} cannot be merged: {error}") from error
    merged.to(getattr(torch, dtype))
    _write(merged, loaded.tokenizer, output)
    return sum(int(one.numel()) for one in merged.parameters())


def _settings(adapter: Path) -> dict[str, Any]:
    file = adapter / "adapter_config.json"
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--adapter {adapter}: no adapter is there ({file.name}: {error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"--adapter {adapter}: {file.name} is not JSON ({error})") from None
    if "fine_tune_type" in settings:
        raise ConfigError(
            f"--adapter {adapter} is one of mlx-lm's; `mlx_lm.fuse --model MODEL --adapter-path {adapter}` merges it"
        )
    return settings


def _check_name(trained_on: str | None, model: str, adapter: Path, *, same_base: bool) -> None:
    same = not trained_on or trained_on == public_name(model) or Path(trained_on).resolve() == Path(model).resolve()
    if not (same or same_base):
        raise ConfigError(
            f"--adapter {adapter} was trained on {trained_on}, not on {model}. If they hold the same weights, say so "
            "with --same-base"
        )


def _check_tied(model: Any, adapted: Any, adapter: Path) -> None:
    """Raise ConfigError where the adapter sits on a matrix that embedding and head share: it would be added to both."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    ends = [getattr(one, "base_layer", one) for one in (embedding, head)]
    adapts_an_end = any(hasattr(one, "base_layer") for one in (embedding, head))
    if adapts_an_end and ends[0].weight is ends[1].weight:
        raise ConfigError(
            f"--adapter {adapter} adapts the embedding or the head, which are one matrix in this model: merged, it "
            "would change both. Use it as it is (--adapter), or train one without lm_head and embed_tokens in "
            "--lora-targets"
        )


def _write(model: Any, tokenizer: Any, output: Path) -> None:
    """Beside, then renamed whole."""
    beside = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        with quiet():
            model.save_pretrained(beside)
            tokenizer.save_pretrained(beside)
        if output.exists():
            output.rmdir()
        beside.rename(output)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
