"""`grpo-client doctor`: is everything there that a run needs, and what to do about what is not."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from grpo_client import backends
from grpo_client.commands import machine
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError, HallmarkError
from grpo_client.options.flags import Parser, all_flags
from grpo_client.options.settings import resolve
from grpo_client.rewards.client import RewardClient
from grpo_client.terminal import columns, one_line

_SUMMARY = "Check the installation, the machine, the reward service and a model. Each line is ok, warn or fail."
_EXAMPLES = """examples:
  grpo-client doctor
  grpo-client doctor --reward-url http://localhost:8000 --model HuggingFaceTB/SmolLM2-135M-Instruct --output-dir runs

exit codes: 0 nothing failed, 2 something did
"""
_GB = 1e9
_LITTLE_DISK, _LITTLE_MEMORY = 10 * _GB, 4 * _GB
_TORCH = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "peft")
_MLX = ("mlx", "mlx-lm")
_OPTIONAL = {"peft": "adapters (--lora-rank, --adapter) need it", "datasets": "Hugging Face data sets need it"}


class DoctorConfig(BaseModel):
    """What to look at."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward_url: str = Field(
        default=TrainConfig.model_fields["reward_url"].default, description="Where the reward service answers."
    )
    reward_timeout: float = Field(default=5.0, gt=0, description="Seconds to wait for its answer.")
    model: str | None = Field(default=None, description="A model whose tokenizer to load; its weights are not.")
    output_dir: Path = Field(default=Path("runs"), description="Where runs are to be kept.")


@dataclass(frozen=True, slots=True)
class Finding:
    """A line: how it is, of what, what was found, and what to do where it is not ok."""

    level: Literal["ok", "warn", "fail"]
    what: str
    found: str
    remedy: str = ""


def main(arguments: Sequence[str]) -> int:
    """Look at everything, print a line each."""
    parser = Parser("grpo-client doctor", description=_SUMMARY, epilog=_EXAMPLES)
    parser.add_flags(all_flags(DoctorConfig))
    given = parser.read(arguments)
    config = resolve(DoctorConfig, given.settings[DoctorConfig], faults=given.faults)
    found = list(findings(config))
    print("\n".join(columns([[one.level, one.what, _text(one)] for one in found], indent="")))
    return ConfigError.exit_code if any(one.level == "fail" for one in found) else 0


def _text(finding: Finding) -> str:
    return one_line(finding.found + (f": {finding.remedy}" if finding.remedy else ""))


def findings(config: DoctorConfig) -> Iterator[Finding]:
    """Every line, in order."""
    yield _python()
    yield from _packages()
    yield from _devices()
    yield _memory()
    yield _disk(config.output_dir)
    yield _service(config)
    if config.model is not None:
        yield _model(config.model)


def _python() -> Finding:
    return Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Finding]:
    yield Finding("ok", "hallmark-rl", _version("hallmark-rl") or "not installed; run from its source")
    trains = _version("torch") or _version("mlx")
    if not trains:
        yield Finding(
            "fail", "torch, mlx", "neither is installed", "pip install 'hallmark-rl[torch]', or [mlx] on a Mac"
        )
    for package in (*(_TORCH if _version("torch") else ()), *(_MLX if _version("mlx") else ()), "datasets"):
        version = _version(package)
        if version is not None:
            yield Finding("ok", package, version)
        elif package in _OPTIONAL:
            yield Finding("warn", package, "not installed", f"{_OPTIONAL[package]}; pip install {package}")
        else:
            yield Finding("fail", package, "not installed", "pip install 'hallmark-rl[torch]'")


def _devices() -> Iterator[Finding]:
    cores = machine.cores()
    try:
        devices, threads = backends.devices(), backends.threads()
    except (ImportError, OSError) as error:
        yield Finding("fail", "torch", f"cannot be imported ({error})", "install it again")
        return
    if threads is None:
        yield Finding("ok", "cpu", f"{cores} cores")
        return
    for one in devices:
        level: Literal["ok", "warn"] = "ok" if one.free > one.total / 2 else "warn"
        remedy = "" if level == "ok" else "another process holds the rest; see nvidia-smi"
        yield Finding(level, one.name, f"{one.model}, {one.free / _GB:.0f} of {one.total / _GB:.0f} GB free", remedy)
    if not devices:
        yield Finding("ok", "cuda", "no device; runs take --device cpu")
    found = f"{cores} cores, {threads} threads"
    if threads > cores:
        yield Finding("warn", "cpu", found, f"more threads than cores is slow; set OMP_NUM_THREADS={cores}")
    else:
        yield Finding("ok", "cpu", found)


def _memory() -> Finding:
    total, free = machine.total_memory(), machine.free_memory()
    if total is None:
        return Finding("ok", "memory", "unknown")
    if free is None:
        return Finding("ok", "memory", f"{total / _GB:.1f} GB")
    found = f"{free / _GB:.1f} of {total / _GB:.1f} GB free"
    if free < _LITTLE_MEMORY:
        return Finding("warn", "memory", found, "little for a model with its optimizer; try train --dry-run")
    return Finding("ok", "memory", found)


def _disk(folder: Path) -> Finding:
    try:
        there, free = machine.free_disk(folder)
    except OSError as error:
        return Finding("fail", "disk", f"{folder}: {error.strerror}", "name another --output-dir")
    found = f"{free / _GB:.1f} GB free at {folder}"
    if not there.is_dir() or not os.access(there, os.W_OK):
        return Finding("fail", "disk", f"{there} cannot be written to", "name another --output-dir")
    if free < _LITTLE_DISK:
        return Finding("warn", "disk", found, "a checkpoint takes three times the model's size; make room")
    return Finding("ok", "disk", found)


def _service(config: DoctorConfig) -> Finding:
    try:
        with RewardClient(config.reward_url, timeout=config.reward_timeout, retry_seconds=0.0) as client:
            info, why_not, workers = client.info(), client.why_not_ready(), client.workers()
    except HallmarkError as error:
        return Finding("fail", "service", str(error))
    found = f"{client.url}: service {info.service}, contract {info.contract}"
    if workers is not None:
        found += f", {workers} workers"
    if why_not is not None:
        return Finding("fail", "service", found, f"not ready ({why_not}); wait, or look at its log")
    return Finding("ok", "service", found)


def _model(name: str) -> Finding:
    try:
        from grpo_client.data.tokenizers import load_tokenizer

        tokenizer = load_tokenizer(name)
    except (ConfigError, ImportError) as error:
        return Finding("fail", "model", str(error))
    found = f"{name}: its tokenizer has {len(tokenizer):,} tokens"
    if tokenizer.chat_template is None:
        return Finding("warn", "model", found, "no chat template, so prompts are plain text; use an instruct model")
    return Finding("ok", "model", found)
