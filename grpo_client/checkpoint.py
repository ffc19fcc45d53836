"""The output folder: claimed once, models written beside and renamed whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import yaml

from grpo_client.backends.base import Backend
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError

METRICS = "metrics.jsonl"


def claim_output(config: TrainConfig) -> Path:
    """Make the output folder. Raises ConfigError when it holds a run, unless `overwrite`; then it is emptied."""
    folder = config.output_dir
    if (folder / METRICS).exists():
        if not config.overwrite:
            raise ConfigError(f"{folder} holds a run already; choose another --output-dir, or --overwrite it")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    except OSError as error:
        raise ConfigError(f"--output-dir {folder}: {error.strerror}") from error
    return folder


def save_model(backend: Backend, folder: Path, name: str) -> Path:
    """Save a model as `folder/name`: written beside and renamed whole, so that what bears the name is complete."""
    target, beside = folder / name, folder / f".{name}.{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        backend.save(beside)
        shutil.rmtree(target, ignore_errors=True)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target
