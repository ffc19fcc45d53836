"""From the rewards that a request names to the versions that are served, and what each needs of the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reward_proto import v1

from reward_service.errors import ProblemError, fault, unknown
from reward_service.params import wrong_params


class RewardLookup(Protocol):
    """The served rewards, and why one that is known cannot be served."""

    rewards: Mapping[str, v1.RewardInfo]
    unavailable: Mapping[str, str]
    fleets: Mapping[str, str]


@dataclass(frozen=True)
class Resolved:
    """A reward of a request, found."""

    info: v1.RewardInfo
    fleet: str
    name: str
    weight: float
    params: dict[str, Any]

    @property
    def whole_group(self) -> bool:
        """Whether it sees all completions of a group at once."""
        return "group" in self.info.needs

    def served(self) -> v1.ServedReward:
        """As the answer names it."""
        return v1.ServedReward(
            name=self.name,
            id=self.info.id,
            weight=self.weight,
            params=self.params,
            digest=self.info.digest,
            draft=self.info.status == "draft",
        )


def resolve(spec: v1.RewardSpec, lookup: RewardLookup, *, path: Sequence[str | int]) -> Resolved:
    """Find a reward and check what was asked of it.

    Raises ProblemError: 404 unknown, 409 another digest, 422 parameters, 503 known but not to be had.
    """
    if spec.id in lookup.unavailable:
        raise ProblemError(503, lookup.unavailable[spec.id], retry_after=60)
    info = lookup.rewards.get(spec.id)
    if info is None:
        raise unknown("reward", spec.id, lookup.rewards)
    if spec.digest is not None and spec.digest not in {info.digest, *info.history}:
        raise ProblemError(409, f"{info.id} is served with digest {info.digest}, which is not the one asked for")
    wrong = wrong_params(info.id, schema=info.params, params=spec.params)
    if wrong is not None:
        raise fault([*path, "params"], wrong)
    return Resolved(info, lookup.fleets[spec.id], spec.name or spec.id, spec.weight, dict(spec.params))


def check_needs(groups: Sequence[v1.Group], rewards: Sequence[Resolved]) -> None:
    """Raise 422 naming reward and field when a reward needs what the request lacks. (A missing gold is a status.)"""
    for reward in rewards:
        for need in reward.info.needs:
            for path, value in _needed(need, groups):
                if value is None:
                    raise fault(path, f"{reward.info.id} needs `{need}`")


def _needed(need: str, groups: Sequence[v1.Group]) -> Iterator[tuple[list[str | int], object]]:
    for g, group in enumerate(groups):
        match need:
            case "prompt" | "metadata":
                yield ["groups", g, need], getattr(group, need)
            case "token_count" | "token_ids":
                for c, completion in enumerate(group.completions):
                    yield ["groups", g, "completions", c, need], getattr(completion, need)


def with_used(rewards: Sequence[Resolved], lookup: RewardLookup) -> list[Resolved]:
    """The rewards, and after them those that group rewards use and the request does not name itself."""
    asked = {(reward.info.id, bool(reward.params)) for reward in rewards}
    used = dict.fromkeys(used for reward in rewards for used in reward.info.uses)
    hidden = [used_id for used_id in used if (used_id, False) not in asked]
    specs = [v1.RewardSpec(id=used_id, name=f"used {used_id}", weight=0.0) for used_id in hidden]
    return [*rewards, *(resolve(spec, lookup, path=["rewards"]) for spec in specs)]
