"""The README says what is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from reward_service.commands.rewards import reward_table
from reward_service.locks import LOCKS
from reward_service.served import OWN_REWARDS
from reward_service.worker.modules import load
from tests.client.tiny import save_tiny
from tests.conftest import ROOT, Server

README = (ROOT / "reward_service" / "README.md").read_text(encoding="utf-8")


def test_the_table_of_rewards_is_the_catalogue() -> None:
    table = re.search(r"<!-- reward-service rewards --markdown -->\n(.*?)\n<!-- end -->", README, re.DOTALL)
    assert table
    rewards = load([OWN_REWARDS, *(lock.module for lock in LOCKS)]).catalogue
    assert table[1] == reward_table(rewards), "write it anew: reward-service rewards --markdown"
    assert f"{len(list(rewards))} rewards are served" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_plugin_of_the_readme_works_as_written(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    code = re.search(r"```python\n(# my_rewards\.py\n.*?)```", README, re.DOTALL)
    assert code
    assert code[1].count("\n") < 20
    (tmp_path / "my_rewards.py").write_text(code[1])
    (tmp_path / "vectors.jsonl").write_text('{"completion": "short", "value": 1.0}\n')
    options = ["--rewards-module", "my_rewards.py"]
    for command in (
        ["reward_service.commands.vectors", "mine.brief@1", "vectors.jsonl", *options],
        ["reward_service.cli", "release", "mine.brief@1", *options],
    ):
        subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, check=True, capture_output=True)
    server = start_server(rewards_module=tmp_path / "my_rewards.py")
    assert server.score(["mine.brief@1"], None, ["short", "x" * 201])["totals"] == [1.0, 0.0]
    model = save_tiny(tmp_path / "tiny")
    train = ["-m", "grpo_client", "train", "--reward-url", server.url, "--model", model, "--reward", "mine.brief@1"]
    train += [
        "--steps",
        "1",
        "--eval-every",
        "0",
        "--max-completion-length",
        "4",
        "--output-dir",
        str(tmp_path / "run"),
    ]
    subprocess.run([sys.executable, *train], cwd=ROOT, check=True, capture_output=True)
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().split("\n")[1])
    assert row["rewards/mine.brief@1/mean"] == 1.0


def test_vectors_that_differ_are_named(tmp_path: Path) -> None:
    (tmp_path / "vectors.jsonl").write_text('{"id": "odd", "completion": "7", "value": 0.25}\n')
    command = [sys.executable, "-m", "reward_service.commands.vectors", "r1.int@1", "vectors.jsonl"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "odd: wanted 0.25" in result.stdout
