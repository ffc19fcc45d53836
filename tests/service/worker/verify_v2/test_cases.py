"""The shared cases and the GSM8K labels: every sure case is right, every label reproduced."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from reward_service.worker.types import BadGold, TooLarge
from reward_service.worker.verify.v2 import equal, extract, read_gold
from tests.benchmarks.cases import CASES, GSM8K, MODELS, expanded, is_right, verdict

pytestmark = pytest.mark.skipif(
    not CASES.exists() and not os.environ.get("CI"), reason=f"the shared cases are not at {CASES}"
)

# Cases whose verdict may move under these changes of spelling, and why.
MAY_MOVE = {
    ("math-038", "swapped"): "a gold decimal is trusted with three digits, a model's is not",
    ("math-335", "swapped"): "the answer is unread, and an unread gold is a bad gold",
    ("rob-015", "swapped"): "the answer is unread, and an unread gold is a bad gold",
    ("rob-037", "swapped"): "the answer is unread, and an unread gold is a bad gold",
}


def cases(*kinds: str) -> list[dict[str, Any]]:
    if not CASES.exists():
        return []
    return [case for case in map(json.loads, CASES.read_text("utf-8").splitlines()) if case["kind"] in kinds]


BOOLEAN_KINDS = ("math", "gsm8k", "multiple_choice", "robust")


def test_every_sure_case_is_right() -> None:
    sure = [case for case in cases(*BOOLEAN_KINDS) if case["confidence"] == "sure"]
    assert len(sure) >= 300
    assert [case["id"] for case in sure if not is_right(case, verdict(*expanded(case)))] == []


def test_no_sure_negative_is_paid() -> None:
    negatives = [case for case in cases(*BOOLEAN_KINDS) if case["confidence"] == "sure" and case["expect"] is False]
    assert len(negatives) >= 90
    assert [case["id"] for case in negatives if verdict(*expanded(case)) is True] == []


def test_all_labels_of_the_published_gsm8k_solutions_are_reproduced() -> None:
    golds = [json.loads(line)["answer"] for line in (GSM8K / "test.jsonl").read_text("utf-8").splitlines()]
    lines = (GSM8K / "example_model_solutions.jsonl").read_text("utf-8").splitlines()
    rows = [(gold, row[model]) for gold, row in zip(golds, map(json.loads, lines), strict=True) for model in MODELS]
    assert len(rows) == 5276
    assert [each["solution"] for gold, each in rows if verdict(gold, each["solution"]) is not each["is_correct"]] == []


def _judged(gold: str, answer: str) -> bool | str:
    try:
        return equal(gold=read_gold(gold), answer=answer)
    except (BadGold, TooLarge) as error:
        return type(error).__name__


CHANGES: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "swapped": lambda gold, answer: (answer, gold),
    "spaced": lambda gold, answer: (f" {gold}\n", f"\n  {answer} "),
    "full stop": lambda gold, answer: (gold, answer + "."),
    "boxed": lambda gold, answer: (gold, rf"\boxed{{{answer}}}"),
    "boxed gold": lambda gold, answer: (rf"\boxed{{{gold}}}", answer),
    "dollars": lambda gold, answer: (gold, answer if "$" in answer else f"${answer}$"),
    "dollars round the gold": lambda gold, answer: (gold if "$" in gold else f"${gold}$", answer),
    "parentheses": lambda gold, answer: (gold, answer if "$" in answer else rf"\({answer}\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_spelling_moves_no_verdict(change: str) -> None:
    moved = []
    for case in cases(*BOOLEAN_KINDS):
        gold, completion = expanded(case)
        found = extract(completion)
        try:
            core = read_gold(gold).text
        except BadGold:
            continue
        if found is None:
            continue
        before, after = _judged(core, found.answer), _judged(*CHANGES[change](core, found.answer))
        if before is not after:
            moved.append(case["id"])
    assert moved == [case_id for case_id, of in MAY_MOVE if of == change]
