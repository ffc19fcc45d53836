"""What commands that load a model share: its flags, and the config that `load_backend` takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from grpo_client.config import TrainConfig
from grpo_client.options.flags import Flag, Given, Parser, some_flags
from grpo_client.options.settings import Setting, resolve
from grpo_client.options.spellings import normal
from grpo_client.options.yaml_file import read_yaml

_MODEL = ("model", "backend", "device", "dtype")
_PROMPTS = ("system_prompt", "few_shot", "max_prompt_length", "data_config", "question_column", "gold_column")
_SAMPLING = ("max_completion_length", "top_p", "top_k", "min_p", "stop", "sampling_rows", "seed")
_SERVICE = ("reward_url", "reward_timeout", "reward_retry_seconds")

# Of a run that is given as --config: they say what it trains, and the adapter is named apart.
_OF_TRAINING = ("lora_rank", "lora_alpha", "lora_targets", "dora", "ref_model", "ref_dtype", "kl_coef")

C = TypeVar("C", bound=TrainConfig)


def parser(
    prog: str, model: type[TrainConfig], own: Sequence[Flag], *, service: bool, summary: str, examples: str
) -> Parser:
    """A parser of a command's own flags, and of those of the config that say which model samples how."""
    made = Parser(prog, description=summary, epilog=examples)
    made.add_argument("--config", metavar="PATH", help="YAML file of settings, such as a run's; flags come before it")
    made.add_flags(own)
    made.add_flags([Flag(model, "adapter", "model", help="Folder of an adapter to put on the model.")])
    for section, fields in (("model", _MODEL), ("prompts", _PROMPTS), ("sampling", _SAMPLING)):
        made.add_flags(some_flags(model, [field for field in fields if field in model.model_fields], section))
    if service:
        made.add_flags(some_flags(model, _SERVICE, "service"))
    return made


def config_of(model: type[C], given: Given) -> C:
    """The config of a command that trains nothing: rewards to train with need not be named. Raises ConfigError."""
    defaults = [Setting("reward", TrainConfig.model_fields["eval_reward"].default, "default")]
    file = given.others.get("config")
    from_file = [one for one in (read_yaml(Path(file)) if file else []) if normal(one.name) not in _OF_TRAINING]
    if any(setting.name in ("suite", "reward") and setting.value for setting in from_file):
        defaults = []
    return resolve(model, [*defaults, *from_file, *given.settings[model]], faults=given.faults)
