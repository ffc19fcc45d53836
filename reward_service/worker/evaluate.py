"""One reward on one item: the boundary at which whatever a reward does becomes an Outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reward_service.worker.catalogue import Reward
from reward_service.worker.types import BAD_GOLD, ERROR, SCORED, TOO_LARGE, BadGold, Item, Outcome, TooLarge


def evaluate(reward: Reward, item: Item, *, golds: Sequence[str] | None, params: Mapping[str, Any]) -> Outcome:
    """The reward's outcome for an item: with several golds the best one, with none where one is needed `bad_gold`."""
    if "gold" not in reward.needs:
        return _attempt(reward, item, params)
    if not golds:
        return Outcome(None, BAD_GOLD)
    return max((_attempt(reward, replace(item, gold=gold), params) for gold in golds), key=_preference)


def _attempt(reward: Reward, item: Item, params: Mapping[str, Any]) -> Outcome:
    try:
        result = reward(item, **params)
        outcome = result if isinstance(result, Outcome) else Outcome(float(result))
    except BadGold:
        return Outcome(None, BAD_GOLD)
    except (TooLarge, MemoryError, RecursionError):
        return Outcome(None, TOO_LARGE)
    except BaseException as error:  # noqa: BLE001  SystemExit, math-verify's TimeoutException: all of it is data here
        return Outcome(None, ERROR, error=type(error).__name__)
    if outcome.value is not None and not math.isfinite(outcome.value):
        return Outcome(None, ERROR, found=outcome.found, error="NotFinite")
    return outcome


def _preference(outcome: Outcome) -> tuple[bool, float, bool]:
    """Numbers before nulls, high before low; among nulls a failure before a bad gold, which another gold may mend."""
    if outcome.value is None:
        return (False, 0.0, outcome.status != BAD_GOLD)
    return (True, outcome.value, outcome.status == SCORED)
