"""`grpo-client validate-data`: the data of a run, every row looked at, before training on it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from grpo_client.commands.common import config_of, parser
from grpo_client.config import TrainConfig
from grpo_client.data.tokenizers import load_tokenizer
from grpo_client.data.validation import render, validate
from grpo_client.errors import ConfigError
from grpo_client.options.flags import some_flags

_SUMMARY = "Look at every row of a data set as a run would: what cannot be used, repeats, lengths, the first prompt."
_EXAMPLES = """examples:
  grpo-client validate-data --data train.jsonl --eval-data test.jsonl --model HuggingFaceTB/SmolLM2-135M-Instruct
  grpo-client validate-data --config run.yaml

exit codes: 0 a run would start with this data, 2 it would not
"""
_FIELDS = ("data", "data_split", "eval_data", "eval_split", "eval_prompts", "metadata_column", "prompts_per_step")


def main(arguments: Sequence[str]) -> int:
    """Validate and show the report."""
    own = some_flags(TrainConfig, _FIELDS, "data")
    reader = parser("grpo-client validate-data", TrainConfig, own, service=False, summary=_SUMMARY, examples=_EXAMPLES)
    config = config_of(TrainConfig, reader.read(arguments))
    report = validate(config, load_tokenizer(config.model))
    render(report, Console())
    return 0 if report.ok else ConfigError.exit_code
