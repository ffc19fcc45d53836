"""When a run warns and stops: nulls, updates that are not finite, idle steps, and what a resume remembers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from grpo_client.backends.base import UpdateStats
from grpo_client.errors import NotFiniteError, NothingLearntError, RewardServiceError
from grpo_client.guards import Guards
from grpo_client.learning.advantages import group_advantages
from grpo_client.rewards.nulls import ON_NULL, null_places, provoked
from grpo_client.types import Group, Prompt, Rollout, Scores

APPLIED, SKIPPED = (UpdateStats(0.0, 1.0, applied, {}) for applied in (True, False))


def group(*results: float | str, second: list[float | str] | None = None) -> Group:
    """A group whose completions have these scores, or nulls of these statuses."""
    columns = {"a": list(results)} | ({"b": second} if second else {})
    values = {name: [None if isinstance(one, str) else one for one in column] for name, column in columns.items()}
    statuses = {name: [one if isinstance(one, str) else "scored" for one in column] for name, column in columns.items()}
    totals = [
        None if None in rewards else sum(one for one in rewards if one is not None)
        for rewards in zip(*values.values(), strict=True)
    ]
    rollouts = [Rollout([1], [0.0], "stop") for _ in results]
    return Group(Prompt(3, [], (1,), "7"), rollouts, [""] * len(results), Scores(totals, values, statuses))


def guards(
    max_null_fraction: float = 1.0,
    max_not_finite: int = 5,
    max_idle_steps: int = 1_000,
    mask_truncated: bool = False,
) -> Guards:
    return Guards(
        max_null_fraction=max_null_fraction,
        max_not_finite=max_not_finite,
        max_idle_steps=max_idle_steps,
        mask_truncated=mask_truncated,
    )


def watch(watching: Guards, *groups: Group, updates: Sequence[UpdateStats] = (APPLIED,)) -> list[str]:
    compared = group_advantages([one.rewards.totals for one in groups], scale="group")
    return watching.watch(groups, compared, updates)


def cut(one: Group) -> Group:
    return replace(one, rollouts=[replace(rollout, finish_reason="length") for rollout in one.rollouts])


# ---- what a null is worth ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "learnt"),
    [
        ([1.0, "timeout", 0.5], [1.0, 0.5, 0.5]),
        ([1.0, "too_large", -2.0], [1.0, -2.0, -2.0]),
        ([1.0, "crashed", 0.5], [1.0, None, 0.5]),
        ([1.0, "bad_gold", "timeout"], [1.0, None, 1.0]),
        (["timeout", "timeout"], [None, None]),
        ([1.0, "eclipsed"], [1.0, None]),  # a status that is not known yet is nobody's proven fault
        ([1.0, 0.0], [1.0, 0.0]),
    ],
)
def test_worst_gives_provoked_nulls_the_lowest_score_of_their_group(
    results: list[float | str], learnt: list[float | None]
) -> None:
    judged = ON_NULL["worst"](group(*results))
    assert judged.rewards.totals == learnt
    assert judged.scores.totals == [None if isinstance(one, str) else one for one in results]


def test_worst_fills_reward_by_reward_and_only_where_all_nulls_are_provoked() -> None:
    judged = ON_NULL["worst"](group(1.0, "timeout", "timeout", 0.0, second=[0.0, 3.0, "error", 2.0]))
    assert judged.rewards.values == {"a": [1.0, 0.0, None, 0.0], "b": [0.0, 3.0, None, 2.0]}
    assert judged.rewards.totals == [1.0, 1.0, None, 2.0]


def test_drop_group_leaves_a_group_with_a_null_out_and_others_alone() -> None:
    assert ON_NULL["drop-group"](group(1.0, "timeout", 0.5)).rewards.totals == [None] * 3
    whole = group(1.0, 0.5)
    assert ON_NULL["drop-group"](whole) is whole


def test_fail_says_which_completion_and_why() -> None:
    with pytest.raises(RewardServiceError, match=r"completion 1 of prompt 3 has no score \(timeout\)"):
        ON_NULL["fail"](group(1.0, "timeout"))


def test_mask_changes_nothing() -> None:
    one = group(1.0, "timeout")
    assert ON_NULL["mask"](one) is one
    assert null_places(one) == [1]


# ---- when to stop ------------------------------------------------------------------------------------------


def test_nulls_stop_a_run_when_they_are_too_many_over_ten_steps() -> None:
    watching = guards(max_null_fraction=0.25)
    for _ in range(9):
        watch(watching, group(1.0, 0.0, 1.0, 0.0))
    for _ in range(2):
        watch(watching, group("crashed", "crashed", "crashed", "crashed"))
    with pytest.raises(RewardServiceError, match=r"12 of the last 40 completions .*crashed 4"):
        watch(watching, group("crashed", "crashed", "crashed", "crashed"))


def test_all_null_in_the_first_step_stops_at_once() -> None:
    with pytest.raises(RewardServiceError, match="bad_gold 2"):
        watch(guards(max_null_fraction=0.5), group("bad_gold", "bad_gold"), updates=[])


def test_a_rising_share_of_provoked_nulls_warns_once_for_each_rise() -> None:
    watching = guards()
    calm, hiding = group(1.0, 0.0, 1.0, 0.0), group("timeout", 0.0, 1.0, 0.0)
    assert not any(watch(watching, calm) for _ in range(12))
    warnings = [watch(watching, hiding) for _ in range(5)]
    assert sum(map(len, warnings)) == 1
    assert any("--on-null worst" in one for said in warnings for one in said)
    assert not any(watch(watching, group("crashed", 0.0, 1.0, 0.0)) for _ in range(20))


@pytest.mark.parametrize("status", ["crashed", "bad_gold", "error", "expired"])
def test_nulls_that_are_not_the_policys_do_not_count_as_provoked(status: str) -> None:
    assert provoked([group(status, "timeout", 1.0)]) == 1


def test_not_finite_steps_in_a_row_stop_a_run_and_one_good_step_forgives() -> None:
    watching = guards(max_not_finite=3)
    for updates in ([SKIPPED], [SKIPPED], [APPLIED], [SKIPPED, APPLIED], [SKIPPED]):
        watch(watching, group(1.0, 0.0), updates=updates)
    with pytest.raises(NotFiniteError, match="3 steps in a row"):
        watch(watching, group(1.0, 0.0), updates=[SKIPPED])


@pytest.mark.parametrize(
    ("idle", "found"),
    [
        ((group(1.0, 1.0), group(0.0, 0.0)), "scores from 0 to 1"),  # flat, though not alike
        ((group("timeout", "bad_gold"),), "no score at all"),
        ((group(0.5, "timeout"),), "scores from 0.5 to 0.5"),  # one alone compares with nothing
    ],
)
def test_a_run_in_which_no_step_ever_taught_anything_stops_at_its_limit(idle: tuple[Group, ...], found: str) -> None:
    watching = guards(max_idle_steps=3)
    for _ in range(2):
        assert watch(watching, *idle) == []
    with pytest.raises(NothingLearntError, match=rf"3 steps in a row .*{found}.*--max-idle-steps 3"):
        watch(watching, *idle)


def test_completions_that_are_cut_and_masked_teach_nothing() -> None:
    watching = guards(max_idle_steps=2, mask_truncated=True)
    watch(watching, cut(group(1.0, 0.0)))
    with pytest.raises(NothingLearntError):
        watch(watching, cut(group(1.0, 0.0)))


def test_a_run_that_has_learnt_is_warned_of_idle_steps_and_not_stopped() -> None:
    watching = guards(max_idle_steps=3)
    watch(watching, group(1.0, 0.0))
    said = [watch(watching, group(1.0, 1.0)) for _ in range(30)]
    assert [place for place, warnings in enumerate(said, start=1) if warnings] == [10]
    assert "10 steps in a row have taught nothing" in said[9][0]
    watch(watching, group(1.0, 0.0))
    assert not any(watch(watching, group(1.0, 1.0)) for _ in range(9))  # counted anew


def test_a_first_step_of_which_every_completion_is_cut_is_told_and_what_to_do() -> None:
    watching = guards()
    (warning,) = watch(watching, cut(group(1.0, 0.0)), cut(group(0.0, 1.0)))
    assert "--max-completion-length" in warning
    assert "--stop" in warning
    assert watch(watching, cut(group(1.0, 0.0))) == []  # said once
    assert watch(guards(), cut(group(1.0, 0.0)), group(1.0, 0.0)) == []


def test_what_guards_remember_survives_as_json() -> None:
    first = guards(max_null_fraction=0.5, max_not_finite=2, max_idle_steps=2)
    watch(first, group(0.0, 0.0, "timeout", "timeout"), updates=[SKIPPED])
    second, third = (guards(max_null_fraction=0.5, max_not_finite=2, max_idle_steps=2) for _ in range(2))
    for one in (second, third):
        one.restore(json.loads(json.dumps(first.state())))
        assert one.state() == first.state()
    with pytest.raises(NotFiniteError):
        watch(second, group(1.0, 0.0), updates=[SKIPPED])
    with pytest.raises(NothingLearntError):
        watch(third, group(0.0, 0.0))


def test_what_guards_remembered_before_they_counted_idle_steps_is_taken_up() -> None:
    older = {key: value for key, value in guards().state().items() if key not in ("idle_in_a_row", "has_learnt")}
    watching = guards(max_idle_steps=1)
    watching.restore(older)
    assert watch(watching, group(0.0, 0.0)) == []  # what such a run learnt is not known, so it is not stopped
