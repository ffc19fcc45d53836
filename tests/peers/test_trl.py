"""trl.*@1 pays what TRL pays: the real functions over the golden vectors and 1,000 generated completions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from reward_service.worker.catalogue import Reward
from reward_service.worker.rewards import trl as ours
from reward_service.worker.types import Item
from tests.peers.cases import expected_equal, vectors
from tests.service.worker.rewards.samples import generated, item

rewards = pytest.importorskip("trl.rewards", reason="needs `pip install --no-deps trl==1.16.0`")
pytestmark = pytest.mark.peer

CASES: dict[str, tuple[Reward, Callable[..., Any], dict[str, Any]]] = {
    "accuracy": (ours.accuracy_v1, lambda: rewards.accuracy_reward, {}),
    "reasoning_accuracy": (ours.reasoning_accuracy_v1, lambda: rewards.reasoning_accuracy_reward, {}),
    "think_format": (ours.think_format_v1, lambda: rewards.think_format_reward, {}),
    "cosine": (ours.cosine_v1, rewards.get_cosine_scaled_reward, {"max_len": 20}),
    "repetition": (ours.repetition_v1, rewards.get_repetition_penalty_reward, {"ngram_size": 2, "max_penalty": -0.5}),
    "soft_overlong": (
        ours.soft_overlong_v1,
        rewards.get_soft_overlong_punishment,
        {"max_completion_len": 9, "soft_punish_cache": 4},
    ),
}


def theirs(function: Callable[..., Any], one: Item) -> float | None:
    """TRL's verdict in a thread of its own, where it switches its timers off."""
    verdicts: list[float | None] = []
    messages = [[{"role": "assistant", "content": one.completion}]]
    ids = list(one.token_ids) if one.token_ids is not None else [0] * (one.token_count or 0)
    call = {"completions": messages, "solution": [one.gold or ""], "completion_ids": [ids]}
    thread = threading.Thread(target=lambda: verdicts.extend(function(**call)))
    thread.start()
    thread.join()
    return verdicts[0]


@pytest.mark.parametrize("name", CASES)
def test_a_thousand_generated_completions_are_paid_as_trl_pays_them(name: str) -> None:
    reward, make, params = CASES[name]
    function = make(**params)
    for seed in range(1000):
        completion, gold = generated(seed)
        one = item(completion, gold=gold)
        expected_equal(reward, one, params, theirs(function, one))


# What TRL asks for and we have a default for.
DEFAULTS = {"cosine": {"max_len": 1024}, "soft_overlong": {"max_completion_len": 20480, "soft_punish_cache": 4096}}


@pytest.mark.parametrize("name", CASES)
def test_the_golden_vectors_are_paid_as_trl_pays_them(name: str) -> None:
    reward, make, _ = CASES[name]
    for one, params in vectors(reward.id):
        if "delimiter" in params:
            function = partial(make(), reasoning_delimiters=[params["delimiter"]])
        else:
            function = make(**{**DEFAULTS.get(name, {}), **params})
        expected_equal(reward, one, params, theirs(function, one))
