"""Flags from the fields of typed configs: what a field is called, holds, says and defaults to is written there once."""

from __future__ import annotations

import argparse
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from grpo_client.errors import ConfigError
from grpo_client.options.option import section
from grpo_client.options.settings import Setting
from grpo_client.options.spellings import aliases, dashed, unknown

_YES_NO = {True: "yes", False: "no"}
_METAVARS = {int: "INT", float: "FLOAT", Path: "PATH", str: "TEXT"}


@dataclass(frozen=True, slots=True)
class Flag:
    """A field offered by a command. Without a name and help of its own it goes by the field's."""

    model: type[BaseModel]
    field: str
    section: str = "options"
    name: str | None = None
    help: str | None = None

    @property
    def info(self) -> FieldInfo:
        """The field."""
        return self.model.model_fields[self.field]

    @property
    def spellings(self) -> tuple[str, ...]:
        """All of its names as flags, the one to show first."""
        names = (self.name,) if self.name is not None else (self.field, *aliases(self.info))
        return tuple(dict.fromkeys(name if name.startswith("-") else dashed(name) for name in names))


def all_flags(model: type[BaseModel]) -> list[Flag]:
    """Every field as a flag, under the title of its section."""
    return [Flag(model, field, section(model, field)) for field in model.model_fields]


def some_flags(model: type[BaseModel], fields: Sequence[str], section: str = "options") -> list[Flag]:
    """Some fields as flags, by their own names."""
    return [Flag(model, field, section) for field in fields]


class Parser(argparse.ArgumentParser):
    """argparse, with `-` and `_` alike, no abbreviations, ConfigError for faults, and flags from fields."""

    def __init__(self, prog: str, *, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            usage=f"{prog} [OPTIONS]",
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=_Formatter,
        )
        self._flags: dict[str, Flag] = {}
        self._sections: dict[str, Any] = {"options": self}

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(f"{self.prog}: {message}; see {self.prog} --help")

    def add_flags(self, flags: Sequence[Flag]) -> None:
        """Offer fields, each section under its title."""
        for flag in flags:
            if flag.section not in self._sections:
                self._sections[flag.section] = self.add_argument_group(flag.section)
            dest = f"{flag.model.__name__}.{flag.field}"
            self._flags[dest] = flag
            self._sections[flag.section].add_argument(*flag.spellings, dest=dest, help=_help(flag), **_takes(flag.info))
            if flag.info.annotation is bool:
                no = [spelling.replace("--", "--no-", 1) for spelling in flag.spellings]
                self.add_argument(*no, dest=dest, action="store_const", const="false", help=argparse.SUPPRESS)

    def read(self, arguments: Sequence[str]) -> Given:
        """What was given: settings by model, the rest of what the parser defines, and faults."""
        parsed, extra = self.parse_known_args([_dashes(argument) for argument in arguments])
        settings: dict[type[BaseModel], list[Setting]] = {flag.model: [] for flag in self._flags.values()}
        for dest, value in vars(parsed).items():
            if (flag := self._flags.get(dest)) is not None:
                settings[flag.model].append(Setting(flag.field, value, flag.spellings[0]))
        others = {name: value for name, value in vars(parsed).items() if name not in self._flags}
        return Given(settings, others, self._faults(extra))

    def _faults(self, extra: Sequence[str]) -> list[str]:
        known = [
            spelling.removeprefix("--").replace("-", "_")
            for action in self._actions
            for spelling in action.option_strings
            if spelling.startswith("--")
        ]
        faults = []
        value_of_unknown = False
        for argument in extra:
            if argument.startswith("-"):
                name = argument.partition("=")[0]
                faults.append(f"{name}: {unknown(name, known, kind='option')}")
            elif not value_of_unknown:
                faults.append(f"{argument!r} belongs to no option")
            value_of_unknown = argument.startswith("-")
        return faults


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a command, read and not yet judged."""

    settings: Mapping[type[BaseModel], list[Setting]]
    others: Mapping[str, Any]
    faults: list[str]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`--steps, --iters INT`: what it takes is said once, as Python 3.13 does."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest)}"


def _dashes(argument: str) -> str:
    """`--max_steps=a_b` as `--max-steps=a_b`."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def _takes(info: FieldInfo) -> dict[str, Any]:
    """How argparse reads a field: strings, which the model makes numbers of."""
    if info.annotation is bool:
        return {"nargs": "?", "const": "true", "metavar": "BOOL"}
    if get_origin(info.annotation) is tuple:
        return {"nargs": "+", "action": "extend", "metavar": _metavar(get_args(info.annotation)[0])}
    return {"metavar": _metavar(info.annotation)}


def _metavar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "{" + ",".join(get_args(annotation)) + "}"
    if get_origin(annotation) in (Union, types.UnionType):
        return _metavar(next(one for one in get_args(annotation) if one is not types.NoneType))
    return _METAVARS.get(annotation, "TEXT")


def _help(flag: Flag) -> str:
    text = flag.help or flag.info.description or ""
    default = flag.info.default
    if flag.info.is_required():
        text += " (required)"
    elif flag.info.default_factory is None and default not in (None, ()):
        text += f" (default: {_YES_NO[default] if isinstance(default, bool) else default})"
    return text.replace("%", "%%")
