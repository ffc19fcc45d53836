"""A released reward whose source moves for speed is proven to pay what it paid, and joins its own history."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reward_service.commands.same_numbers import differences
from tests.conftest import ROOT, Server
from tests.service.test_plugins import PLUGIN, ids, release

FASTER = PLUGIN.replace("len(SHOUT.findall(item.completion))", "sum(1 for _ in SHOUT.finditer(item.completion))")


def released_again(plugin: Path, vectors: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reward_service.cli", "release", "mine.quiet@1", "--rewards-module", str(plugin)]
    command += ["--same-numbers", "--vectors", str(vectors)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_nothing_of_ours_pays_differently_than_at_the_last_commit() -> None:
    vectors = ROOT / "tests" / "golden" / "r1.count_xml@1.jsonl"
    assert differences("r1.count_xml@1", vectors, against="HEAD") == []


def test_a_faster_source_joins_the_history_and_earlier_digests_are_accepted(
    tmp_path: Path, start_server: Callable[..., Server]
) -> None:
    plugin, vectors = tmp_path / "my_rewards.py", tmp_path / "vectors.jsonl"
    plugin.write_text(PLUGIN)
    vectors.write_text('{"completion": "LOUD", "value": 0.0}\n{"completion": "quiet", "value": 1.0}\n')
    release(plugin, "mine.quiet@1")
    (old,) = json.loads(plugin.with_name("my_rewards.released.json").read_text())["rewards"]["mine.quiet@1"]["digests"]
    plugin.write_text(FASTER)
    result = released_again(plugin, vectors)
    assert result.returncode == 0, result.stderr
    server = start_server(rewards_module=plugin)
    assert ids(server)["mine.quiet@1"] != old
    assert server.http.get("/v1/rewards/mine.quiet@1").json()["history"] == [old]
    for digest, code in ((old, 200), ("sha256:" + "0" * 64, 409)):
        body = {"rewards": [{"id": "mine.quiet@1", "digest": digest}], "groups": []}
        assert server.http.post("/v1/score", json=body).status_code == code


@pytest.mark.parametrize("vectors", ['{"completion": "LOUD", "value": 1.0}\n'])
def test_a_source_that_fails_its_vectors_is_not_released(vectors: str, tmp_path: Path) -> None:
    plugin, file = tmp_path / "my_rewards.py", tmp_path / "vectors.jsonl"
    plugin.write_text(PLUGIN)
    release(plugin, "mine.quiet@1")
    plugin.write_text(FASTER)
    file.write_text(vectors)
    result = released_again(plugin, file)
    assert result.returncode == 1
    assert "wanted 1.0" in result.stderr
