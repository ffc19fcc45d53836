"""Whatever a reward does becomes an outcome: a number, or a null that says whose fault it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from reward_service.worker.catalogue import reward
from reward_service.worker.evaluate import evaluate, evaluate_group
from reward_service.worker.types import BadGold, Item, Outcome, TooLarge

RAISED: dict[str, type[BaseException]] = {
    "BadGold": BadGold,
    "TooLarge": TooLarge,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "KeyError": KeyError,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}
STATUSES = {"BadGold": "bad_gold", "TooLarge": "too_large", "MemoryError": "too_large", "RecursionError": "too_large"}


@reward("t.gold", version=1, range=(0.0, 1.0), needs=("gold",))
def by_gold_v1(item: Item) -> float | Outcome:
    """What the gold says: a number, a status, or the name of what is raised."""
    gold = item.gold or ""
    if gold in RAISED:
        raise RAISED[gold]
    return Outcome(0.0, "no_answer") if gold == "no_answer" else float(gold)


def paid(*golds: str) -> tuple[float | None, str]:
    outcome = evaluate(by_gold_v1, Item("x", gold=golds[0] if golds else None), golds=golds, params={})
    return outcome.value, outcome.status


@pytest.mark.parametrize(
    ("golds", "outcome"),
    [
        (("1",), (1.0, "scored")),
        (("0", "1", "0.5"), (1.0, "scored")),
        (("-1", "-2"), (-1.0, "scored")),
        (("KeyError", "0"), (0.0, "scored")),  # a number before a null
        (("0", "TooLarge"), (0.0, "scored")),
        (("no_answer", "0"), (0.0, "scored")),
        (("0", "no_answer"), (0.0, "scored")),
        (("BadGold", "KeyError"), (None, "error")),  # a failure before a gold that another may mend
        (("KeyError", "BadGold"), (None, "error")),
        (("BadGold", "TooLarge"), (None, "too_large")),
        (("BadGold", "BadGold"), (None, "bad_gold")),
        (("inf", "0"), (0.0, "scored")),
        ((), (None, "bad_gold")),
    ],
)
def test_of_several_golds_the_best_counts(golds: tuple[str, ...], outcome: tuple[float | None, str]) -> None:
    assert paid(*golds) == outcome


@pytest.mark.parametrize("raised", RAISED)
def test_what_is_raised_is_a_null_and_never_a_number(raised: str) -> None:
    assert paid(raised) == (None, STATUSES.get(raised, "error"))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_not_finite_is_an_error(value: str) -> None:
    assert paid(value) == (None, "error")


@reward("t.group", version=1, range=(0.0, 1.0), needs=("group",))
def of_group_v1(items: Sequence[Item], used: object, *, results: str = "") -> list[float | Outcome]:
    """What the parameter says: numbers, or the name of what is raised."""
    if results in RAISED:
        raise RAISED[results]
    return [Outcome(None, one) if one == "timeout" else float(one) for one in results.split()]


@pytest.mark.parametrize(
    ("results", "values", "statuses"),
    [
        ("1 2 3", [1.0, 2.0, 3.0], ["scored"] * 3),
        ("1 inf nan", [1.0, None, None], ["scored", "error", "error"]),
        ("1 timeout 3", [1.0, None, 3.0], ["scored", "timeout", "scored"]),
        ("1 2", [None] * 3, ["error"] * 3),
        ("1 2 3 4", [None] * 3, ["error"] * 3),
        ("", [None] * 3, ["error"] * 3),
        *[(name, [None] * 3, [STATUSES.get(name, "error")] * 3) for name in RAISED],
    ],
)
def test_a_group_reward_gives_each_item_its_result_or_all_of_them_a_null(
    results: str, values: list[float | None], statuses: list[str]
) -> None:
    outcomes = evaluate_group(of_group_v1, [Item("x")] * 3, used={}, params={"results": results})
    assert [one.value for one in outcomes] == values
    assert [one.status for one in outcomes] == statuses
    assert all(one.value is None or math.isfinite(one.value) for one in outcomes)
