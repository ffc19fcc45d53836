"""Suites: named, versioned lists of weighted rewards, from YAML.

A released suite never changes: the digest of its rewards, with their names, weights and parameters, stands in
`<file>.released.json` beside its file, and one that no longer fits it is not served. Its doc, its comments and its
formatting may change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator
from reward_proto import v1

from reward_service.params import wrong_params

BUILT_IN = Path(__file__).with_name("suites.yaml")
_SUITE_ID = r"^[a-z0-9][a-z0-9_.-]*@[1-9][0-9]*$"


class SuiteError(Exception):
    """Suite files that cannot be served: a line for each flaw, with the file, the suite and what is wrong."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: v1.Name
    name: v1.Name | None = None
    weight: FiniteFloat = 1.0
    params: dict[str, v1.Json] = Field(default_factory=dict)


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


class _HasParams(Protocol):
    @property
    def params(self) -> Mapping[str, Any]: ...


class Suites:
    """The suites of some files, by id. Raises SuiteError for an id that stands in two, and for a changed release."""

    def __init__(self, *paths: Path) -> None:
        self._suites: dict[str, v1.SuiteInfo] = {}
        self._files: dict[str, Path] = {}
        for path in paths:
            released = read_released_suites(path)
            for suite_id, suite in _read(path).suites.items():
                if suite_id in self._suites:
                    raise SuiteError(
                        f"{path}: {suite_id}: exists already in {self._files[suite_id]}; "
                        "a suite never changes: add a version"
                    )
                self._suites[suite_id] = _info(suite_id, suite, released)
                self._files[suite_id] = path
            moved = [one for one in released.keys() & self._suites if self._suites[one].digest != released[one]]
            if moved:
                raise SuiteError("\n".join(f"{path}: {one}: {_CHANGED}" for one in sorted(moved)))

    def __iter__(self) -> Iterator[v1.SuiteInfo]:
        return iter(self._suites.values())

    def get(self, suite_id: str) -> v1.SuiteInfo | None:
        return self._suites.get(suite_id)

    def file_of(self, suite_id: str) -> Path:
        """The file that a suite stands in."""
        return self._files[suite_id]

    def check(self, rewards: Mapping[str, _HasParams], *, elsewhere: Container[str] = ()) -> None:
        """Raise SuiteError when suites name rewards that nothing has, or parameters that these do not take.

        Rewards `elsewhere` are known but not to be had now; what they take cannot be said.
        """
        flaws = []
        for suite in self:
            for entry in suite.rewards:
                if entry.id in rewards:
                    what = wrong_params(entry.id, schema=rewards[entry.id].params, params=entry.params)
                else:
                    what = None if entry.id in elsewhere else f"names {entry.id}, which no reward has"
                if what is not None:
                    flaws.append(f"{self._files[suite.id]}: {suite.id}: {what}")
        if flaws:
            raise SuiteError("\n".join(flaws))


_CHANGED = "is released, but its rewards, names, weights or parameters here are not what was released; add a version"


def read_released_suites(path: Path) -> dict[str, str]:
    """The digests of the released suites of a file, by id."""
    record = released_file(path)
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        return {suite_id: str(one["digest"]) for suite_id, one in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise SuiteError(f"{record}: is no record of released suites: {error!r}; restore it") from error


def released_file(path: Path) -> Path:
    """Where the releases of a suite file are recorded: beside it."""
    return path.with_name(path.name + ".released.json")


def _info(suite_id: str, suite: _Suite, released: Container[str]) -> v1.SuiteInfo:
    rewards = [
        v1.SuiteReward(id=one.id, name=one.name or one.id, weight=one.weight, params=one.params)
        for one in suite.rewards
    ]
    return v1.SuiteInfo(
        id=suite_id,
        doc=suite.doc,
        rewards=rewards,
        digest=_digest(suite_id, rewards),
        status="released" if suite_id in released else "draft",
    )


def _digest(suite_id: str, rewards: list[v1.SuiteReward]) -> str:
    content = {"id": suite_id, "rewards": [[one.id, one.name, one.weight, one.params] for one in rewards]}
    return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> _File:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # a SafeLoader
        return _File.model_validate(content)
    except ValidationError as error:
        raise SuiteError("\n".join(_flaw(path, one["loc"], one["msg"]) for one in error.errors())) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SuiteError(f"{path}: {error}") from error


def _flaw(path: Path, location: tuple[int | str, ...], message: str) -> str:
    match location:
        case ("suites", suite_id, *within):
            where = ".".join(str(part) for part in within)
            return f"{path}: {suite_id}: {where}: {message}" if where else f"{path}: {suite_id}: {message}"
    return f"{path}: {'.'.join(map(str, location)) or 'the file'}: {message}"


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error. PyYAML keeps the last in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} stands here twice; a suite never changes: add a version", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
