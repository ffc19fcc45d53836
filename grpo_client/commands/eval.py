"""`grpo-client eval`: a model on held-out data, over the same path as evaluation in training."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from pydantic import Field
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from grpo_client.backends import load_backend
from grpo_client.commands.common import config_of, parser
from grpo_client.config import TrainConfig
from grpo_client.data.prompts import evaluation_examples, prompt_builder
from grpo_client.errors import ConfigError, StorageError
from grpo_client.evaluation import Evaluation, Record, evaluate, evaluation_sampling, top_value
from grpo_client.options.flags import Flag
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.rollout import Sampler
from grpo_client.terminal import printable
from grpo_client.types import Group, Prompt

_SUMMARY = "Evaluate a model on held-out data: accuracy, pass@k, lengths. The path is that of evaluation in training."
_EXAMPLES = """examples:
  grpo-client eval --model runs/first/final --data test.jsonl --reward math.equal@2
  grpo-client eval --model HuggingFaceTB/SmolLM2-135M-Instruct --adapter runs/lora/final --data openai/gsm8k \\
      --data-config main --samples 8 --temperature 0.7 --limit 200
  grpo-client eval --config runs/first/config.yaml --model runs/first/final      with the prompts of a run

exit codes: 0 done, 2 configuration or data, 3 reward service, 5 disk, 130 interrupted
"""


class EvalConfig(TrainConfig):
    """A training config and what evaluation alone needs."""

    limit: int | None = Field(default=None, ge=1, description="Evaluate on the first so many rows. Default: all.")
    output: Path | None = Field(
        default=None, description="JSONL file for every completion; must be new. Default: eval-DATE-TIME.jsonl."
    )


_FLAGS = [
    Flag(EvalConfig, "eval_data", name="data", help="What to evaluate on, in the forms of `train --data`."),
    Flag(EvalConfig, "eval_split", name="split"),
    Flag(EvalConfig, "eval_reward", name="reward"),
    Flag(EvalConfig, "eval_samples", name="samples", help="Completions of each prompt; above 1 pass@k is told."),
    Flag(EvalConfig, "eval_temperature", name="temperature", help="Of sampling; 0 is greedy."),
    Flag(EvalConfig, "limit"),
    Flag(EvalConfig, "output"),
]


def main(arguments: Sequence[str]) -> int:
    """Evaluate and print a table."""
    reader = parser("grpo-client eval", EvalConfig, _FLAGS, service=True, summary=_SUMMARY, examples=_EXAMPLES)
    config = config_of(EvalConfig, reader.read(arguments))
    console = Console()
    with RewardClient(
        config.reward_url,
        timeout=config.reward_timeout,
        retry_seconds=config.reward_retry_seconds,
        on_retry=lambda message: console.print(Text(message), soft_wrap=True),
    ) as rewards:
        manifest = rewards.resolve(suite=None, rewards=[(config.eval_reward, 1.0)])
        top_value(manifest, config.eval_reward)
        evaluation, output = run(config, rewards, manifest, console)
    console.print(summary_table(evaluation, manifest, config))
    console.print(Text(f"every completion is in {output}"), soft_wrap=True)
    return 0


def run(config: EvalConfig, rewards: RewardClient, manifest: Manifest, console: Console) -> tuple[Evaluation, Path]:
    """Sample, score and write. Returns the file of completions."""
    every_row = {"eval_every": 1, "eval_prompts": config.limit or -1}
    rows = evaluation_examples(config.model_copy(update=every_row))
    if not rows:
        raise ConfigError("name what to evaluate on: --data FILE, a Hugging Face dataset, or addition")
    output = config.output or Path(time.strftime("eval-%Y%m%d-%H%M%S.jsonl"))
    with _new_file(output) as file:
        console.print(Text(f"loading {config.model}"), soft_wrap=True)
        backend = load_backend(config)
        prompts = prompt_builder(config)(rows, backend.tokenizer)
        note = backend.settle(prompts, max_completion_length=config.max_completion_length)
        for one in (*backend.notes, note):
            if one:
                console.print(Text(one), soft_wrap=True)
        with contextlib.closing(Sampler(backend, rewards, run_id="eval")) as sampler:
            return _evaluated(config, sampler, prompts, manifest, file, console), output


def _evaluated(
    config: EvalConfig, sampler: Sampler, prompts: Sequence[Prompt], manifest: Manifest, file: IO[str], console: Console
) -> Evaluation:
    bar = Progress(
        TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    sampling = evaluation_sampling(config)
    with bar:
        task = bar.add_task("", total=len(prompts))

        def take(groups: Sequence[Group], records: Sequence[Record]) -> None:
            file.writelines(json.dumps(one, ensure_ascii=False, allow_nan=False) + "\n" for one in records)
            file.flush()
            bar.advance(task, len(records) / sampling.group_size)

        return evaluate(sampler, prompts, sampling, manifest, judge=config.eval_reward, on_groups=take)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """A file that was not there, removed again when nothing was written. Raises ConfigError, or StorageError later."""
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"--output {path} exists; name another file, or remove it") from None
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror}") from error
    try:
        with file:
            yield file
    except OSError as error:
        raise StorageError(f"{path} cannot be written to: {error.strerror or error}") from error
    finally:
        if path.stat().st_size == 0:
            path.unlink()


def summary_table(evaluation: Evaluation, manifest: Manifest, config: EvalConfig) -> Table:
    """The numbers of an evaluation."""
    (spec,) = manifest.rewards
    prompts = len({record["prompt_index"] for record in evaluation.records})
    table = Table(title=Text(f"{spec.id} {(spec.digest or '')[:19]}"), show_header=False)
    table.add_row("model", Text(printable(config.model + (f" + {config.adapter}" if config.adapter else ""))))
    table.add_row("sampling", "greedy" if not config.eval_temperature else f"temperature {config.eval_temperature:g}")
    table.add_row("prompts × samples", f"{prompts} × {len(evaluation.records) // prompts}")
    table.add_row("accuracy", _percent(evaluation.accuracy))
    for k, value in evaluation.pass_at.items() if config.eval_samples > 1 else ():
        table.add_row(f"pass@{k}", _percent(value))
    table.add_row("mean score", "-" if evaluation.reward is None else f"{evaluation.reward:.4g}")
    table.add_row("mean length", f"{evaluation.mean_length:.1f} tokens")
    table.add_row("cut at the limit", _percent(evaluation.clipped_ratio))
    nulls = ", ".join(f"{status} {count}" for status, count in evaluation.null_statuses.items())
    table.add_row("unscored", Text(nulls or "none"))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
