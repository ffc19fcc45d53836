"""Groups of a real sampler, scored by a live service: in the order of the prompts, with what the rewards need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from grpo_client.backends import load_backend
from grpo_client.backends.base import Backend
from grpo_client.rewards.client import RewardClient
from grpo_client.rollout import Sampler, to_wire
from grpo_client.train import train
from grpo_client.types import Prompt, Rollout, Sampling
from tests.client.runs import Configure, read
from tests.conftest import Server

STOPS = tuple("0123456789abcdefghijklm")  # so that completions end at many lengths


@pytest.fixture
def backend(configure: Configure) -> Backend:
    return load_backend(configure(stop=STOPS))


@pytest.fixture
def client(server: Server) -> Iterator[RewardClient]:
    with RewardClient(server.url) as client:
        yield client


PROMPTS = [Prompt(index, [], tuple(range(index, index + 3)), str(index)) for index in range(8)]
SAMPLING = Sampling(group_size=2, max_tokens=24, temperature=1.0, seed=1)


def test_groups_stand_in_the_order_of_the_prompts_and_not_in_that_of_finishing(
    backend: Backend, client: RewardClient
) -> None:
    finished = [place for place, _ in backend.sample(PROMPTS, SAMPLING)]
    assert finished != sorted(finished) == list(range(8))
    manifest = client.resolve(suite=None, rewards=[("length.near@1", 1.0)])
    sampler = Sampler(backend, client, run_id="run")
    groups = sampler.rollouts(PROMPTS, SAMPLING, manifest, phase="train").groups
    sampler.close()
    assert [group.prompt for group in groups] == PROMPTS
    sampled = dict(backend.sample(PROMPTS, SAMPLING))
    for place, group in enumerate(groups):
        lengths = [len(rollout.token_ids) for rollout in sampled[place]]
        assert [len(rollout.token_ids) for rollout in group.rollouts] == lengths
        assert group.scores.totals == [length / 512 for length in lengths]


@pytest.mark.parametrize(
    ("spare", "sampled"),
    [
        (range(2, 12), [0, 1, 2, 3, 4, 5, 6, 7]),  # three rounds of two
        ([0, 2, 1, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5]),  # what has been sampled is drawn, and not sampled again
    ],
)
def test_dead_groups_are_resampled_for_three_rounds_and_no_prompt_twice(
    spare: Sequence[int], sampled: list[int], backend: Backend, client: RewardClient
) -> None:
    always_paid = client.resolve(suite=None, rewards=[("length.characters_at_most@1", 1.0)])
    prompts = [replace(PROMPTS[0], index=place) for place in range(12)]
    sampler = Sampler(backend, client, run_id="run")
    drawn = iter([prompts[place] for place in spare])
    found = sampler.resampled(prompts[:2], SAMPLING, always_paid, phase="train", spare=drawn)
    sampler.close()
    assert [group.prompt.index for group in found.groups] == sampled


ROLLOUTS = [Rollout([3, 1, 4], [-1.0] * 3, "stop"), Rollout([], [], "length")]
PROMPT = Prompt(5, [{"role": "user", "content": "1 + 1?"}], (1, 2), "2", {"level": 3})
BARE = {
    "id": "5",
    "gold": ["2"],
    "completions": [{"text": "long text", "finish_reason": "stop"}, {"text": "", "finish_reason": "length"}],
}


@pytest.mark.parametrize(
    ("need", "more", "of_each"),
    [
        ("gold", {}, [{}, {}]),
        ("prompt", {"prompt": [{"role": "user", "content": "1 + 1?"}]}, [{}, {}]),
        ("metadata", {"metadata": {"level": 3}}, [{}, {}]),
        ("token_count", {}, [{"token_count": 3}, {"token_count": 0}]),
        ("token_ids", {}, [{"token_ids": [3, 1, 4]}, {"token_ids": []}]),
    ],
)
def test_what_a_reward_needs_is_sent_and_nothing_else(
    need: str, more: dict[str, object], of_each: list[dict[str, object]]
) -> None:
    sent = to_wire(PROMPT, ROLLOUTS, ["long text", ""], needs=frozenset({need}))
    completions = [one | two for one, two in zip(BARE["completions"], of_each, strict=True)]  # type: ignore[operator]
    assert json.loads(sent.model_dump_json(exclude_unset=True)) == BARE | more | {"completions": completions}


def test_a_run_on_length_and_repetition_is_paid_by_its_tokens(configure: Configure) -> None:
    """length.near pays n / 512 for n tokens; the tiny model's tokens are bytes, so that characters are fewer."""
    rewards = ("length.near@1", "repetition.tokens@1", "dapo.soft_overlong@1")
    folder = train(configure(suite=None, reward=rewards, eval_every=0, steps=2, stop=STOPS))
    rollouts = read(folder / "rollouts.jsonl")
    assert [one["scores"]["length.near@1"] for one in rollouts] == [one["token_count"] / 512 for one in rollouts]
    assert len({one["token_count"] for one in rollouts}) > 2
    assert any(len(one["text"]) != one["token_count"] for one in rollouts)


def test_an_evaluation_is_scored_by_its_tokens(configure: Configure) -> None:
    folder = train(configure(eval_reward="length.near@1", steps=0, stop=STOPS))
    evals = read(folder / "evals.jsonl")
    assert [one["value"] for one in evals] == [len(one["token_ids"]) / 512 for one in evals]
