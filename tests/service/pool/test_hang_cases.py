"""The published cases that hang math-verify, over HTTP: alone and beside healthy neighbours, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Server

NEIGHBOURS = {r"\boxed{\frac{1}{2}}": 0.0, r"\boxed{17}": 1.0, "I do not know": 0.0, "<answer>17</answer>": 1.0}


def expanded(case: dict[str, Any]) -> tuple[str, str]:
    gold, completion = case["gold"], case["completion"]
    for one in case.get("expand", []):
        completion = completion.replace(one["token"], one["text"] * one["times"])
        gold = gold.replace(one["token"], one["text"] * one["times"])
    return gold, completion


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    lines = (shared / "cases" / "verification.jsonl").read_text(encoding="utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["kind"] == "hang"]


def memory_gb(server: Server) -> float:
    root = psutil.Process(server.process.pid)
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss / 1e9
        except psutil.NoSuchProcess:
            continue
    return total


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        ("math.equal@2", 2.0),
        pytest.param("math.equal@1", 2.0, marks=pytest.mark.slow),  # most of the cases burn the whole clock
    ],
)
def test_each_case_ends_within_its_clock_and_harms_nobody(
    rule: str, seconds: float, cases: list[dict[str, Any]], start_server: Callable[..., Server]
) -> None:
    server = start_server(allow_drafts=True, unit_cpu_seconds=seconds)
    assert len(cases) == 36
    for case in cases:
        gold, completion = expanded(case)
        body = {
            "rewards": [{"id": rule}],
            "groups": [
                {"id": "before", "gold": "17", "completions": list(NEIGHBOURS)},
                {"id": "hang", "gold": gold, "completions": [completion]},
                {"id": "after", "gold": "17", "completions": [text + " " for text in NEIGHBOURS]},
            ],
        }
        response = server.http.post("/v1/score", json=body)
        before, hang, after = response.json()["groups"]
        assert before["totals"] == after["totals"] == list(NEIGHBOURS.values()), case["id"]
        value, status = hang["scores"][rule][0], hang["statuses"][rule][0]
        assert (value is None) == (status not in {"scored", "no_answer"}), case["id"]
        assert status not in {"error", "crashed", "expired"}, case["id"]
        # math-verify itself calls one of them true; @1 is its verdict.
        assert rule == "math.equal@1" or not (case.get("never_true") and value == 1.0), case["id"]
        assert rule == "math.equal@1" or status != "timeout", case["id"]
        assert memory_gb(server) < 2.5
    assert server.score([rule], "17", [r"\boxed{17}"])["totals"] == [1.0]
