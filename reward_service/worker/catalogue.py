"""What a reward is, and the list of rewards that a worker serves.

`@reward` turns a function into a `Reward` and registers nothing: `Catalogue([...])` lists the members where a reader
can see them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reward_service.worker.digest import Closure, closure_of, digest_of
from reward_service.worker.types import Item, Outcome

NEEDS = frozenset({"gold", "prompt", "metadata", "token_count", "token_ids", "group"})

_JSON_TYPES = {"float": "number", "int": "integer", "str": "string", "bool": "boolean"}

# Of one item: a number or an Outcome. Of a whole group (`needs` has "group"): a list of them.
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Lock:
    """Exact versions of every package that can move a reward's numbers, under a name that people can say."""

    name: str
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Reward:
    """One version of one reward. Calling it scores one item."""

    id: str
    function: Function
    doc: str
    source: str
    range: tuple[float | None, float | None]
    needs: tuple[str, ...]
    uses: tuple[str, ...]
    params: Mapping[str, Any]
    lock: Lock | None
    deprecated: bool

    @property
    def whole_group(self) -> bool:
        """Whether it is called once a group, with all items and the outcomes of what it uses, instead of per item."""
        return "group" in self.needs

    def __call__(self, item: Item, **params: Any) -> float | Outcome:
        result: float | Outcome = self.function(item, **params)
        return result


def reward(
    name: str,
    *,
    version: int,
    range: tuple[float | None, float | None],
    needs: Iterable[str] = (),
    uses: Iterable[str] = (),
    source: str = "",
    lock: Lock | None = None,
    deprecated: bool = False,
) -> Callable[[Function], Reward]:
    """Describe a function `(item, *, param=default, …) -> float | Outcome` as version `version` of reward `name`.

    Raises ValueError for a need that does not exist, a version below 1 or a parameter without type or default.
    """
    unknown = sorted(set(needs) - NEEDS)
    if unknown:
        raise ValueError(f"reward {name!r} needs {unknown}, which no request carries; known: {sorted(NEEDS)}")
    if "group" in needs and "gold" in needs:
        raise ValueError(f"reward {name!r} sees a whole group; let a reward that it `uses` compare with the gold")
    if version < 1:
        raise ValueError(f"reward {name!r}: versions count from 1, not {version}")

    def describe(function: Function) -> Reward:
        return Reward(
            id=f"{name}@{version}",
            function=function,
            doc=inspect.getdoc(function) or "",
            source=source,
            range=range,
            needs=tuple(needs),
            uses=tuple(uses),
            params=params_schema(function),
            lock=lock,
            deprecated=deprecated,
        )

    return describe


def params_schema(function: Function) -> dict[str, Any]:
    """JSON Schema of a reward function's parameters: its keyword-only arguments, each with a type and a default."""
    properties = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        kind = _JSON_TYPES.get(getattr(parameter.annotation, "__name__", str(parameter.annotation)))
        if kind is None or parameter.default is inspect.Parameter.empty:
            raise ValueError(
                f"{function.__name__}: parameter {parameter.name!r} wants a default and a type of {sorted(_JSON_TYPES)}"
            )
        properties[parameter.name] = {"type": kind, "default": parameter.default}
    return {"type": "object", "properties": properties, "additionalProperties": False}


class Catalogue:
    """The rewards that are served, by id. Two rewards of one id raise."""

    def __init__(self, rewards: Iterable[Reward]) -> None:
        self._rewards: dict[str, Reward] = {}
        for member in rewards:
            if member.id in self._rewards:
                raise ValueError(f"two rewards are called {member.id}; a released version is never replaced")
            self._rewards[member.id] = member
        for member in self:
            for used in member.uses:
                if used not in self._rewards:
                    raise ValueError(f"{member.id} uses {used}, which is not in the catalogue")

    def __iter__(self) -> Iterator[Reward]:
        return iter(self._rewards.values())

    def __getitem__(self, reward_id: str) -> Reward:
        return self._rewards[reward_id]

    def __contains__(self, reward_id: object) -> bool:
        return reward_id in self._rewards

    def closure(self, reward_id: str) -> Closure:
        """The top-level definitions that determine this reward's numbers."""
        function = self[reward_id].function
        return closure_of(function.__module__, function.__name__)

    def digest(self, reward_id: str) -> str:
        """`sha256:…` over everything that determines this reward's numbers."""
        member = self[reward_id]
        return digest_of(
            reward_id,
            closure=self.closure(reward_id),
            params=member.params,
            uses={used: self.digest(used) for used in member.uses},
            lock=member.lock.packages if member.lock else {},
        )
