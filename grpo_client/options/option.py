"""What a field of a config is besides its type, default and text, said where the field stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of a field: `steps: Annotated[int, Option(("--max-steps", "--iters"), may_change=True)]`."""

    aliases: tuple[str, ...] = ()  # other trainers' names, where they mean the same
    may_change: bool = False  # between a run and its resumption, which then is still the same run
    card: Literal["table", "command", "no"] = "command"  # table: always; command: when not the default; no: of a moment
    also_in: str | None = None  # the heading under which commands that sample and train nothing offer it, too
    trains_only: bool = False  # such commands leave it out of a run's config


class Section(BaseModel):
    """Settings under one title of `--help`. A config inherits from its sections."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    title: ClassVar[str]


def option(field: FieldInfo) -> Option:
    """What a field says of itself."""
    return next((one for one in field.metadata if isinstance(one, Option)), Option())


def options(model: type[BaseModel]) -> dict[str, Option]:
    """What each field of a model says of itself, by name."""
    return {name: option(field) for name, field in model.model_fields.items()}


def section(model: type[BaseModel], field: str) -> str:
    """The title of the section that a field stands in; `options` where it stands in none."""
    home = next(base for base in reversed(model.__mro__) if field in getattr(base, "model_fields", ()))
    title: str = vars(home).get("title", "options")
    return title
