"""A released version never moves a number: its digest is the one that was recorded."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from reward_service.locks import LOCKS
from reward_service.worker.modules import read_released, released_file
from reward_service.worker.rewards import CATALOGUE

FILE = released_file("reward_service.worker.rewards")
RELEASED = read_released(FILE)


@pytest.mark.parametrize("reward_id", [one for one in RELEASED if one in CATALOGUE])
def test_a_released_digest_has_not_moved(reward_id: str) -> None:
    recorded = RELEASED[reward_id]
    if CATALOGUE.digest(reward_id) in recorded["digests"]:
        return
    now = {name: digest[:16] for name, digest in CATALOGUE.closure(reward_id).items()}
    then = json.loads(FILE.read_text())["definitions"]
    moved = sorted(name for name in now if now[name] != then.get(name))
    pytest.fail(
        f"{reward_id} is released, and {', '.join(moved) or 'its parameters, uses or lock'} moved. "
        "Leave it as it was and add a new version; or, if no number can move, release it as such"
    )


def test_every_released_reward_is_served() -> None:
    locked = [reward_id for lock in LOCKS for reward_id in lock.rewards]
    assert [reward_id for reward_id in RELEASED if reward_id not in CATALOGUE and reward_id not in locked] == []


def test_the_installed_packages_are_those_of_the_locks() -> None:
    for reward in CATALOGUE:
        for name, version in (reward.lock.packages if reward.lock else {}).items():
            assert importlib.metadata.version(name) == version, f"{reward.id} promises its numbers on {name} {version}"


def test_no_reward_of_ours_draws_from_the_global_generator() -> None:
    for reward in CATALOGUE:
        assert not [name for name in CATALOGUE.closure(reward.id) if name.rpartition(":")[2] == "random"], reward.id
