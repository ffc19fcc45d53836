"""Settings from flags and files to a typed config: later ones over earlier ones, judged together, every fault said.

Values stay strings until the model makes them what they must be: `1e-5`, `off` and `1.10` mean in a file what they mean
on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from grpo_client.errors import ConfigError
from grpo_client.options.spellings import dashed, normal, spellings, unknown

_MOST_SHOWN = 60  # characters of a value in a message
_ONE_OF = ("suite", "reward")  # a flag for one of these puts the file's choice aside

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as it was written, under which name and where (`--steps` or `run.yaml, line 3, steps`)."""

    name: str
    value: Any
    where: str
    file: Path | None = None


def resolve(model: type[M], settings: Iterable[Setting], *, faults: Sequence[str] = ()) -> M:
    """The model that the settings describe, later ones over earlier ones. Raises ConfigError with every fault.

    faults are those that the caller has found already.
    """
    names = spellings(model)
    found: dict[str, Setting] = {}
    faults = list(faults)
    for setting in settings:
        field = names.get(normal(setting.name))
        if field is None:
            faults.append(f"{setting.where}: {unknown(setting.name, names, kind='setting')}")
            continue
        before = found.get(field)
        if before is not None and setting.file is not None and before.file == setting.file:
            faults.append(f"{setting.where}: is set already ({before.where}); keep one")
            continue
        if field in _ONE_OF and setting.file is None:
            found = {name: one for name, one in found.items() if name not in _ONE_OF or one.file is None}
        found[field] = setting
    resolved, more = _judged(model, found)
    faults += more
    if resolved is None or faults:
        raise ConfigError(in_one_message(faults))
    return resolved


def _judged(model: type[M], found: Mapping[str, Setting]) -> tuple[M | None, list[str]]:
    """The model, or what is wrong with the values and, as far as these do not matter, with how they go together."""
    values = {name: _plain(model.model_fields[name], setting.value) for name, setting in found.items()}
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        faults = [_fault(one, found) for one in error.errors()]
        wrong = {str(one["loc"][0]) for one in error.errors() if one["loc"]}
    try:
        if wrong:
            model.model_validate({name: value for name, value in values.items() if name not in wrong})
    except ValidationError as error:
        together = [_fault(one, found) for one in error.errors() if not one["loc"]]
        faults += [one for one in together if not any(dashed(name) in one for name in wrong)]
    return None, faults


def in_one_message(faults: Sequence[str]) -> str:
    """Faults as one text, each on a line when there are several."""
    if len(faults) == 1:
        return faults[0]
    return f"{len(faults)} faults in the configuration:" + "".join(f"\n  - {fault}" for fault in faults)


def _plain(field: FieldInfo, value: Any) -> Any:
    """A value in the form that the field takes: one of a list, and `no` where YAML makes that of `off`."""
    literals = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if "off" in literals and value in (False, "no", "false", "False"):
        return "off"
    if get_origin(field.annotation) is tuple and isinstance(value, str | int | float):
        return [value]
    return value


def _fault(error: ErrorDetails, found: Mapping[str, Setting]) -> str:
    if error["type"] == "missing":
        return f"{dashed(str(error['loc'][0]))} is needed"
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = re.sub(r", unable to .*|, got a number with a fractional part", "", message)
    setting = found.get(str(error["loc"][0])) if error["loc"] else None
    if setting is None:
        return message
    value = repr(error["input"])
    return f"{setting.where}: {message}, not {value if len(value) <= _MOST_SHOWN else value[:_MOST_SHOWN] + '…'}"
