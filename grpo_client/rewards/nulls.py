"""What is learnt where a completion has no score: `--on-null`.

`bad_gold`, `crashed`, `error` and `expired` are no fault of the policy, so such a completion is always left out.
`timeout` and `too_large` can be provoked, and where a null is a refuge from a wrong answer the policy may move there:
`worst` gives such a completion the lowest score of its group instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grpo_client.errors import RewardServiceError
from grpo_client.types import Group, Scores

PROVOCABLE = frozenset({"timeout", "too_large"})

OnNull = Callable[[Group], Group]


def mask(group: Group) -> Group:
    """Unscored completions are in no sum and in no denominator."""
    return group


def worst(group: Group) -> Group:
    """A null that the policy may have provoked counts as the group's lowest score, reward by reward and in total."""
    places = [g for g in null_places(group) if null_statuses(group, g) <= PROVOCABLE]
    if not places:
        return group
    values = {name: _filled(column, places) for name, column in group.scores.values.items()}
    return replace(group, learnt=Scores(_filled(group.scores.totals, places), values, group.scores.statuses))


def drop_group(group: Group) -> Group:
    """A group with a null is left out whole: its mean would be that of the others."""
    if not null_places(group):
        return group
    nothing: list[float | None] = [None] * len(group.rollouts)
    values = {name: list(nothing) for name in group.scores.values}
    return replace(group, learnt=Scores(nothing, values, group.scores.statuses))


def fail(group: Group) -> Group:
    """Raises RewardServiceError at the first null."""
    for g in null_places(group):
        statuses = ", ".join(sorted(null_statuses(group, g)))
        raise RewardServiceError(
            f"completion {g} of prompt {group.prompt.index} has no score ({statuses}) and --on-null is fail. Score it "
            "by hand with `grpo-client rewards --score`, mend gold or reward, or learn without it: --on-null mask"
        )
    return group


ON_NULL: dict[str, OnNull] = {"mask": mask, "worst": worst, "drop-group": drop_group, "fail": fail}


def null_places(group: Group) -> list[int]:
    """Which completions have no total."""
    return [g for g, total in enumerate(group.scores.totals) if total is None]


def null_statuses(group: Group, place: int) -> frozenset[str]:
    """Why: the statuses of the rewards that gave a completion no score."""
    scores = group.scores
    return frozenset(scores.statuses[name][place] for name in scores.values if scores.values[name][place] is None)


def provoked(groups: Sequence[Group]) -> int:
    """How many completions have no total for a reason that the policy may have provoked."""
    return sum(null_statuses(group, g) <= PROVOCABLE for group in groups for g in null_places(group))


def _filled(column: Sequence[float | None], places: Sequence[int]) -> list[float | None]:
    """A column with its lowest value at those places where it has none; as it is where it has none at all."""
    lowest = min((value for value in column if value is not None), default=None)
    return [lowest if g in places and value is None else value for g, value in enumerate(column)]
