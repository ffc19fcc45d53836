"""Whole runs on MLX through a live service: they learn, and killed and taken up again they give the same numbers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import mlx_lm
import pytest

from grpo_client.train import train
from tests.client.backends.mlx.test_adapters import greedy
from tests.client.runs import Configure, read
from tests.conftest import ROOT

DIGITS = {
    "suite": None, "reward": ("r1.int@1",), "eval_every": 0, "kl_coef": 0, "group_size": 16,
    "max_completion_length": 2, "show_completions_every": 0, "backend": "mlx",
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": 0.01, "steps": 25}, {"learning_rate": 0.03, "steps": 25, "lora_rank": 4, "dora": True}],
)
def test_a_run_learns_what_pays(options: dict[str, Any], configure: Configure) -> None:
    """A tiny random model learns to write digits: the reward rises clearly in 25 steps."""
    rewards = [row["reward"] for row in read(train(configure(**DIGITS, **options)) / "metrics.jsonl")[1:]]
    assert fmean(rewards[-5:]) > fmean(rewards[:5]) + 0.1


def test_a_run_writes_what_a_run_on_pytorch_writes(
    configure: Configure, saved: Callable[[str], str], tmp_path: Path
) -> None:
    ours = train(configure(model=saved("llama"), output_dir=tmp_path / "mlx", backend="mlx"))
    theirs = train(configure(model=saved("llama"), output_dir=tmp_path / "torch", backend="torch"))
    assert {one.name for one in ours.iterdir()} == {one.name for one in theirs.iterdir()}
    for row, other in zip(read(ours / "metrics.jsonl"), read(theirs / "metrics.jsonl"), strict=True):
        assert row.keys() == other.keys()
        for key in ("reward", "loss", "grad_norm", "kl", "eval/accuracy", "completions/mean_length"):
            if row.get(key) is not None or other.get(key) is not None:
                assert row[key] == pytest.approx(other[key], rel=5e-3, abs=1e-5)
    texts, others = ([one["text"] for one in read(folder / "rollouts.jsonl")] for folder in (ours, theirs))
    assert texts == others
    last = [one for one in read(ours / "evals.jsonl") if one["step"] == 3]
    model = mlx_lm.load(str(ours / "final"))
    for one in last:
        ids = tuple(model[1].apply_chat_template(one["prompt"], add_generation_prompt=True, return_dict=False))
        assert greedy(model, ids, len(one["token_ids"])) == one["token_ids"]


def numbers(folder: Path) -> list[dict[str, Any]]:
    rows = read(folder / "metrics.jsonl")
    apart = ("time/", "tok_per_s/", "peak", "resumed_at")
    return [{k: v for k, v in row.items() if not k.startswith(apart)} for row in rows]


@pytest.mark.slow  # what tests/client/storage/test_resume.py does, on another backend
def test_a_killed_run_that_is_taken_up_again_gives_the_same_numbers(configure: Configure, tmp_path: Path) -> None:
    settings = {"backend": "mlx", "steps": 6, "save_every": 2, "eval_every": 3, "show_completions_every": 0}
    through, killed = tmp_path / "through", tmp_path / "killed"
    train(configure(output_dir=through, **settings))
    config = configure(output_dir=killed, **settings)
    file = tmp_path / "config.json"
    file.write_text(config.model_dump_json())
    program = (
        "import pathlib, sys; from grpo_client.config import TrainConfig; from grpo_client.train import train; "
        "train(TrainConfig.model_validate_json(pathlib.Path(sys.argv[1]).read_text()))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(file)], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(killed.glob("checkpoints/step-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert not (killed / "final").exists()
    train(config.model_copy(update={"resume": "auto"}))
    assert numbers(killed) == numbers(through)
    assert any("resumed_at" in row for row in read(killed / "metrics.jsonl"))
    ours, theirs = (folder / "final" / "model.safetensors" for folder in (killed, through))
    assert ours.read_bytes() == theirs.read_bytes()
