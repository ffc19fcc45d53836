"""Processes that share a step take the step that one would take alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from grpo_client.config import TrainConfig
from grpo_client.train import train
from tests.client.backends.mlx.rank import main as alone
from tests.client.runs import Configure, read
from tests.conftest import ROOT, free_port

RANKS = 2


def test_ranks_with_rows_of_their_own_take_the_steps_of_one(
    settings: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(settings(kl_coef=0.1, loss="grpo", lora_rank=2).model_dump_json())
    alone(str(config), str(tmp_path / "alone"))
    launch = [str(Path(sys.executable).with_name("mlx.launch")), "-n", str(RANKS), "--backend", "ring"]
    launch += ["-p", str(free_port()), "--", sys.executable, "-m", "tests.client.backends.mlx.rank"]
    done = subprocess.run(
        [*launch, str(config), str(tmp_path / "ranks")], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    want = json.loads((tmp_path / "alone" / "0" / "stats.json").read_text())
    weights: Any = mx.load(str(tmp_path / "alone" / "0" / "adapters.safetensors"))
    for rank in range(RANKS):
        folder = tmp_path / "ranks" / str(rank)
        assert (folder / "stats.json").exists(), done.stdout + done.stderr
        got = json.loads((folder / "stats.json").read_text())
        for one, other in zip(got, want, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
        found: Any = mx.load(str(folder / "adapters.safetensors"))
        for name, one in weights.items():
            np.testing.assert_allclose(np.array(found[name]), np.array(one), atol=2e-5, err_msg=name)


@pytest.mark.slow  # the same ranks over a whole run
def test_a_run_of_two_processes_writes_what_a_run_of_one_does(
    configure: Configure, saved: Callable[[str], str], tmp_path: Path
) -> None:
    """Prompts dealt out, groups gathered, one set of records; losses to rounding, rewards and texts to the letter."""
    options = {"model": saved("llama"), "backend": "mlx", "eval_every": 0, "show_completions_every": 0, "steps": 3}
    folder = train(configure(output_dir=tmp_path / "one", **options))
    config = tmp_path / "config.json"
    config.write_text(configure(output_dir=tmp_path / "two", **options).model_dump_json())
    program = (
        "import pathlib, sys; from grpo_client.config import TrainConfig; from grpo_client.train import train; "
        "train(TrainConfig.model_validate_json(pathlib.Path(sys.argv[1]).read_text()))"
    )
    launch = [str(Path(sys.executable).with_name("mlx.launch")), "-n", str(RANKS), "--backend", "ring"]
    done = subprocess.run(
        [*launch, "-p", str(free_port()), "--", sys.executable, "-c", program, str(config)],
        cwd=ROOT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert (tmp_path / "two" / "final" / "model.safetensors").exists(), done.stdout + done.stderr
    rows, others = (read(one / "metrics.jsonl") for one in (folder, tmp_path / "two"))
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for key in ("reward", "reward_std", "loss", "grad_norm", "kl", "completions/mean_length"):
            if row.get(key) is not None:
                assert other[key] == pytest.approx(row[key], rel=1e-3, abs=1e-6), key
    texts, same = ([r["text"] for r in read(one / "rollouts.jsonl")] for one in (folder, tmp_path / "two"))
    assert same == texts
