"""The seven rewards of the two scripts behind this project: every published vector, corners, linear time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from reward_service.worker.evaluate import evaluate
from reward_service.worker.rewards import CATALOGUE
from reward_service.worker.types import Item
from tests.conftest import Server


def value_of(reward_id: str, completion: str, gold: str | None = "7") -> tuple[float | None, str]:
    golds = None if gold is None else [gold]
    outcome = evaluate(CATALOGUE[reward_id], Item(completion=completion), golds=golds, params={})
    return outcome.value, outcome.status


def test_all_316_published_vectors_are_paid_over_http_as_the_scripts_paid_them(shared: Path, server: Server) -> None:
    cases = [json.loads(line) for line in (shared / "cases" / "seed_rewards.jsonl").read_text().splitlines()]
    rewards = list(cases[0]["rewards"])
    groups = [{"id": case["id"], "gold": case["gold"], "completions": [case["completion"]]} for case in cases]
    response = server.http.post("/v1/score", json={"rewards": [{"id": one} for one in rewards], "groups": groups})
    answers = response.json()["groups"]
    assert len(answers) == len(cases) == 316
    for case, answer in zip(cases, answers, strict=True):
        got = {reward: answer["scores"][reward][0] for reward in rewards}
        assert got == pytest.approx(case["rewards"], abs=1e-9), case["id"]


@pytest.mark.parametrize(
    ("reward_id", "completion", "value"),
    [
        ("r1.accuracy@1", "<answer>7</answer>", 2.0),
        ("r1.accuracy@1", "<answer> 7\n</answer>", 2.0),
        ("r1.accuracy@1", "7", 2.0),
        ("r1.accuracy@1", "<answer>7", 2.0),
        ("r1.accuracy@1", "7</answer> and more", 2.0),
        ("r1.accuracy@1", "<answer>6</answer><answer>7</answer>", 2.0),
        ("r1.accuracy@1", "<answer>7</answer><answer>6</answer>", 0.0),
        ("r1.accuracy@1", "<answer>7.0</answer>", 0.0),
        ("r1.int@1", "<answer>²</answer>", 0.5),
        ("r1.int@1", "<answer>-7</answer>", 0.0),
        ("r1.int@1", "<answer></answer>", 0.0),
        ("r1.int@1", "", 0.0),
        ("r1.soft_format@1", "<think>a</think><answer>b</answer>", 0.5),
        ("r1.soft_format@1", "<think></think>\n \t<answer></answer> tail\n", 0.5),
        ("r1.soft_format@1", "<think>a\nb</think><answer>c</answer>", 0.0),
        ("r1.soft_format@1", "<think>a</think><answer>b\n</answer>", 0.0),
        ("r1.soft_format@1", "<think>a</think>x</think><answer>b</answer>", 0.5),
        ("r1.soft_format@1", "<think>a</think><answer>b</think>\n<answer>c</answer>", 0.5),
        ("r1.soft_format@1", "<think>a</think><answer>b\n<think></think><answer>c</answer>", 0.0),
        ("r1.soft_format@1", " <think>a</think><answer>b</answer>", 0.0),
        ("r1.soft_format@1", "<think>a</think>\x85<answer>b</answer>", 0.5),
        ("r1.strict_format@1", "<think>\na\n</think>\n<answer>\nb\n</answer>\n", 0.5),
        ("r1.strict_format@1", "<think>\na\n</think>\n<answer>\nb\n</answer>\n\n", 0.5),
        ("r1.strict_format@1", "<think>\na\n</think>\n<answer>\nb\n</answer>\n\n\n", 0.0),
        ("r1.strict_format@1", "<think>\na\n</think>\n<answer>\nb\n</answer>", 0.0),
        ("r1.strict_format@1", "<think>\n\n</think>\n<answer>\n\n</answer>\n", 0.5),
        ("r1.strict_format@1", "<think>\na\nb\n</think>\n<answer>\nc\n</answer>\n", 0.0),
        ("r1.count_xml@1", "<think>\na\n</think>\n<answer>\nb\n</answer>\n", 0.5),
        ("r1.count_xml@1", "", 0.001),
        ("r1.count_xml@1", "abc", -0.005),
        ("r1.count_xml@1", "<think>\na\n</think>\n<answer>\nb\n</answer>\nxyz", 0.494),
        ("simple_grpo.correct@1", "6 then 7", 1.0),
        ("simple_grpo.correct@1", "7 then 6", -1.0),
        ("simple_grpo.correct@1", "14/2", 1.0),
        ("simple_grpo.correct@1", "7.00", 1.0),
        ("simple_grpo.correct@1", "-7", 1.0),
        ("simple_grpo.correct@1", "1,007", 1.0),
        ("simple_grpo.format@1", "<think>a\nb</think><answer>\nc</answer>", 1.25),
        ("simple_grpo.format@1", "<think>a</think><answer>c</answer>\n", 1.25),
        ("simple_grpo.format@1", "<think>a</think> <answer>c</answer>", -1.0),
        ("simple_grpo.format@1", "<think>a</think><answer>c</answer>.", -1.0),
        ("simple_grpo.format@1", "<think></think><answer></answer>", 1.25),
        ("simple_grpo.format@1", "<think></answer>", -1.0),
    ],
)
def test_the_corners_of_each_rule(reward_id: str, completion: str, value: float) -> None:
    got, status = value_of(reward_id, completion)
    assert got == pytest.approx(value, abs=1e-9)
    assert status == "scored"


@pytest.mark.parametrize(("completion", "status"), [("no number", "no_answer"), ("7", "scored")])
def test_a_text_without_a_number_is_no_answer(completion: str, status: str) -> None:
    assert value_of("simple_grpo.correct@1", completion)[1] == status


@pytest.mark.parametrize("reward_id", ["r1.accuracy@1", "simple_grpo.correct@1", "math.equal@1"])
def test_a_missing_gold_is_bad_gold_and_not_a_number(reward_id: str) -> None:
    assert value_of(reward_id, "7", None) == (None, "bad_gold")


@pytest.mark.parametrize(
    ("reward_id", "gold"), [("simple_grpo.correct@1", "seven"), ("simple_grpo.correct@1", ""), ("math.equal@1", " ")]
)
def test_a_gold_that_cannot_be_read_is_bad_gold(reward_id: str, gold: str) -> None:
    assert value_of(reward_id, "no number", gold) == (None, "bad_gold")


def test_of_several_golds_the_best_one_counts() -> None:
    item = Item(completion="<answer>0.5</answer>")
    assert evaluate(CATALOGUE["r1.accuracy@1"], item, golds=["1/2", "0.5"], params={}).value == 2.0
    assert evaluate(CATALOGUE["simple_grpo.correct@1"], item, golds=["x", "3"], params={}).value == -1.0
    assert evaluate(CATALOGUE["simple_grpo.correct@1"], item, golds=["x", "y"], params={}).status == "bad_gold"


HOSTILE = {
    "borders": lambda n: "<think>" + "</think><answer>" * (n // 16),
    "borders and spaces": lambda n: "<think>" + "</think> \t" * (n // 10),
    "one long gap": lambda n: "<think></think>" + " " * n,
    "gaps": lambda n: "<think>" + ("</think>" + " " * 50) * (n // 58),
    "openings": lambda n: "<think>" + "<answer>" * (n // 8),
    "newlines": lambda n: "<think>\n" + "\n" * n,
    "digits": lambda n: "1" * n,
    "dotted digits": lambda n: "1." * (n // 2),
    "slashes": lambda n: "1/" * (n // 2),
    "tags on lines": lambda n: "\n</answer>\n" * (n // 11),
}
ANCESTORS = [one.id for one in CATALOGUE if one.id.endswith("@1") and one.id.startswith(("r1.", "simple_grpo."))]


@pytest.mark.parametrize("reward_id", [one for one in ANCESTORS if one != "simple_grpo.correct@1"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_time_grows_with_the_text_and_not_with_its_square(reward_id: str, text: object) -> None:
    def seconds(size: int) -> float:
        completion = text(size)  # type: ignore[operator]
        started = time.process_time()
        value_of(reward_id, completion)
        return time.process_time() - started

    # 16 times the text; a quadratic rule would take 256 times as long.
    small, large = min(seconds(1 << 16) for _ in range(3)), min(seconds(1 << 20) for _ in range(3))
    assert large < 80 * small + 0.02
