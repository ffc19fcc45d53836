"""The output folder of a run: claimed once, or taken up again with its records cut back to a checkpoint."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import yaml

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError, StorageError
from grpo_client.learning.batch import Batch
from grpo_client.storage.checkpoint import CHECKPOINTS, Checkpoint, checkpoint_folders, clear_remains, set_later_aside

METRICS = "metrics.jsonl"
ROLLOUTS = "rollouts.jsonl"
EVALS = "evals.jsonl"
FINAL = "final"
CONFIG = "config.yaml"
_LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and keep other runs out of it. Raises ConfigError where one is in it, or it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK).open("w")
    except OSError as error:
        raise ConfigError(f"--output-dir {folder}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"another run is at work in {folder}; wait for its end, or choose another --output-dir"
            ) from None
        yield


def claim_output(config: TrainConfig, checkpoint: Checkpoint | None) -> list[str]:
    """Make the output folder ready for a new run, or take it up after a checkpoint. What is to be said of it.

    With `overwrite` what it holds is removed. Raises ConfigError when it holds another run.
    """
    folder, said = config.output_dir, []
    holds_run = (folder / METRICS).exists() or (folder / CHECKPOINTS).exists()
    own = checkpoint is not None and checkpoint.path.resolve().is_relative_to(folder.resolve())
    try:
        if own and checkpoint is not None:
            clear_remains(folder)
            said += set_later_aside(folder, checkpoint.step)
            for name in (METRICS, ROLLOUTS, EVALS):
                cut_back(folder / name, checkpoint.step)
        elif holds_run:
            # Killed before its first checkpoint, a run begins anew.
            cut_short = config.resume == "auto" and checkpoint is None and not (folder / FINAL).exists()
            if not (config.overwrite or cut_short):
                raise ConfigError(_holds(folder, checkpoint))
            if not config.overwrite:
                said.append(f"{folder} holds no checkpoint to go on from: the run begins anew")
            _empty(folder)
        (folder / CONFIG).write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    except OSError as error:
        raise ConfigError(f"--output-dir {folder}: {error.strerror}") from error
    return said


def _holds(folder: Path, checkpoint: Checkpoint | None) -> str:
    if checkpoint is not None:
        return f"{folder} holds another run than {checkpoint.path}; choose another --output-dir, or --overwrite it"
    there = checkpoint_folders(folder)
    how = "go on with it (--resume auto), choose" if there else "it has no checkpoint to go on from; choose"
    return f"{folder} holds a run already; {how} another --output-dir, or --overwrite it"


def _empty(folder: Path) -> None:
    """Remove what a folder holds but its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


@contextlib.contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """What cannot be written is a StorageError that says where and why."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{folder} cannot be written to: {error.strerror or error}") from error


def cut_back(file: Path, step: int) -> None:
    """Keep a record's lines up to `step`: the later ones are written again. A last line cut short is dropped."""
    if not file.exists():
        return
    beside = file.with_name(f".{file.name}.partial")
    with file.open(encoding="utf-8", newline="\n") as old, beside.open("w", encoding="utf-8", newline="\n") as new:
        for number, line in enumerate(old, start=1):
            if not line.endswith("\n") or _step_of(line, f"{file}, line {number}") > step:
                break
            new.write(line)
        new.flush()
        os.fsync(new.fileno())
    beside.replace(file)


def _step_of(line: str, where: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{where}: no record of a run; mend or remove the file") from None


def save_for_study(folder: Path, step: int, batches: Sequence[Batch]) -> Path:
    """The batches of a step whose loss or gradient was not finite, as JSON: tokens, logprobs, advantages."""
    file = folder / "not-finite" / f"step-{step:06d}.json"
    file.parent.mkdir(exist_ok=True)
    document = [
        {
            "prompts": [list(prompt) for prompt in batch.prompts],
            "denominators": asdict(batch.denominators),
            "rows": [
                {
                    key: value for key, value in asdict(row).items() if key != "kept"
                }  # ids drawn from: whole vocabularies
                for row in batch.rows
            ],
        }
        for batch in batches
    ]
    file.write_text(json.dumps(document), encoding="utf-8")
    return file
