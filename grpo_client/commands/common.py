"""What commands that load a model share: its flags, and the config that `load_backend` takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from grpo_client.config import TrainConfig
from grpo_client.options.flags import Flag, Given, Parser, some_flags
from grpo_client.options.option import options
from grpo_client.options.settings import Setting, resolve
from grpo_client.options.spellings import normal, spellings
from grpo_client.options.yaml_file import read_yaml

_HEADINGS = ("model", "prompts", "sampling")

C = TypeVar("C", bound=TrainConfig)


def parser(
    prog: str, model: type[TrainConfig], own: Sequence[Flag], *, service: bool, summary: str, examples: str
) -> Parser:
    """A parser of a command's own flags, and of those of the config that say which model samples how."""
    made = Parser(prog, description=summary, epilog=examples)
    made.add_argument("--config", metavar="PATH", help="YAML file of settings, such as a run's; flags come before it")
    made.add_flags(own)
    made.add_flags([Flag(model, "adapter", "model", help="Folder of an adapter to put on the model.")])
    for heading in (*_HEADINGS, "service") if service else _HEADINGS:
        offered = [name for name, one in options(model).items() if one.also_in == heading]
        made.add_flags(some_flags(model, offered, heading))
    return made


def config_of(model: type[C], given: Given) -> C:
    """The config of a command that trains nothing: rewards to train with need not be named. Raises ConfigError."""
    defaults = [Setting("reward", TrainConfig.model_fields["eval_reward"].default, "default")]
    file = given.others.get("config")
    left_out = _trains_only(model)
    from_file = [one for one in (read_yaml(Path(file)) if file else []) if normal(one.name) not in left_out]
    if any(setting.name in ("suite", "reward") and setting.value for setting in from_file):
        defaults = []
    return resolve(model, [*defaults, *from_file, *given.settings[model]], faults=given.faults)


def _trains_only(model: type[TrainConfig]) -> set[str]:
    """The names of what says how a run trains. What it made is the model, or an adapter that is named apart."""
    of = options(model)
    return {name for name, field in spellings(model).items() if of[field].trains_only}
