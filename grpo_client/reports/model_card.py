"""The README.md of a saved model: what it is, what paid it, how it fared, and the command that makes it again.

Names and values come from configs, services and data: each stands in a code span or block, where Markdown and HTML mean
nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import yaml

from grpo_client.config import TrainConfig
from grpo_client.data.tokenizers import public_name
from grpo_client.options.option import option, options
from grpo_client.rewards.client import Manifest
from grpo_client.types import Metrics

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_FILES = {".gguf", ".json", ".jsonl"}


def model_card(
    config: TrainConfig, manifest: Manifest, rows: Sequence[Metrics], *, step: int, versions: Mapping[str, str]
) -> str:
    """The model card, with the front matter that the Hugging Face hub reads.

    rows are those of metrics.jsonl up to `step`, the one after which the model is saved; versions those of packages.
    """
    parts = [
        f"---\n{yaml.safe_dump(front_matter(config), sort_keys=False, allow_unicode=True)}---",
        f"# {code(config.run_name or config.output_dir.name)}",
        f"{code(config.model)}, trained for {step} steps with GRPO on {code(config.data)} by Hallmark.",
        "## Rewards",
        _rewards(manifest),
        *_changes(rows),
        *_training(rows),
        *_evaluation(config, rows),
        "## Settings",
        _table(["setting", "value"], [[code(key), code(_text(value))] for key, value in _settings(config).items()]),
        "Again:",
        fenced(command(config), "sh"),
        "Versions: " + ", ".join(f"{code(name)} {code(version)}" for name, version in versions.items()) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def front_matter(config: TrainConfig) -> dict[str, Any]:
    """The metadata of the card. Only what is a hub id is said to be one: the hub refuses others."""
    base, data = _hub_id(public_name(config.model)), _hub_id(config.data)
    adapter = bool(config.lora_rank or config.adapter)
    return (
        ({"base_model": base} if base else {})
        | ({"datasets": [data]} if data else {})
        | {"library_name": _library(config, adapter=adapter), "pipeline_tag": "text-generation"}
        | {"tags": ["grpo", "reinforcement-learning", "hallmark", *(["lora"] if adapter else [])]}
    )


def _library(config: TrainConfig, *, adapter: bool) -> str:
    if config.backend == "mlx":
        return "mlx"
    return "peft" if adapter else "transformers"


def command(config: TrainConfig) -> str:
    """The command line of the training: every setting that is not its default, for a shell."""
    words = ["grpo-client", "train"]
    fields = type(config).model_fields
    for name, value in public_settings(config).items():
        if option(fields[name]).card == "no" or getattr(config, name) == fields[name].get_default():
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag.removeprefix("--"))
        else:
            for one in map(str, value if isinstance(value, list) else [value]):
                words += [f"{flag}={one}"] if one.startswith("-") else [flag, one]  # `-x` alone would be a flag
    return shlex.join(words)


def public_settings(config: TrainConfig) -> dict[str, Any]:
    """The config as JSON has it, less a user name and password in the service's URL: reports and cards are shown."""
    return config.model_dump(mode="json") | {"reward_url": str(httpx.URL(config.reward_url).copy_with(userinfo=b""))}


def _hub_id(name: str) -> str | None:
    path = Path(name)
    local = path.suffix in _FILES or path.exists()
    return name if _HUB_ID.fullmatch(name) and not local else None


def _settings(config: TrainConfig) -> dict[str, Any]:
    shown = [name for name, one in options(type(config)).items() if one.card == "table"]
    return {name: getattr(config, name) for name in shown} | {"scale_rewards": config.scale}


