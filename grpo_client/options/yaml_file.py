"""YAML files of settings.

YAML 1.1 would make `1e-5` a string, `off` false and `1.10` 1.1: here every scalar is a string, and the model knows what
it must be.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from grpo_client.errors import ConfigError
from grpo_client.options.settings import Setting


class _Loader(yaml.SafeLoader):
    """Scalars are strings, but null: the model knows the types."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])


def read_yaml(path: Path) -> list[Setting]:
    """The settings of a file. Raises ConfigError for a file that cannot be read or is no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"--config {path}: not a UTF-8 text") from None
    try:
        return _settings(path, text)
    except RecursionError:
        raise ConfigError(f"--config {path}: brackets within brackets, too deep to be read") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise ConfigError(f"--config {path}{line}: not YAML ({problem})") from None


def _settings(path: Path, text: str) -> list[Setting]:
    loader = _Loader(text)
    node = loader.get_single_node()
    match node:
        case None | yaml.ScalarNode(tag="tag:yaml.org,2002:null"):
            return []
        case yaml.MappingNode():
            return [
                Setting(str(key.value), loader.construct_object(value, deep=True), _where(path, key), path)
                for key, value in node.value
            ]
    raise ConfigError(f"--config {path}: settings are expected, one `name: value` a line")


def _where(path: Path, key: yaml.Node) -> str:
    return f"{path}, line {key.start_mark.line + 1}, {key.value}"
