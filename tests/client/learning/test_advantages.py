"""Advantages against hand-worked numbers, and what must hold for any rewards."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpo_client.learning.advantages import Advantages, gdpo_advantages, group_advantages

# [1, 0, 0, 1]: mean 0.5, std with ddof 1 sqrt(1/3) = 0.57735027, so 0.5 / 0.57745027. With ddof 0 it would be 0.9998.
HALF = 0.8658754297607015
# [1, 2, 3]: std 1, so 1 / 1.0001
UNIT = 0.9999000099990001
# Over [1, 0, 0, 1, 3, 3, 5, 5]: mean 2.25, squares sum to 29.5, std sqrt(29.5 / 7) = 2.05287255
BATCH = 2.0529725518857020

WORKED = [  # what it shows, totals, options, advantages, dead
    ("std with ddof 1", [[1, 0, 0, 1]], {"scale": "group"}, [[HALF, -HALF, -HALF, HALF]], [False]),
    (
        "an epsilon of one's own: 0.5 / (0.57735027 + 0.25)",
        [[1, 0, 0, 1]],
        {"scale": "group", "std_epsilon": 0.25},
        [[0.6043389585039245, -0.6043389585039245, -0.6043389585039245, 0.6043389585039245]],
        [False],
    ),
    (
        "the same over the batch: 2 / (1.63299316 + 0.5)",
        [[2, 2], [0, 4]],
        {"scale": "batch", "std_epsilon": 0.5},
        [[0.0, 0.0], [-0.9376495132596845, 0.9376495132596845]],
        [True, False],
    ),
    ("three scores", [[1, 2, 3]], {"scale": "group"}, [[-UNIT, 0, UNIT]], [False]),
    ("a null is left out, not 0", [[1, None, 2, 3]], {"scale": "group"}, [[-UNIT, None, 0, UNIT]], [False]),
    ("unscaled", [[1, 0, 0, 1]], {"scale": "none"}, [[0.5, -0.5, -0.5, 0.5]], [False]),
    (
        "batch: group means, one std",
        [[1, 0, 0, 1], [3, 3, 5, 5]],
        {"scale": "batch"},
        [[0.5 / BATCH, -0.5 / BATCH, -0.5 / BATCH, 0.5 / BATCH], [-1 / BATCH, -1 / BATCH, 1 / BATCH, 1 / BATCH]],
        [False, False],
    ),
    (
        "rloo: minus the mean of the others, 1 - 1/3",
        [[1, 0, 0, 1]],
        {"scale": "none", "estimator": "rloo"},
        [[2 / 3, -2 / 3, -2 / 3, 2 / 3]],
        [False],
    ),
    (
        "rloo counts scores, not places: 4 - (1 + 1) / 2",
        [[4, None, 1, 1]],
        {"scale": "none", "estimator": "rloo"},
        [[3, None, -1.5, -1.5]],
        [False],
    ),
    ("all equal is dead", [[0.1] * 8], {"scale": "group"}, [[0.0] * 8], [True]),
    ("a range of 1e-6 is dead", [[1.0, 1.0 + 9e-7]], {"scale": "none"}, [[0.0, 0.0]], [True]),
    ("a range above it lives", [[0.0, 2e-6]], {"scale": "none"}, [[-1e-6, 1e-6]], [False]),
    ("one score is dead", [[None, 0.7]], {"scale": "group"}, [[None, 0.0]], [True]),
    ("all null is dead", [[None, None]], {"scale": "group"}, [[None, None]], [True]),
    (
        "dead beside living, batch",
        [[2, 2], [0, 4]],
        {"scale": "batch"},  # std of [2, 2, 0, 4]: sqrt(8 / 3) = 1.63299316
        [[0.0, 0.0], [-1.2246698759841011, 1.2246698759841011]],
        [True, False],
    ),
    (
        "kl is subtracted first: 1 - 0.1 x 5 and 0 - 0.1 x 0",
        [[1, 0, None]],
        {"scale": "none", "kl_P_G": [[5.0, 0.0, math.nan]], "kl_coef": 0.1},
        [[0.25, -0.25, None]],
        [False],
    ),
    (
        "kl alone can revive a group",
        [[1, 1]],
        {"scale": "none", "kl_P_G": [[2.0, 0.0]], "kl_coef": 0.1},
        [[-0.1, 0.1]],
        [False],
    ),
    (
        "without a coefficient kl is not read",
        [[1, 0]],
        {"scale": "none", "kl_P_G": [[5.0, 0.0]]},
        [[0.5, -0.5]],
        [False],
    ),
]


def assert_values(result: Advantages, expected: list[list[float | None]]) -> None:
    assert len(result.values_P_G) == len(expected)
    for group, row in zip(result.values_P_G, expected, strict=True):
        assert [value is None for value in group] == [value is None for value in row]
        assert [v for v in group if v is not None] == pytest.approx([v for v in row if v is not None], rel=1e-12)


@pytest.mark.parametrize(
    ("totals", "options", "advantages", "dead"), [pytest.param(*row[1:], id=row[0]) for row in WORKED]
)
def test_hand_worked_advantages(
    totals: list[list[float | None]], options: dict[str, Any], advantages: list[list[float | None]], dead: list[bool]
) -> None:
    result = group_advantages(totals, **options)
    assert_values(result, advantages)
    assert result.dead_P == dead
    assert result.frac_reward_zero_std == sum(dead) / len(dead)


@pytest.mark.parametrize(
    ("totals", "mean", "std"),
    [
        ([[1, 0, 0, 1], [3, 3, 5, 5]], 2.25, 2.0528725518857020),
        ([[1, None], [None, 3]], 2.0, math.sqrt(2)),
        ([[None, 4], [None, None]], 4.0, None),
        ([[None, None]], None, None),
    ],
)
def test_reward_and_reward_std_run_over_all_scored_completions_of_the_step(
    totals: list[list[float | None]], mean: float | None, std: float | None
) -> None:
    result = group_advantages(totals, scale="group")
    assert (result.reward_mean, result.reward_std) == pytest.approx((mean, std))


def test_the_logged_reward_is_the_one_without_the_kl_penalty() -> None:
    result = group_advantages([[1, 0]], scale="none", kl_P_G=[[5.0, 7.0]], kl_coef=0.1)
    assert result.reward_mean == 0.5


# GDPO: reward 0 is [0, 1, 0, 1], so +-HALF; reward 1 is [0, 0, 100, 100], whose std is 57.73502692, so +-TALL.
TALL = 50 / (57.73502691896258 + 1e-4)


def test_gdpo_standardises_each_reward_before_summing_so_that_scale_does_not_decide() -> None:
    result = gdpo_advantages([[[0, 0], [1, 0], [0, 100], [1, 100]]], weights=[1.0, 1.0])
    sums = [-HALF - TALL, HALF - TALL, -HALF + TALL, HALF + TALL]
    std = statistics.stdev(sums)
    assert_values(result, [[x / (std + 1e-4) for x in sums]])
    assert result.reward_mean == 50.5


@pytest.mark.parametrize(
    ("scores", "weights", "advantages", "dead"),
    [
        # one living reward of weight 2: sums +-2 HALF over 4 rows, whose std is 2 HALF x 1.15470054
        (
            [[[0, 7], [1, 7], [0, 7], [1, 7]]],
            [2, 1],
            [[-0.8659820971799547, 0.8659820971799547, -0.8659820971799547, 0.8659820971799547]],
            [False],
        ),
        ([[[0, 7], [1, 7]]], [0, 1], [[0.0, 0.0]], [True]),
        ([[[3, None], [3, 7]]], [1, 1], [[None, 0.0]], [True]),
        (
            [[[0, None], [1, None]], [[1, 1], [1, 1]]],
            [1, 0],
            [[-1.2245327461036066, 1.2245327461036066], [0.0, 0.0]],
            [False, True],
        ),
    ],
    ids=[
        "a flat reward adds nothing",
        "only weighted rewards count",
        "a null unscores the row",
        "weight 0 may be null",
    ],
)
def test_gdpo_hand_worked(
    scores: Any, weights: list[float], advantages: list[list[float | None]], dead: list[bool]
) -> None:
    result = gdpo_advantages(scores, weights=weights)
    for group, row in zip(result.values_P_G, advantages, strict=True):
        assert group == [None if x is None else pytest.approx(x, rel=1e-12) for x in row]
    assert result.dead_P == dead


# What holds for any rewards

totals = st.lists(
    st.lists(st.none() | st.floats(-100, 100, allow_subnormal=False), min_size=2, max_size=6), min_size=1, max_size=4
)
scales = st.sampled_from(["group", "batch", "none"])


@given(totals, scales)
def test_every_group_sums_to_zero_and_keeps_its_nulls(totals_P_G: list[list[float | None]], scale: str) -> None:
    result = group_advantages(totals_P_G, scale=scale)
    for group, advantages in zip(totals_P_G, result.values_P_G, strict=True):
        assert [a is None for a in advantages] == [r is None for r in group]
        size = max([1.0, *(abs(a) for a in advantages if a is not None)])
        assert sum(a for a in advantages if a is not None) == pytest.approx(0.0, abs=1e-6 * size)


@given(totals, scales, st.randoms(use_true_random=False))
def test_the_order_within_a_group_and_unscored_places_do_not_matter(
    totals_P_G: list[list[float | None]], scale: str, random: Any
) -> None:
    orders = [random.sample(range(len(group)), len(group)) for group in totals_P_G]
    shuffled = [[group[i] for i in order] + [None] for group, order in zip(totals_P_G, orders, strict=True)]
    plain, moved = (group_advantages(t, scale=scale) for t in (totals_P_G, shuffled))
    expected = [[group[i] for i in order] + [None] for group, order in zip(plain.values_P_G, orders, strict=True)]
    for got, want in zip(moved.values_P_G, expected, strict=True):
        assert got == [None if x is None else pytest.approx(x, rel=1e-6, abs=1e-9) for x in want]


@given(totals)
def test_rloo_is_the_score_minus_the_mean_of_the_others(totals_P_G: list[list[float | None]]) -> None:
    result = group_advantages(totals_P_G, scale="none", estimator="rloo")
    for group, advantages, dead in zip(totals_P_G, result.values_P_G, result.dead_P, strict=True):
        assume(not dead)
        for i, (score, advantage) in enumerate(zip(group, advantages, strict=True)):
            if score is not None:
                others = [r for j, r in enumerate(group) if j != i and r is not None]
                assert advantage == pytest.approx(score - statistics.mean(others), abs=1e-9)


@given(totals)
def test_gdpo_with_one_reward_orders_completions_as_grpo_does(totals_P_G: list[list[float | None]]) -> None:
    plain = group_advantages(totals_P_G, scale="group")
    gdpo = gdpo_advantages([[[r] for r in group] for group in totals_P_G], weights=[1.0])
    assert gdpo.dead_P == plain.dead_P
    scored = [a for group in plain.values_P_G for a in group if a is not None]
    divisor = (statistics.stdev(scored) if len(scored) > 1 else 0.0) + 1e-4
    expected = [[None if a is None else a / divisor for a in group] for group in plain.values_P_G]
    for got, want in zip(gdpo.values_P_G, expected, strict=True):
        assert got == [None if x is None else pytest.approx(x, rel=1e-6, abs=1e-9) for x in want]


@pytest.mark.parametrize(
    ("totals", "options", "message"),
    [
        ([[1.0]], {"scale": "group"}, "group 0 has 1 completion"),
        ([[1.0, 2.0], []], {"scale": "none"}, "group 1 has 0 completion"),
        ([], {"scale": "group"}, "no groups"),
        ([[1.0, math.nan]], {"scale": "group"}, "completion 1 of group 0 scored nan"),
        ([[1.0, 2.0], [-math.inf, None]], {"scale": "batch"}, "completion 0 of group 1 scored -inf"),
        ([[1.0, 2.0]], {"scale": "std"}, "no scale 'std'; there are group, batch, none"),
        ([[1.0, 2.0]], {"scale": "none", "estimator": "ppo"}, "no estimator 'ppo'; there are grpo, rloo"),
        ([[1.0, 2.0]], {"scale": "group", "estimator": "rloo"}, "estimator rloo is unscaled"),
        ([[1.0, 2.0]], {"scale": "group", "kl_coef": 0.1}, "needs kl_P_G"),
        ([[1.0, 2.0]], {"scale": "group", "kl_coef": 0.1, "kl_P_G": [[1.0, math.inf]]}, "scored -inf"),
        ([[1.0, 2.0]], {"scale": "group", "kl_coef": 0.1, "kl_P_G": [[1.0]]}, "shorter"),
    ],
)
def test_rewards_that_cannot_be_compared_are_refused(totals: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_advantages(totals, **options)


@pytest.mark.parametrize(
    ("scores", "weights", "message"),
    [
        ([[[1.0], [2.0, 3.0]]], [1.0], "has 2 scores for 1 weights"),
        ([[[1.0], [math.nan]]], [1.0], "scored nan"),
        ([[[1.0], [2.0]]], [math.inf], "weights must be finite"),
        ([[[1.0]]], [1.0], "1 completion"),
    ],
)
def test_gdpo_refuses_the_same(scores: Any, weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gdpo_advantages(scores, weights=weights)
