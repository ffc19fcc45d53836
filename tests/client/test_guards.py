"""When a run warns and stops: nulls by kind and share, updates that are not finite, and what a resume remembers."""

from __future__ import annotations

import json

import pytest

from grpo_client.backends.base import UpdateStats
from grpo_client.errors import NotFiniteError, RewardServiceError
from grpo_client.guards import Guards
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


def guards(max_null_fraction: float = 1.0, max_not_finite: int = 5) -> Guards:
    return Guards(max_null_fraction=max_null_fraction, max_not_finite=max_not_finite)


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
        watching.watch([group(1.0, 0.0, 1.0, 0.0)], [APPLIED])
    for _ in range(2):
        watching.watch([group("crashed", "crashed", "crashed", "crashed")], [APPLIED])
    with pytest.raises(RewardServiceError, match=r"12 of the last 40 completions .*crashed 4"):
        watching.watch([group("crashed", "crashed", "crashed", "crashed")], [APPLIED])


def test_all_null_in_the_first_step_stops_at_once() -> None:
    with pytest.raises(RewardServiceError, match="bad_gold 2"):
        guards(max_null_fraction=0.5).watch([group("bad_gold", "bad_gold")], [])


def test_a_rising_share_of_provoked_nulls_warns_once_for_each_rise() -> None:
    watching = guards()
    calm, hiding = [group(1.0, 0.0, 1.0, 0.0)], [group("timeout", 0.0, 1.0, 0.0)]
    assert not any(watching.watch(calm, [APPLIED]) for _ in range(12))
    warnings = [watching.watch(hiding, [APPLIED]) for _ in range(5)]
    assert sum(one is not None for one in warnings) == 1
    assert any("--on-null worst" in one for one in warnings if one)
    assert not any(watching.watch([group("crashed", 0.0, 1.0, 0.0)], [APPLIED]) for _ in range(20))


@pytest.mark.parametrize("status", ["crashed", "bad_gold", "error", "expired"])
def test_nulls_that_are_not_the_policys_do_not_count_as_provoked(status: str) -> None:
    assert provoked([group(status, "timeout", 1.0)]) == 1


def test_not_finite_steps_in_a_row_stop_a_run_and_one_good_step_forgives() -> None:
    watching = guards(max_not_finite=3)
    scored = [group(1.0, 0.0)]
    for updates in ([SKIPPED], [SKIPPED], [APPLIED], [SKIPPED, APPLIED], [SKIPPED]):
        watching.watch(scored, updates)
    with pytest.raises(NotFiniteError, match="3 steps in a row"):
        watching.watch(scored, [SKIPPED])


def test_what_guards_remember_survives_as_json() -> None:
    first = guards(max_null_fraction=0.5, max_not_finite=2)
    first.watch([group(1.0, 0.0, "timeout", "timeout")], [SKIPPED])
    second = guards(max_null_fraction=0.5, max_not_finite=2)
    second.restore(json.loads(json.dumps(first.state())))
    assert second.state() == first.state()
    with pytest.raises(NotFiniteError):
        second.watch([group(1.0, 0.0)], [SKIPPED])
