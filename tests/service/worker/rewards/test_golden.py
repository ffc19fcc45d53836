"""Every golden vector is paid as written. A released reward's file only grows."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from reward_service.worker import rewards
from reward_service.worker.catalogue import Reward
from reward_service.worker.evaluate import evaluate
from reward_service.worker.rewards import CATALOGUE
from reward_service.worker.types import Item, Outcome
from tests.service.worker.rewards.golden import FOLDER, item_of, lines_of

# The vectors of a locked reward run in its own environment: tests/service/commands/test_locks.py.
IDS = sorted(path.stem for path in FOLDER.glob("*.jsonl") if path.stem != "math_verify.equal@1")
OWN = ("math.", "choice.", "text.", "format.", "length.", "repetition.", "language.", "kimi.")


def every_reward() -> dict[str, Reward]:
    """The rewards in the family modules by id, wired into the catalogue or not."""
    found: dict[str, Reward] = {}
    for module in pkgutil.iter_modules(rewards.__path__):
        members = vars(importlib.import_module(f"{rewards.__name__}.{module.name}"))
        found |= {member.id: member for member in members.values() if isinstance(member, Reward)}
    return found


REWARDS = every_reward()


def items_in(line: dict[str, Any]) -> int:
    return len(line["items"]) if "items" in line else 1


def outcomes_of_group(reward: Reward, items: list[Item]) -> list[Outcome]:
    """A group reward's outcomes, what it uses computed first, as a worker would."""
    used = {
        name: [evaluate(REWARDS[name], item, golds=[item.gold or ""], params={}) for item in items]
        for name in reward.uses
    }
    results = reward.function(items, used)
    return [result if isinstance(result, Outcome) else Outcome(float(result)) for result in results]


def check(line: dict[str, Any], outcome: Outcome, *, value: float | None, status: str) -> None:
    assert outcome.status == status, f"{line['id']}: {outcome}, expected {value} {status}"
    assert outcome.value == (None if value is None else pytest.approx(value, abs=1e-9)), f"{line['id']}: {outcome}"


@pytest.mark.parametrize("reward_id", IDS)
def test_every_vector_is_paid_as_written(reward_id: str) -> None:
    reward = REWARDS[reward_id]
    for line in lines_of(reward_id):
        if "items" in line:
            outcomes = outcomes_of_group(reward, [item_of(item) for item in line["items"]])
            for outcome, value, status in zip(outcomes, line["values"], line["statuses"], strict=True):
                check(line, outcome, value=value, status=status)
        else:
            item = item_of(line)
            golds = None if item.gold is None else [item.gold]
            outcome = evaluate(reward, item, golds=golds, params=line.get("params", {}))
            check(line, outcome, value=line["value"], status=line["status"])


@pytest.mark.parametrize("reward_id", sorted(member.id for member in CATALOGUE))
def test_every_served_version_has_forty_vectors_and_ours_have_twenty_by_hand(reward_id: str) -> None:
    lines = lines_of(reward_id)
    by_hand = sum(items_in(line) for line in lines if line["by"] == "hand")

    assert sum(items_in(line) for line in lines) >= 40
    assert len({line["id"] for line in lines}) == len(lines)
    if reward_id.startswith(OWN) or reward_id.endswith("@2"):
        assert by_hand >= 20
