"""Suites: named, versioned lists of weighted rewards, from YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator
from reward_proto import v1

BUILT_IN = Path(__file__).with_name("suites.yaml")
_SUITE_ID = r"^[a-z0-9][a-z0-9_.-]*@[1-9][0-9]*$"


class SuiteError(Exception):
    """A suite file that cannot be served: which file, which suite, what is wrong."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    name: str | None = None
    weight: FiniteFloat = 1.0
    params: dict[str, Any] = Field(default_factory=dict)


class _Suite(BaseModel):
    model_config = ConfigDict(extra="forbid")

    doc: str
    rewards: Annotated[list[_Entry], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> _Suite:
        names = [entry.name or entry.id for entry in self.rewards]
        if len(set(names)) != len(names):
            raise ValueError("two rewards share a name; give each its own `name`")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    suites: dict[Annotated[str, Field(pattern=_SUITE_ID)], _Suite]


class Suites:
    """The suites of the built-in file and of the user's, by id. An id that stands in both raises."""

    def __init__(self, *paths: Path) -> None:
        self._suites: dict[str, v1.SuiteInfo] = {}
        for path in paths:
            for suite_id, suite in _read(path).suites.items():
                if suite_id in self._suites:
                    raise SuiteError(f"{path}: suite {suite_id} exists already; a suite never changes: add a version")
                rewards = [
                    v1.SuiteReward(id=one.id, name=one.name or one.id, weight=one.weight, params=one.params)
                    for one in suite.rewards
                ]
                self._suites[suite_id] = v1.SuiteInfo(id=suite_id, doc=suite.doc, rewards=rewards)

    def __iter__(self) -> Iterator[v1.SuiteInfo]:
        return iter(self._suites.values())

    def get(self, suite_id: str) -> v1.SuiteInfo | None:
        return self._suites.get(suite_id)

    def check(self, rewards: Mapping[str, v1.RewardInfo]) -> None:
        """Raise SuiteError when a suite names a reward that is not served."""
        for suite in self:
            for entry in suite.rewards:
                if entry.id not in rewards:
                    raise SuiteError(f"suite {suite.id} names {entry.id}, which no reward has")


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise SuiteError(f"{path}: {error}") from error
