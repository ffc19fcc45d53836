"""verl.*@1 pays what verl pays: the real functions over the golden vectors and 1,000 generated completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reward_service.worker.catalogue import Reward
from reward_service.worker.rewards import verl as ours
from reward_service.worker.types import Item
from tests.peers.cases import expected_equal, vectors
from tests.peers.upstream import rewards_file
from tests.service.worker.rewards.samples import generated, item

pytestmark = pytest.mark.peer
REASON = "needs `pip install --no-deps verl==0.9.1`"


def gsm8k(one: Item, *, flexible: bool = False, **params: Any) -> float:
    method = "flexible" if flexible else "strict"
    module = rewards_file("verl", "utils/reward_score/gsm8k.py", reason=REASON)
    return float(module.compute_score(one.completion, one.gold, method=method, **params))


def math_dapo(one: Item, *, strict_box: bool = False) -> float:
    module = rewards_file("verl", "utils/reward_score/math_dapo.py", reason=REASON)
    return float(module.compute_score(one.completion, one.gold, strict_box_verify=strict_box)["score"])


CASES: dict[str, tuple[Reward, Callable[..., float], list[dict[str, Any]]]] = {
    "gsm8k": (ours.gsm8k_v1, gsm8k, [{}, {"flexible": True}, {"format_score": 0.1, "score": 2.0}]),
    "math_dapo": (ours.math_dapo_v1, math_dapo, [{}, {"strict_box": True}]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_thousand_generated_completions_are_paid_as_verl_pays_them(name: str) -> None:
    reward, theirs, many_params = CASES[name]
    for seed in range(1000):
        completion, gold = generated(seed)
        one = item(completion, gold=gold)
        for params in many_params:
            expected_equal(reward, one, params, theirs(one, **params))


@pytest.mark.parametrize("name", CASES)
def test_the_golden_vectors_are_paid_as_verl_pays_them(name: str) -> None:
    reward, theirs, _ = CASES[name]
    for one, params in vectors(reward.id):
        expected_equal(reward, one, params, theirs(one, **params), bad=...)
