"""The output folder of a run: claimed once, or taken up again with its records cut back to a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import yaml

from grpo_client.batch import Batch
from grpo_client.checkpoint import CHECKPOINTS, Checkpoint, clear_remains
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError

METRICS = "metrics.jsonl"
ROLLOUTS = "rollouts.jsonl"
EVALS = "evals.jsonl"
FINAL = "final"


def claim_output(config: TrainConfig, checkpoint: Checkpoint | None) -> Path:
    """Make the output folder, or take it up after a checkpoint. Raises ConfigError when it holds another run.

    With `overwrite` what it holds is removed.
    """
    folder = config.output_dir
    holds_run = (folder / METRICS).exists() or (folder / CHECKPOINTS).exists()
    if holds_run and checkpoint is None:
        cut_short = config.resume == "auto" and not (folder / FINAL).exists()  # before its first checkpoint
        if not (config.overwrite or cut_short):
            raise ConfigError(
                f"{folder} holds a run already; go on with it (--resume auto), choose another --output-dir, or "
                "--overwrite it"
            )
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear_remains(folder)
        if checkpoint is not None and checkpoint.path.resolve().is_relative_to(folder.resolve()):
            for name in (METRICS, ROLLOUTS, EVALS):
                cut_back(folder / name, checkpoint.step)
        elif holds_run and checkpoint is not None and not config.overwrite:
            raise ConfigError(f"{folder} holds another run than {checkpoint.path}; choose another --output-dir")
        (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    except OSError as error:
        raise ConfigError(f"--output-dir {folder}: {error.strerror}") from error
    return folder


def cut_back(file: Path, step: int) -> None:
    """Keep a record's lines up to `step`: the later ones are written again. A last line cut short is dropped."""
    if not file.exists():
        return
    beside = file.with_name(f".{file.name}.partial")
    with file.open(encoding="utf-8", newline="\n") as old, beside.open("w", encoding="utf-8", newline="\n") as new:
        for line in old:
            if not line.endswith("\n") or json.loads(line)["step"] > step:
                break
            new.write(line)
        new.flush()
        os.fsync(new.fileno())
    beside.replace(file)


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
