"""Evaluation: pass@k, what is counted, and noise that is its own and the same at every step."""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from reward_proto import v1

from grpo_client.backends.draws import noise
from grpo_client.evaluation import evaluation_metrics, evaluation_sampling, judged, pass_at_k, reported_ks, summarise
from grpo_client.rewards.client import Manifest
from grpo_client.train import train
from grpo_client.types import Prompt, Sampling
from tests.client.failing import edited, proxy
from tests.client.runs import Configure, read
from tests.conftest import Server


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(n: int) -> None:
    """Every way to draw k of n completions, counted out."""
    for right, k in itertools.product(range(n + 1), range(1, n + 1)):
        completions = [i < right for i in range(n)]
        draws = list(itertools.combinations(completions, k))
        assert pass_at_k(n, right, k) == pytest.approx(fmean(any(draw) for draw in draws))


def test_pass_at_k_of_many_completions_does_not_overflow() -> None:
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5)
    assert pass_at_k(10_000, 0, 100) == 0.0
    assert pass_at_k(10_000, 10_000, 1) == 1.0


@pytest.mark.parametrize(
    ("samples", "ks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])]
)
def test_k_goes_in_powers_of_two_up_to_the_samples(samples: int, ks: list[int]) -> None:
    assert reported_ks(samples) == ks


def record(prompt: int, value: float | None, status: str = "scored", reason: str = "stop", tokens: int = 2) -> Any:
    return {
        "prompt_index": prompt,
        "value": value,
        "status": status,
        "right": None if value is None else value >= 1.0,
        "finish_reason": reason,
        "token_ids": [0] * tokens,
        "scores": {"judge": value, "form": 0.25},
        "total": None if value is None else value + 0.25,
    }


def test_nulls_are_in_no_mean_and_a_prompt_with_too_few_scores_is_in_no_pass_at_k() -> None:
    found = summarise(
        [
            *[record(0, 1.0), record(0, 0.0)],
            *[record(1, None, "timeout"), record(1, 1.0, tokens=4)],
            *[record(2, None, "bad_gold", "length"), record(2, None, "timeout")],
        ],
        samples=2,
    )
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.reward == pytest.approx(2 / 3 + 0.25)
    assert found.rewards == {"judge": pytest.approx(2 / 3), "form": 0.25}
    assert found.pass_at == {1: pytest.approx((0.5 + 1.0) / 2), 2: pytest.approx(1.0)}
    assert (found.nulls, found.null_statuses) == (3, {"bad_gold": 1, "timeout": 2})
    assert found.mean_length == pytest.approx(14 / 6)
    assert found.clipped_ratio == pytest.approx(1 / 6)


def test_where_nothing_was_scored_nothing_is_known() -> None:
    found = summarise([record(0, None, "timeout"), record(1, None, "timeout")], samples=1)
    assert (found.accuracy, found.reward, found.pass_at, found.nulls) == (None, None, {1: None}, 2)
    assert found.rewards == {"judge": None, "form": 0.25}
    row = evaluation_metrics(found)
    assert row["eval/accuracy"] is None
    assert not [name for name in row if "pass@" in name]


def test_evaluation_draws_noise_of_its_own_that_no_step_changes(configure: Configure) -> None:
    prompts = [Prompt(index, [], (), "") for index in range(3)]
    sampling = evaluation_sampling(configure(eval_samples=4, eval_temperature=0.7, seed=5))
    assert (sampling.group_size, sampling.temperature, sampling.step) == (4, 0.7, 0)
    drawn = noise(prompts, sampling)
    for step in range(5):
        training = Sampling(group_size=4, max_tokens=sampling.max_tokens, temperature=1.0, seed=5, step=step)
        assert not np.isin(noise(prompts, training), drawn).any()


def test_trainings_noise_is_what_it_was_before_there_were_streams() -> None:
    sampling = Sampling(group_size=2, max_tokens=3, temperature=1.0, seed=7, step=11)
    want = [np.random.default_rng((7, 11, 4, g)).random(3) for g in range(2)]
    assert np.array_equal(noise([Prompt(4, [], (), "")], sampling), np.stack(want))


def test_a_run_with_several_eval_samples_reports_pass_at_k_that_its_records_give(configure: Configure) -> None:
    config = configure(eval_samples=4, eval_temperature=1.0, learning_rate=1e-9, kl_coef=0.0, sampling_rows=4)
    folder = train(config)
    rows = {row["step"]: row for row in read(folder / "metrics.jsonl") if "eval/accuracy" in row}
    by_step = {
        step: list(members)
        for step, members in itertools.groupby(read(folder / "evals.jsonl"), key=lambda one: one["step"])
    }
    assert by_step.keys() == rows.keys() == {0, 2, 3}
    for step, records in by_step.items():
        assert [(one["prompt_index"], one["sample"]) for one in records] == list(itertools.product(range(5), range(4)))
        row = rows[step]
        right = [[one["value"] == 0.5 for one in records[4 * p : 4 * p + 4]] for p in range(5)]
        assert row["eval/accuracy"] == pytest.approx(fmean(map(fmean, right)))
        assert row["eval/pass@1"] == pytest.approx(row["eval/accuracy"])
        for k in (2, 4):
            want = fmean(fmean(any(draw) for draw in itertools.combinations(one, k)) for one in right)
            assert row[f"eval/pass@{k}"] == pytest.approx(want)
        assert row["eval/rewards/r1.int@1/mean"] == pytest.approx(fmean(one["value"] for one in records))
        assert row["eval/reward"] == pytest.approx(fmean(one["total"] for one in records))
        assert row["eval/mean_length"] == pytest.approx(fmean(len(one["token_ids"]) for one in records))
        assert row["eval/clipped_ratio"] == pytest.approx(fmean(one["finish_reason"] == "length" for one in records))
        assert row["eval/null"] == 0
    texts = [[one["text"] for one in records] for records in by_step.values()]
    assert texts[0] == texts[1] == texts[2]  # an unmoved policy says the same at each step
    assert len(set(texts[0])) > 5
    sampled = {one["text"] for one in read(folder / "rollouts.jsonl")}
    assert not sampled & {text for text in texts[0] if len(text) > 6}


def test_nulls_of_an_evaluation_are_counted_and_not_wrong(configure: Configure, server: Server) -> None:
    def unscore(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            for name in group["scores"]:
                group["totals"][0] = group["scores"][name][0] = None
                group["statuses"][name][0] = "timeout"

    with proxy(server.url, edited(unscore)) as url:
        folder = train(configure(reward_url=url, eval_samples=2, eval_temperature=1.0, steps=0))
    (row,) = read(folder / "metrics.jsonl")
    records = read(folder / "evals.jsonl")
    assert row["eval/null"] == 5
    assert row["eval/accuracy"] == fmean(one["right"] for one in records if one["right"] is not None)
    assert row["eval/pass@2"] is None
    assert [one["right"] is None for one in records] == [True, False] * 5


def test_several_greedy_samples_are_refused(configure: Configure, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="set --eval-temperature"):
        configure(eval_samples=2)


PAID = [0.0, 0.25, 0.999, 1.0]  # of the completions of each prompt; length.near's top value is 1


def test_only_the_top_value_is_right_and_the_judges_mean_is_that_of_all(configure: Configure, server: Server) -> None:
    def pay(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            group["scores"]["length.near@1"] = PAID  # the judge is no reward of the run: its weight is 0

    with proxy(server.url, edited(pay)) as url:
        config = configure(reward_url=url, eval_reward="length.near@1", eval_samples=4, eval_temperature=1.0, steps=0)
        folder = train(config)
    (row,) = read(folder / "metrics.jsonl")
    assert row["eval/accuracy"] == row["eval/pass@1"] == 0.25
    assert (row["eval/pass@2"], row["eval/pass@4"]) == (0.5, 1.0)
    assert row["eval/rewards/length.near@1/mean"] == pytest.approx(fmean(PAID))
    assert row["eval/reward"] != pytest.approx(fmean(PAID))
    assert [one["right"] for one in read(folder / "evals.jsonl")] == [False, False, False, True] * 5


# ---- what a run learns from, held out ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "judge", "asked"),
    [
        (["a@1=2"], "b@1", [("a@1", 2.0), ("b@1", 0.0)]),
        (["a@1=2", "b@1=0.5"], "b@1", [("a@1", 2.0), ("b@1", 0.5)]),  # asked once, with its weight
    ],
)
def test_the_judge_is_asked_beside_the_rewards_and_pays_nothing(
    rewards: list[str], judge: str, asked: list[tuple[str, float]]
) -> None:
    specs = [v1.RewardSpec(id=one.partition("=")[0], weight=float(one.partition("=")[2])) for one in rewards]
    manifest, name = judged(Manifest(None, tuple(specs), {}, "s"), Manifest(None, (v1.RewardSpec(id=judge),), {}, "s"))
    assert [(one.id, one.weight) for one in manifest.rewards] == asked
    assert name == judge


def test_a_judge_with_other_parameters_than_the_reward_of_its_name_is_another_one() -> None:
    trained = v1.RewardSpec(id="length.near@1", params={"target": 9})
    manifest, name = judged(
        Manifest(None, (trained,), {}, "s"), Manifest(None, (v1.RewardSpec(id="length.near@1"),), {}, "s")
    )
    assert name == "length.near@1 (eval)"
    assert manifest.names == ["length.near@1", name]


def test_each_reward_of_the_training_is_told_of_held_out_completions(configure: Configure) -> None:
    rewards = ["r1.count_xml@1=2", "length.near@1=0.5"]
    folder = train(configure(suite=None, reward=rewards, steps=0, eval_samples=2, eval_temperature=1.0))
    (row,) = read(folder / "metrics.jsonl")
    records = read(folder / "evals.jsonl")
    assert {key for key in row if key.startswith("eval/rewards/")} == {
        f"eval/rewards/{name}/mean" for name in ("r1.count_xml@1", "length.near@1", "r1.int@1")
    }
    for name in ("r1.count_xml@1", "length.near@1"):
        assert row[f"eval/rewards/{name}/mean"] == pytest.approx(fmean(one["scores"][name] for one in records))
    for one in records:
        want = 2 * one["scores"]["r1.count_xml@1"] + 0.5 * one["scores"]["length.near@1"]
        assert one["total"] == pytest.approx(want)


NO_MLX = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="no MLX here")
BACKENDS = ["torch", pytest.param("mlx", marks=NO_MLX)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_held_out_loss_is_that_of_a_policy_which_has_just_sampled(configure: Configure, backend: str) -> None:
    """Ratios of 1: minus each completion's advantage, a token at a time."""
    settings = {"suite": None, "reward": ["length.near@1"], "kl_coef": 0.0, "eval_samples": 4, "eval_temperature": 1.3}
    stops = [str(one) for one in range(0, 260, 7)]  # for completions of different lengths
    folder = train(configure(**settings, steps=0, backend=backend, stop=stops))
    (row,) = read(folder / "metrics.jsonl")
    records = read(folder / "evals.jsonl")
    tokens, total = 0, 0.0
    for prompt in range(5):
        group = [one for one in records if one["prompt_index"] == prompt]
        paid = np.array([one["total"] for one in group])
        advantages = (paid - paid.mean()) / (paid.std(ddof=1) + 1e-4)
        tokens += sum(len(one["token_ids"]) for one in group)
        total += sum(-a * len(one["token_ids"]) for a, one in zip(advantages, group, strict=True))
    assert abs(total / tokens) > 1e-3
    assert row["eval/loss"] == pytest.approx(total / tokens, abs=1e-5)
    assert "eval/kl" not in row


@pytest.mark.parametrize("backend", BACKENDS)
def test_held_out_kl_begins_at_nothing_and_grows_with_learning(configure: Configure, backend: str) -> None:
    folder = train(configure(steps=4, eval_every=4, learning_rate=0.02, kl_coef=0.1, backend=backend))
    first, last = (row for row in read(folder / "metrics.jsonl") if "eval/kl" in row)
    assert first["eval/kl"] == pytest.approx(0.0, abs=1e-6)
    assert last["eval/kl"] > 1e-3
    assert "eval/loss" not in first  # one greedy completion of a prompt compares with nothing


@pytest.mark.parametrize(("asked", "evaluated"), [(5, 5), (-1, 9), (99, 9)])
def test_minus_one_evaluates_on_every_prompt(configure: Configure, asked: int, evaluated: int) -> None:
    folder = train(configure(eval_prompts=asked, steps=0))
    assert len(read(folder / "evals.jsonl")) == evaluated


def test_no_prompts_to_evaluate_on_are_refused_with_what_turns_evaluation_off(configure: Configure) -> None:
    with pytest.raises(ValidationError, match="--eval-every 0 turns evaluation off"):
        configure(eval_prompts=0)
