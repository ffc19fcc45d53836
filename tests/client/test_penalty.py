"""The KL in the reward: bounded token by token, and of each completion its own."""

from __future__ import annotations

import pytest

from grpo_client.backends import load_backend
from grpo_client.penalty import kl_penalties
from grpo_client.types import Group, Prompt, Rollout, Scores
from tests.client.runs import Configure

PROMPTS = [Prompt(0, [], (1, 2, 3), "7"), Prompt(1, [], (9,), "7")]


def group(prompt: Prompt, *sampling_logprobs: list[float]) -> Group:
    rollouts = [Rollout([5, 6, 7][: len(one)], one, "stop") for one in sampling_logprobs]
    return Group(prompt, rollouts, [""] * len(rollouts), Scores([1.0] * len(rollouts), {}, {}))


def test_a_token_adds_at_most_twenty_nats_either_way(configure: Configure) -> None:
    backend = load_backend(configure(kl_in="reward"))
    ((likelier, unlikelier, both),) = kl_penalties(
        backend, [group(PROMPTS[0], [500.0, 600.0, 700.0], [-500.0, -600.0], [500.0, -500.0])]
    )
    assert (likelier, unlikelier, both) == (60.0, -40.0, 0.0)


def test_each_completion_has_its_own_penalty_whatever_the_order_of_lengths(configure: Configure) -> None:
    backend = load_backend(configure(kl_in="reward", micro_batch_tokens=10))
    together = kl_penalties(
        backend, [group(PROMPTS[0], [-1.0], [-1.0, -2.0, -3.0], [-1.0, -2.0]), group(PROMPTS[1], [-4.0, -4.0], [-3.0])]
    )
    alone = [
        kl_penalties(backend, [group(prompt, logprobs)])[0][0]
        for prompt, logprobs in [
            *[(PROMPTS[0], one) for one in ([-1.0], [-1.0, -2.0, -3.0], [-1.0, -2.0])],
            *[(PROMPTS[1], one) for one in ([-4.0, -4.0], [-3.0])],
        ]
    ]
    assert [len(one) for one in together] == [3, 2]
    assert [kl for one in together for kl in one] == pytest.approx(alone, abs=1e-4)
    assert len({round(kl, 3) for kl in alone}) == 5
