"""When a run must stop, or somebody should look: nulls that grow, updates that are not finite, steps without a lesson.

What the guards remember is saved with a checkpoint, so that a resumed run stops where the other one would have.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_client.backends.base import UpdateStats
from grpo_client.errors import NotFiniteError, NothingLearntError, RewardServiceError
from grpo_client.learning.advantages import Advantages
from grpo_client.rewards.nulls import null_places, null_statuses, provoked
from grpo_client.types import Group

_WINDOW = 10  # steps
_WORTH_A_WARNING = 0.02  # of completions with a null that the policy may have provoked
_RISE = 2.0
_IDLE_IS_WORTH_A_WARNING = 10  # steps in a row that taught nothing


class Guards:
    """Watches the steps of a run."""

    def __init__(
        self, *, max_null_fraction: float, max_not_finite: int, max_idle_steps: int, mask_truncated: bool
    ) -> None:
        self._max_null_fraction = max_null_fraction
        self._max_not_finite = max_not_finite
        self._max_idle_steps = max_idle_steps
        self._mask_truncated = mask_truncated
        self._steps: deque[tuple[int, int, int]] = deque(maxlen=2 * _WINDOW)  # completions, nulls, provoked ones
        self._not_finite_in_a_row = 0
        self._warned = False
        self._idle_in_a_row = 0
        self._has_learnt = False

    def state(self) -> dict[str, Any]:
        """What is remembered, as JSON."""
        return {
            "steps": [list(one) for one in self._steps],
            "not_finite_in_a_row": self._not_finite_in_a_row,
            "warned": self._warned,
            "idle_in_a_row": self._idle_in_a_row,
            "has_learnt": self._has_learnt,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what `state` said."""
        self._steps.extend((size, nulls, provoked) for size, nulls, provoked in state["steps"])
        self._not_finite_in_a_row = state["not_finite_in_a_row"]
        self._warned = state["warned"]
        self._idle_in_a_row = state.get("idle_in_a_row", 0)  # checkpoints of before 2026-12 have no such count
        self._has_learnt = state.get("has_learnt", True)

    def watch(self, groups: Sequence[Group], advantages: Advantages, updates: Sequence[UpdateStats]) -> list[str]:
        """The warnings that are due. Raises HallmarkError where the run must stop."""
        first = not self._steps
        nulls = sum(len(null_places(group)) for group in groups)
        self._steps.append((sum(len(group.rollouts) for group in groups), nulls, provoked(groups)))
        self._check_nulls(groups)
        self._check_finite(updates)
        return [*(_all_cut(groups) if first else ()), *self._idle(groups, advantages), *self._rising()]

    def _check_finite(self, updates: Sequence[UpdateStats]) -> None:
        if all(update.applied for update in updates):
            self._not_finite_in_a_row = 0
            return
        self._not_finite_in_a_row += 1
        if self._not_finite_in_a_row >= self._max_not_finite:
            raise NotFiniteError(
                f"loss or gradient were not finite in {self._not_finite_in_a_row} steps in a row. Look at the "
                "batches in not-finite/, lower --learning-rate or --max-grad-norm, or use --dtype float32"
            )

    def _idle(self, groups: Sequence[Group], advantages: Advantages) -> Iterator[str]:
        """A warning where nothing has been learnt for long. Raises NothingLearntError where nothing ever was.

        A run that has learnt may come to steps in which all is right: these do not end it.
        """
        if self._taught(groups, advantages):
            self._idle_in_a_row, self._has_learnt = 0, True
            return
        self._idle_in_a_row += 1
        scores = [total for group in groups for total in group.rewards.totals if total is not None]
        what = f"scores from {min(scores):g} to {max(scores):g}" if scores else "no score at all"
        said = (
            f"{self._idle_in_a_row} steps in a row have taught nothing: in every group all completions that count were "
            f"paid the same, or none could be scored ({what} in this step)"
        )
        if not self._has_learnt and self._idle_in_a_row >= self._max_idle_steps:
            raise NothingLearntError(
                f"{said}, and none taught anything before, so the run stops (--max-idle-steps "
                f"{self._max_idle_steps}). rollouts.jsonl has the completions: take easier prompts, a reward with "
                "more steps between nothing and all, a larger --group-size, or a higher --temperature"
            )
        if self._idle_in_a_row == _IDLE_IS_WORTH_A_WARNING:
            yield f"warning: {said}"

    def _taught(self, groups: Sequence[Group], advantages: Advantages) -> bool:
        return any(
            value and not (self._mask_truncated and rollout.finish_reason == "length")
            for group, values in zip(groups, advantages.values_P_G, strict=True)
            for rollout, value in zip(group.rollouts, values, strict=True)
        )

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

    def _rising(self) -> Iterator[str]:
        """Whether the policy seems to have found that a null is a refuge. Said once for each rise."""
        old, new = list(self._steps)[:-_WINDOW], list(self._steps)[-_WINDOW:]
        if not old:
            return
        before, now = (sum(one[2] for one in part) / max(sum(one[0] for one in part), 1) for part in (old, new))
        rises = now > _WORTH_A_WARNING and now > _RISE * before
        if rises and not self._warned:
            yield (
                f"warning: {now:.0%} of the last {_WINDOW} steps' completions timed out or were too large to score, "
                f"{before:.0%} before. The policy may be learning to be unscored; see --on-null worst"
            )
        self._warned = rises


def _all_cut(groups: Sequence[Group]) -> Iterator[str]:
    if all(rollout.finish_reason == "length" for group in groups for rollout in group.rollouts):
        yield (
            "warning: every completion of the first step was cut at --max-completion-length. Raise it, or see whether "
            "the model ends its answers with a token that is no stop token (--stop)"
        )
