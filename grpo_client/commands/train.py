"""`grpo-client train`: flags and a YAML file to a config, and the run that it describes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

from grpo_client.config import TrainConfig
from grpo_client.options.flags import Parser, all_flags
from grpo_client.options.settings import resolve
from grpo_client.options.yaml_file import read_yaml
from grpo_client.train import train

_EXAMPLES = """examples:
  grpo-client train --suite r1@1 --data train.jsonl --model HuggingFaceTB/SmolLM2-135M-Instruct --output-dir runs/first
  grpo-client train --reward math.equal@2=1 --reward format.tags@1=0.2 --data openai/gsm8k --data-config main
  grpo-client train --config run.yaml --learning-rate 1e-5      flags come before the file, the file before defaults
  grpo-client train --config runs/first/config.yaml --output-dir runs/second --seed 1
  grpo-client train --config run.yaml --dry-run                 one tiny step for real; says what the run would do

A file holds the same settings, one `name: value` a line, lists for what may be repeated. TRL's and mlx_lm's names are
accepted where they mean the same, in flags and files alike.

exit codes: 0 done, 2 configuration or data, 3 reward service, 4 not finite, 5 disk, 6 nothing learnt, 130 interrupted
"""


def parser() -> Parser:
    """The command's flags: every field of TrainConfig."""
    made = Parser("grpo-client train", description=inspect.cleandoc(TrainConfig.__doc__ or ""), epilog=_EXAMPLES)
    made.add_argument("--config", metavar="PATH", help="YAML file of settings; flags come before it")
    made.add_argument("--dry-run", action="store_true", help="check everything, take one tiny step, write nothing")
    made.add_flags(all_flags(TrainConfig))
    return made


def main(arguments: Sequence[str]) -> int:
    """Train, or with `--dry-run` say what training would do."""
    given = parser().read(arguments)
    file = given.others.get("config")
    settings = [*(read_yaml(Path(file)) if file else []), *given.settings[TrainConfig]]
    config = resolve(TrainConfig, settings, faults=given.faults)
    if given.others.get("dry_run"):
        from grpo_client.commands.dry_run import dry_run

        dry_run(config)
    else:
        train(config)
    return 0
