"""The sampler draws from the softmax, whatever shares its batch, and keeps what it drew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from grpo_client.backends.torch import cache as torch_cache
from grpo_client.backends.torch import sampling as torch_sampling
from grpo_client.backends.torch.choice import choose, kept_tokens
from grpo_client.backends.torch.forward import shared_logprobs
from grpo_client.backends.torch.sampling import sample_groups
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.reports.metrics import entropy
from grpo_client.types import Prompt, Rollout, Sampling
from tests.client.backends.torch.test_forward import plain_row
from tests.client.tiny import tiny_model

SAMPLING = Sampling(group_size=4, max_tokens=12, temperature=0.7, seed=3, step=5)
STOPS = frozenset(range(0, 260, 7))  # many, so that rows end at many lengths


def prompt(index: int, *ids: int) -> Prompt:
    return Prompt(index, [], ids, "7")


PROMPTS = [prompt(0, 1, 2, 3), prompt(1, 9), prompt(2, *range(40)), prompt(3, *range(39), 77)]


def draw(
    prompts: list[Prompt], sampling: Sampling = SAMPLING, stops: frozenset[int] = STOPS
) -> dict[int, list[Rollout]]:
    return {
        prompts[place].index: rollouts
        for place, rollouts in sample_groups(tiny_model(), prompts, sampling, stop_ids=stops)
    }


def ids_of(groups: dict[int, list[Rollout]]) -> dict[int, list[list[int]]]:
    return {index: [one.token_ids for one in rollouts] for index, rollouts in groups.items()}


def test_every_prompt_gets_its_group() -> None:
    groups = draw(PROMPTS)
    assert sorted(groups) == [0, 1, 2, 3]
    assert all(len(group) == 4 for group in groups.values())


def test_a_completion_ends_with_the_stop_token_it_drew_or_at_the_limit() -> None:
    rollouts = [one for group in draw(PROMPTS).values() for one in group]
    for one in rollouts:
        assert not STOPS & set(one.token_ids[:-1])
        if one.finish_reason == "stop":
            assert one.token_ids[-1] in STOPS
        else:
            assert len(one.token_ids) == SAMPLING.max_tokens
            assert one.token_ids[-1] not in STOPS
    assert {one.finish_reason for one in rollouts} == {"stop", "length"}


def test_a_stop_token_at_the_last_place_is_a_stop() -> None:
    stops = frozenset(range(260))
    rollouts = [one for group in draw(PROMPTS, replace(SAMPLING, max_tokens=1), stops).values() for one in group]
    assert {(one.finish_reason, len(one.token_ids)) for one in rollouts} == {("stop", 1)}


def test_ignore_eos_samples_on_to_the_limit() -> None:
    rollouts = [one for group in draw(PROMPTS, replace(SAMPLING, ignore_eos=True)).values() for one in group]
    assert {(one.finish_reason, len(one.token_ids)) for one in rollouts} == {("length", SAMPLING.max_tokens)}


def test_logprobs_are_those_of_the_policy_at_the_sampling_temperature() -> None:
    model = tiny_model()
    for index, group in draw(PROMPTS).items():
        for one in group:
            want = plain_row(model, list(PROMPTS[index].token_ids), one.token_ids)
            torch.testing.assert_close(torch.tensor(one.sampling_logprobs), want, atol=2e-5, rtol=2e-5)


def test_minus_the_sampled_logprobs_is_the_entropy_of_what_was_sampled_from() -> None:
    sampling = replace(SAMPLING, group_size=2_000, max_tokens=1, rows=2_000)
    (rollouts,) = draw([PROMPTS[0]], sampling).values()
    with torch.no_grad():
        logits = tiny_model()(torch.tensor([PROMPTS[0].token_ids])).logits[0, -1] / sampling.temperature
    surprise = -logits.log_softmax(-1)
    exact = float((surprise.exp() ** -1 * surprise).sum())
    spread = float((surprise.exp() ** -1 * (surprise - exact) ** 2).sum().sqrt())
    assert entropy(rollouts) == pytest.approx(exact, abs=4 * spread / 2_000**0.5)
    assert entropy([]) is None


def test_who_shares_the_batch_and_when_rows_leave_it_moves_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    together = ids_of(draw(PROMPTS))
    alone = {index: ids for one in PROMPTS for index, ids in ids_of(draw([one])).items()}
    backwards = ids_of(draw(PROMPTS[::-1]))
    monkeypatch.setattr(torch_sampling, "_COMPACT_BELOW", 0.0)
    never_compacted = ids_of(draw(PROMPTS))
    assert together == alone == backwards == never_compacted


@pytest.mark.parametrize(("rows", "compact_below"), [(4, 0.75), (9, 0.75), (8, 0.99)])
def test_prompts_that_wait_for_a_place_get_the_same_completions(
    rows: int, compact_below: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = ids_of(draw(PROMPTS))
    monkeypatch.setattr(torch_sampling, "_COMPACT_BELOW", compact_below)
    groups = draw(PROMPTS, replace(SAMPLING, rows=rows))
    assert ids_of(groups) == want
    for index, group in groups.items():
        for one in group:
            logprobs = plain_row(tiny_model(), list(PROMPTS[index].token_ids), one.token_ids)
            torch.testing.assert_close(torch.tensor(one.sampling_logprobs), logprobs, atol=2e-5, rtol=2e-5)


def test_room_grows_with_long_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    want = ids_of(draw(PROMPTS))
    monkeypatch.setattr(torch_cache, "_ROOM", 1)
    assert ids_of(draw(PROMPTS)) == want


def test_the_noise_is_keyed_by_seed_step_prompt_and_completion() -> None:
    base = ids_of(draw(PROMPTS))
    assert ids_of(draw(PROMPTS)) == base
    assert ids_of(draw(PROMPTS, replace(SAMPLING, seed=4))) != base
    assert ids_of(draw(PROMPTS, replace(SAMPLING, step=6))) != base
    assert len({tuple(ids) for ids in base[0]}) > 1
    larger = ids_of(draw(PROMPTS, replace(SAMPLING, group_size=6)))
    assert {index: ids[:4] for index, ids in larger.items()} == base


def test_temperature_0_is_greedy() -> None:
    groups = draw(PROMPTS, replace(SAMPLING, temperature=0.0, group_size=2))
    model = tiny_model()
    for index, group in groups.items():
        ids = list(PROMPTS[index].token_ids)
        for token in group[0].token_ids:
            assert int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)
        assert group[0].token_ids == group[1].token_ids


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature: float) -> None:
    """Chi-square over 40 tokens and 60,000 draws; its 0.9999 quantile at 39 degrees of freedom is 83."""
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=40)).float()
    draws = 60_000
    sampling = replace(SAMPLING, temperature=temperature)
    tokens, logprobs, _ = choose(logits.expand(draws, -1), torch.from_numpy(rng.random(draws)), sampling)
    want = torch.softmax(logits.double() / temperature, -1) * draws
    got = torch.bincount(tokens, minlength=40)
    assert float(((got - want) ** 2 / want).sum()) < 83
    torch.testing.assert_close(logprobs.double(), (want / draws).log()[tokens], atol=1e-5, rtol=1e-5)


def test_a_token_of_no_probability_is_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    uniform = torch.tensor([0.0, 0.25, 0.4999999, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    tokens, _, _ = choose(logits.expand(6, -1), uniform, replace(SAMPLING, temperature=1.0))
    assert tokens.tolist() == [1, 1, 1, 3, 3, 3]


NARROW = [{"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}, {"top_k": 20, "top_p": 0.9, "min_p": 0.05}]


@pytest.mark.parametrize("options", NARROW)
def test_a_narrowed_draw_follows_the_renormalised_softmax_of_what_transformers_keeps(options: dict[str, Any]) -> None:
    sampling = replace(SAMPLING, **options)
    rng = np.random.default_rng(1)
    logits, draws = torch.from_numpy(rng.normal(size=40) * 2).float(), 30_000
    tokens, logprobs, kept = choose(logits.expand(draws, -1), torch.from_numpy(rng.random(draws)), sampling)
    scores = logits[None] / sampling.temperature
    for warper in (
        TopKLogitsWarper(sampling.top_k) if sampling.top_k else None,
        TopPLogitsWarper(sampling.top_p) if sampling.top_p < 1 else None,
        MinPLogitsWarper(sampling.min_p) if sampling.min_p else None,
    ):
        scores = scores if warper is None else warper(torch.LongTensor([[0]]), scores)
    assert kept is not None
    assert torch.equal(kept[0], scores[0] > -torch.inf)
    want = scores[0].softmax(-1)
    torch.testing.assert_close(logprobs, want.log()[tokens], atol=1e-5, rtol=1e-5)
    got = torch.bincount(tokens, minlength=40) / draws
    torch.testing.assert_close(got, want, atol=0.015, rtol=0)


@pytest.mark.parametrize("options", NARROW)
def test_what_was_kept_travels_with_the_completion_and_gives_its_logprobs_again(options: dict[str, Any]) -> None:
    model = tiny_model()
    groups = draw(PROMPTS, replace(SAMPLING, **options))
    for index, group in groups.items():
        rows = [
            CompletionRow(0, g, one.token_ids, one.sampling_logprobs, one.kept, advantage=1.0)
            for g, one in enumerate(group)
        ]
        counts = Denominators.from_lengths([len(row.token_ids) for row in rows], max_completion_length=12)
        batch = Batch([PROMPTS[index].token_ids], rows, counts)
        logprobs, _ = shared_logprobs(model, batch, temperature=SAMPLING.temperature)
        assert logprobs.isfinite().all()
        for row, got in zip(rows, logprobs, strict=True):
            assert row.kept is not None
            assert all(token in ids for token, ids in zip(row.token_ids, row.kept, strict=True))
            want = torch.tensor(row.sampling_logprobs)
            torch.testing.assert_close(got[: len(want)], want, atol=2e-5, rtol=2e-5)


def test_without_narrowing_nothing_is_kept_with_the_completion() -> None:
    assert all(one.kept is None for group in draw(PROMPTS).values() for one in group)
    assert kept_tokens(torch.randn(2, 9), SAMPLING).all()
