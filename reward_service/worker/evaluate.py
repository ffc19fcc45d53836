"""One reward on one item: the boundary at which whatever a reward does becomes an Outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from reward_service.worker.catalogue import Reward
from reward_service.worker.types import BAD_GOLD, ERROR, SCORED, TOO_LARGE, BadGold, Item, Outcome, TooLarge

T = TypeVar("T")


def evaluate(reward: Reward, item: Item, *, golds: Sequence[str] | None, params: Mapping[str, Any]) -> Outcome:
    """The reward's outcome for an item: with several golds the best one, with none where one is needed `bad_gold`."""
    if "gold" not in reward.needs:
        return _attempt(reward, item, params)
    if not golds:
        return Outcome(None, BAD_GOLD)
    if len(golds) == 1 and item.gold == golds[0]:
        return _attempt(reward, item, params)
    items = (item if item.gold == gold else replace(item, gold=gold) for gold in golds)
    return max((_attempt(reward, one, params) for one in items), key=_preference)


def evaluate_group(
    reward: Reward, items: Sequence[Item], *, used: Mapping[str, Sequence[Outcome]], params: Mapping[str, Any]
) -> list[Outcome]:
    """A group reward's outcomes, one an item; when it fails, it has failed for each."""

    def call() -> list[Outcome]:
        results = [_outcome(result) for result in reward.function(items, used, **params)]
        if len(results) != len(items):
            raise ValueError(f"{reward.id} gave {len(results)} results for {len(items)} items")
        return results

    outcomes = _guarded(call)
    return [outcomes] * len(items) if isinstance(outcomes, Outcome) else [_finite(one) for one in outcomes]


def _attempt(reward: Reward, item: Item, params: Mapping[str, Any]) -> Outcome:
    return _finite(_guarded(lambda: _outcome(reward(item, **params))))


def _outcome(result: float | Outcome) -> Outcome:
    return result if isinstance(result, Outcome) else Outcome(float(result))


def _guarded(call: Callable[[], T]) -> T | Outcome:
    try:
        return call()
    except BadGold:
        return Outcome(None, BAD_GOLD)
    except (TooLarge, MemoryError, RecursionError):
        return Outcome(None, TOO_LARGE)
    except BaseException as error:  # noqa: BLE001  SystemExit, math-verify's TimeoutException: all of it is data here
        return Outcome(None, ERROR, error=type(error).__name__)


def _finite(outcome: Outcome) -> Outcome:
    if outcome.value is not None and not math.isfinite(outcome.value):
        return Outcome(None, ERROR, found=outcome.found, error="NotFinite")
    return outcome


def _preference(outcome: Outcome) -> tuple[bool, float, bool]:
    """Numbers before nulls, high before low; among nulls a failure before a bad gold, which another gold may mend."""
    if outcome.value is None:
        return (False, 0.0, outcome.status != BAD_GOLD)
    return (True, outcome.value, outcome.status == SCORED)
