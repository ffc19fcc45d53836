"""Tiny models, on which one thread is fastest, and configurations of runs on them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grpo_client import cli
from grpo_client.config import TrainConfig
from tests.client.runs import Configure, Run
from tests.client.tiny import save_tiny
from tests.conftest import Server


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the commands that tests start
    yield
    del os.environ["OMP_NUM_THREADS"]
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.jsonl"
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def configure(tiny: str, data: Path, tmp_path: Path, server: Server) -> Configure:
    def make(**changes: object) -> TrainConfig:
        settings: dict[str, object] = {
            "model": tiny,
            "data": str(data),
            "eval_data": str(data),
            "reward_url": server.url,
            "suite": "r1@1",
            "steps": 3,
            "prompts_per_step": 3,
            "group_size": 4,
            "max_completion_length": 12,
            "learning_rate": 1e-3,
            "kl_coef": 0.1,
            "eval_every": 2,
            "eval_prompts": 5,
            "eval_reward": "r1.int@1",
            "output_dir": tmp_path / "run",
        }
        return TrainConfig.model_validate(settings | changes)

    return make


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, output and errors of a command run in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(one) for one in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(exit_.value.code or 0), captured.out, captured.err

    return run
