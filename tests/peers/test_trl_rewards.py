"""A service's rewards in TRL: a real GRPOTrainer calls them, and learns nothing from what has no score."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from grpo_client.adapters.trl import TrlRewards, text_of
from grpo_client.errors import ConfigError
from tests.client.tiny import tiny_model, tiny_tokenizer
from tests.conftest import Server

pytestmark = pytest.mark.peer
trl = pytest.importorskip("trl", reason="TRL is not installed (pip install --no-deps trl==1.16.0 datasets)")
REWARDS = {"repetition.tokens@1": 1.0, "math.equal@1": 0.5, "r1.count_xml@1": 2.0}
QUESTIONS = [
    {"prompt": [{"role": "user", "content": "1 + 1"}], "answer": "2", "level": 1},
    {"prompt": [{"role": "user", "content": "2 + 2"}], "answer": "", "level": 2},  # a gold that cannot be read
]


def score(server: Server, name: str, questions: list[dict[str, Any]]) -> list[Any]:
    """What the service says of one reward, asked directly."""
    answer = httpx.post(f"{server.url}/v1/score", json={"rewards": [{"id": name}], "groups": questions}, timeout=30)
    return [value for group in answer.json()["groups"] for value in group["scores"][name]]


def scoring_calls(server: Server) -> float:
    """How many the service has answered."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(float(one.split()[-1]) for one in lines if re.match(r'hallmark_requests_total{.*route="/v1/score"', one))


def test_a_trainer_gets_the_service_s_scores_in_one_call_a_batch(server: Server, tmp_path: Path) -> None:
    from datasets import Dataset

    rewards = TrlRewards(server.url, rewards=REWARDS)
    seen: list[tuple[str, dict[str, Any], list[float | None]]] = []

    def heard(function: Callable[..., list[float | None]]) -> Callable[..., list[float | None]]:
        def call(**batch: Any) -> list[float | None]:
            values = function(**batch)
            seen.append((function.__name__, batch, values))
            return values

        call.__name__ = function.__name__
        return call

    before = scoring_calls(server)
    trainer = trl.GRPOTrainer(
        model=tiny_model(),
        reward_funcs=[heard(function) for function in rewards.functions],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path), per_device_train_batch_size=8, num_generations=4, max_completion_length=12,
            use_cpu=True, bf16=False, report_to=[], max_steps=2, logging_steps=1, save_strategy="no", disable_tqdm=True,
            reward_weights=rewards.weights,
        ),
        train_dataset=Dataset.from_list(QUESTIONS),
        processing_class=tiny_tokenizer(),
    )  # fmt: skip
    trainer.train()
    assert scoring_calls(server) - before == 2
    assert [name for name, _, _ in seen] == list(REWARDS) * 2
    for name, batch, values in seen:
        golds, texts = batch["answer"], [completion[0]["content"] for completion in batch["completions"]]
        asked = [
            {"id": str(i), "gold": "0", "completions": [{"text": text, "token_ids": ids}]}
            for i, (text, ids) in enumerate(zip(texts, batch["completion_ids"], strict=True))
        ]
        direct = score(server, name, asked)
        want = [None if gold == "" else value for gold, value in zip(golds, direct, strict=True)]
        if name != "math.equal@1":
            assert values == want
        assert [value is None for value in values] == [gold == "" for gold in golds]
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(steps) == 2
    for entry in steps:
        assert {f"rewards/{name}/mean" for name in REWARDS} <= entry.keys()
        assert entry["reward/null/bad_gold"] == 4
        assert entry["reward/null/timeout"] == 0
    nulls = torch.tensor([value is None for value in trainer._logs["rewards"]["math.equal@1"]])
    assert (torch.tensor(list(trainer._logs["advantages"]))[nulls] == 0).all()


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("7", "7"),
        ([{"role": "assistant", "content": "7"}], "7"),
        ([{"role": "assistant", "content": None}], ""),
        ([], ""),
    ],
)
def test_a_completion_is_text_or_chat_messages(completion: object, text: str) -> None:
    assert text_of(completion) == text


def batch(**columns: Any) -> dict[str, Any]:
    return {
        "prompts": ["a", "a", "b"],
        "completions": ["x", "yy", "zzz"],
        "completion_ids": [[1], [1, 2], [3]],
    } | columns


def test_rows_of_a_prompt_are_a_group_and_columns_are_sent_where_they_are_needed(server: Server) -> None:
    (kimi,) = TrlRewards(server.url, rewards={"kimi.length@1": 1.0}, gold_column="gold").functions
    values = kimi(**batch(gold=["1", "1", "2"]))
    assert values[0] is not None
    assert values[1] is not None
    assert values[0] > values[1]  # the longer of two wrong ones is paid less
    (schema,) = TrlRewards(server.url, rewards={"text.json_schema@1": 1.0}, metadata_columns=["json_schema"]).functions
    assert schema(**batch(completions=["3", '"a"', "4"], json_schema=[{"type": "number"}] * 3)) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"rewards": {"math.equal@1": 1.0}}, {"solution": ["1"] * 3}, "column 'answer', .* columns are: solution"),
        ({"rewards": {"text.json_schema@1": 1.0}}, {}, "metadata_columns"),
        ({"rewards": {"length.at_most@1": 1.0}}, {"completion_ids": None}, "token ids"),
        ({"rewards": {"math.equal@1": 1.0}}, {"answer": ["1", "1", 1.5]}, "group 1 of the batch .*: gold"),
        (
            {"rewards": {"r1.int@1": 1.0}},
            {"completions": ["x", "\ud800", "y"]},
            "not Unicode text",
        ),
        ({}, {}, "name a suite, or rewards"),
        ({"suite": "r1@1", "rewards": {"r1.int@1": 1.0}}, {}, "name a suite, or rewards"),
        ({"rewards": {"r1.imt@1": 1.0}}, {}, "r1.int@1"),
    ],
)
def test_what_cannot_be_scored_is_said(
    options: dict[str, Any], columns: dict[str, Any], message: str, server: Server
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrlRewards(server.url, **options).functions[0](**batch(**columns))
