"""When a run must stop, or somebody should look: nulls that grow, updates that are not finite.

What the guards remember is saved with a checkpoint, so that a resumed run stops where the other one would have.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_client.backends.base import UpdateStats
from grpo_client.errors import NotFiniteError, RewardServiceError
from grpo_client.rewards.nulls import null_places, null_statuses, provoked
from grpo_client.types import Group

_WINDOW = 10  # steps
_WORTH_A_WARNING = 0.02  # of completions with a null that the policy may have provoked
_RISE = 2.0


class Guards:
    """Watches the steps of a run."""

    def __init__(self, *, max_null_fraction: float, max_not_finite: int) -> None:
        self._max_null_fraction = max_null_fraction
        self._max_not_finite = max_not_finite
        self._steps: deque[tuple[int, int, int]] = deque(maxlen=2 * _WINDOW)  # completions, nulls, provoked ones
        self._not_finite_in_a_row = 0
        self._warned = False

    def state(self) -> dict[str, Any]:
        """What is remembered, as JSON."""
        return {
            "steps": [list(one) for one in self._steps],
            "not_finite_in_a_row": self._not_finite_in_a_row,
            "warned": self._warned,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what `state` said."""
        self._steps.extend((size, nulls, provoked) for size, nulls, provoked in state["steps"])
        self._not_finite_in_a_row = state["not_finite_in_a_row"]
        self._warned = state["warned"]

    def watch(self, groups: Sequence[Group], updates: Sequence[UpdateStats]) -> str | None:
        """A warning, where one is due. Raises RewardServiceError or NotFiniteError when the run must stop."""
        nulls = sum(len(null_places(group)) for group in groups)
        self._steps.append((sum(len(group.rollouts) for group in groups), nulls, provoked(groups)))
        self._check_nulls(groups)
        if all(update.applied for update in updates):
            self._not_finite_in_a_row = 0
        else:
            self._not_finite_in_a_row += 1
            if self._not_finite_in_a_row >= self._max_not_finite:
                raise NotFiniteError(
                    f"loss or gradient were not finite in {self._not_finite_in_a_row} steps in a row. Look at the "
                    "batches in not-finite/, lower --learning-rate or --max-grad-norm, or use --dtype float32"
                )
        return self._rising()

    def _check_nulls(self, groups: Sequence[Group]) -> None:
        recent = list(self._steps)[-_WINDOW:]
        size, nulls = sum(one[0] for one in recent), sum(one[1] for one in recent)
        if nulls <= self._max_null_fraction * size:
            return
        statuses = Counter(
            status for group in groups for g in null_places(group) for status in sorted(null_statuses(group, g))
        )
        named = ", ".join(f"{status} {count}" for status, count in statuses.most_common())
        raise RewardServiceError(
            f"{nulls} of the last {size} completions have no score, more than --max-null-fraction "
            f"{self._max_null_fraction:g} allows; in this step: {named or 'none'}. rollouts.jsonl has them; mend golds "
            "or rewards, or raise the limit"
        )

    def _rising(self) -> str | None:
        """Whether the policy seems to have found that a null is a refuge. Said once for each rise."""
        old, new = list(self._steps)[:-_WINDOW], list(self._steps)[-_WINDOW:]
        if not old:
            return None
        before, now = (sum(one[2] for one in part) / max(sum(one[0] for one in part), 1) for part in (old, new))
        rises = now > _WORTH_A_WARNING and now > _RISE * before
        warning = None
        if rises and not self._warned:
            warning = (
                f"warning: {now:.0%} of the last {_WINDOW} steps' completions timed out or were too large to score, "
                f"{before:.0%} before. The policy may be learning to be unscored; see --on-null worst"
            )
        self._warned = rises
        return warning