def _rewards(manifest: Manifest) -> str:
    rows = []
    for spec in manifest.rewards:
        info = manifest.infos[spec.id]
        params = code(json.dumps(spec.params, ensure_ascii=False)) if spec.params else ""
        digest = spec.digest or info.digest
        rows.append([code(spec.name or spec.id), code(spec.id), f"{spec.weight:g}", params, info.status, code(digest)])
    suite = f", as the suite {code(manifest.suite)}" if manifest.suite else ""
    heading = f"From Hallmark's reward service {code(manifest.service)}{suite}:"
    return f"{heading}\n\n{_table(['name', 'reward', 'weight', 'parameters', 'status', 'digest'], rows)}"


def _changes(rows: Sequence[Metrics]) -> list[str]:
    """Where the rewards did not stay the same: which suite scored which steps, and accepted changes."""
    scored = [(row["step"], row["reward/suite"]) for row in rows if row.get("reward/suite") is not None]
    spans = [(suite, [step for step, _ in part]) for suite, part in groupby(scored, key=lambda one: one[1])]
    said = []
    if len(spans) > 1:
        parts = "; ".join(f"{code(str(suite))} scored steps {steps[0]} to {steps[-1]}" for suite, steps in spans)
        said.append(f"The rewards moved during the training: {parts}.")
    changed = [str(row["step"]) for row in rows if row.get("reward/changed")]
    if changed:
        said.append(f"Other rewards than before were accepted on resuming at step {', '.join(changed)}.")
    return said


def _training(rows: Sequence[Metrics]) -> list[str]:
    """The first and the last step's rewards, and how many results had no number."""
    steps = [row for row in rows if "reward" in row]
    if not steps:
        return []
    first, last = steps[0], steps[-1]
    named = [key for key in last if key.startswith("rewards/") and key.endswith("/mean")]
    table = _table(
        ["mean over a step", f"step {first['step']}", f"step {last['step']}"],
        [
            [code(key.removeprefix("rewards/").removesuffix("/mean")), _number(first.get(key)), _number(last.get(key))]
            for key in ["reward", *named, "completions/mean_length", "kl"]
        ],
    )
    nulls = sum(int(value or 0) for row in steps for key, value in row.items() if key.startswith("reward/null/"))
    return ["## Training", table, f"Results without a score, left out of the learning: {nulls}."]


def _evaluation(config: TrainConfig, rows: Sequence[Metrics]) -> list[str]:
    """Held-out accuracy before, at its best, and at the end."""
    found = [row for row in rows if row.get("eval/accuracy") is not None]
    if not found:
        return []
    best = max(found, key=lambda row: float(row["eval/accuracy"] or 0.0))
    shown = {
        str(row["step"]): row for row in sorted([found[0], best, found[-1]], key=lambda row: int(row["step"] or 0))
    }
    table = _table(
        ["step", "held-out accuracy", "unscored"],
        [[step, _number(row["eval/accuracy"]), _number(row.get("eval/null"))] for step, row in shown.items()],
    )
    last = found[-1]
    rule = (
        f"{config.eval_samples} a prompt at temperature {config.eval_temperature:g}; right by "
        f"{code(str(last.get('eval/reward_id')))}, {code(str(last.get('eval/reward_digest')))}."
    )
    return ["## Evaluation", table, rule]


# ---- Markdown ----------------------------------------------------------------------------------------------


def code(text: str) -> str:
    """Any text as a code span: on one line, in a fence longer than its longest run of backticks."""
    text = "".join(char if char.isprintable() else " " for char in text)
    fence = _fence(text, least=1)
    pad = " " if text[:1] in ("`", " ", "") or text[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str) -> str:
    """Any text as a code block."""
    fence = _fence(text, least=3)
    return f"{fence}{language}\n{text}\n{fence}"


def _fence(text: str, *, least: int) -> str:
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A pipe in a cell is escaped, which tables want even within code spans."""
    lines = [[cell.replace("|", "\\|") for cell in cells] for cells in (heading, ["---"] * len(heading), *rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _number(value: float | int | str | None) -> str:
    return "unknown" if value is None else f"{float(value):.4g}"


def _text(value: object) -> str:
    return "none" if value is None else str(value)
