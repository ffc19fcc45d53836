"""The demo, over three seeds: it starts ignorant, ends knowing, says what it did, and what it saved does the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from reward_service.worker.evaluate import evaluate
from reward_service.worker.rewards import CATALOGUE
from reward_service.worker.types import Item
from tests.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.model]


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().rstrip("\n").split("\n")]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demo_learns_within_8_minutes(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "deploy/demo.py", "--seed", str(seed), "--output-dir", str(folder)], cwd=ROOT, check=True
    )
    assert time.monotonic() - started < 8 * 60
    accuracies = {row["step"]: row["eval/accuracy"] for row in read(folder / "metrics.jsonl") if "eval/accuracy" in row}
    evaluations = read(folder / "evals.jsonl")
    for step, accuracy in accuracies.items():
        answers = [one for one in evaluations if one["step"] == step]
        assert len(answers) >= 64
        assert accuracy == fmean(one["value"] == 1.0 for one in answers)
        assert accuracy == fmean(recompute(one["text"], one["gold"]) == 1.0 for one in answers)
    *_, before_last, last = accuracies.values()
    assert accuracies[0] < 0.35
    assert (before_last + last) / 2 > 0.80
    assert (folder / "reward.png").exists()
    check_final_model(folder, [one for one in evaluations if one["step"] == max(accuracies)][:16])


def recompute(text: str, gold: str) -> float | None:
    """math.equal@1 called as a function; where the text has an answer block of digits, also judged by eye."""
    value = evaluate(CATALOGUE["math.equal@1"], Item(completion=text), golds=[gold], params={}).value
    blocks = re.findall(r"<answer>(\d+)</answer>", text)
    assert not blocks or value == float(blocks[-1] == gold)
    return value


def check_final_model(folder: Path, answers: list[dict[str, Any]]) -> None:
    """transformers alone gives the completions of the last evaluation again."""
    model = AutoModelForCausalLM.from_pretrained(folder / "final", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder / "final")
    for one in answers:
        encoded: Any = tokenizer.apply_chat_template(
            one["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = model.generate(**encoded, do_sample=False, max_new_tokens=24)[0, encoded["input_ids"].shape[1] :]
        assert tokenizer.decode(ids, skip_special_tokens=True) == one["text"]
