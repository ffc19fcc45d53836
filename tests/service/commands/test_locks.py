"""Rewards on other packages than the service's own: built, served beside the rest, never run on other pins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reward_service import locks
from tests.conftest import ROOT, Server

(LOCK,) = locks.LOCKS
OLD, NEW = "math_verify.equal@1", "math_verify.equal@2"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("locks")
    locks.build(LOCK, root, wheels=None)
    return root


def test_a_lock_that_is_not_built_is_503_with_the_command(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(allow_drafts=True, locks_dir=tmp_path / "nothing")
    body = {"rewards": [{"id": OLD}], "groups": []}
    response = server.http.post("/v1/score", json=body)
    assert response.status_code == 503
    assert "reward-service locks build math-verify-0.8.0" in response.json()["detail"]
    assert "retry-after" in response.headers
    assert server.score([NEW], "$7$", ["$7$"])["totals"] == [1.0]


def test_one_request_mixes_locks_and_the_verdicts_differ_on_percent_golds(
    start_server: Callable[..., Server], built: Path
) -> None:
    server = start_server(allow_drafts=True, locks_dir=built)
    body = {
        "rewards": [{"id": OLD}, {"id": NEW}, {"id": "r1.int@1"}],
        "groups": [{"id": "g", "gold": r"$28\%$", "completions": ["so $28$", r"so $28\%$", "so $3$"]}],
    }
    answer = server.http.post("/v1/score", json=body).json()
    assert answer["groups"][0]["scores"] == {OLD: [0.0, 1.0, 0.0], NEW: [1.0, 1.0, 0.0], "r1.int@1": [0.0] * 3}
    digests = {one["id"]: one["digest"] for one in answer["rewards"]}
    assert digests[OLD] != digests[NEW]
    described = server.http.get(f"/v1/rewards/{OLD}").json()
    assert described["lock"]["math-verify"] == "0.8.0"
    assert described["digest"] == digests[OLD]


def test_the_golden_vectors_of_a_locked_reward_hold(start_server: Callable[..., Server], built: Path) -> None:
    server = start_server(allow_drafts=True, locks_dir=built, locks=LOCK.name)
    lines = [json.loads(line) for line in (ROOT / "tests/golden" / f"{OLD}.jsonl").read_text().rstrip("\n").split("\n")]
    assert len(lines) >= 40
    groups = [{"id": one["id"], "gold": one.get("gold"), "completions": [text_of(one)]} for one in lines]
    response = server.http.post("/v1/score", json={"rewards": [{"id": OLD}], "groups": groups}).json()
    got = [(group["scores"][OLD][0], group["statuses"][OLD][0]) for group in response["groups"]]
    assert got == [(one["value"], one["status"]) for one in lines]


def text_of(line: dict[str, object]) -> str:
    text = str(line["completion"])
    for one in line.get("expand", []):  # type: ignore[attr-defined]
        text = text.replace(one["token"], one["text"] * one["times"])
    return text


def test_the_differing_verdicts_are_listed_by_a_command(
    start_server: Callable[..., Server], built: Path, tmp_path: Path
) -> None:
    server = start_server(allow_drafts=True, locks_dir=built)
    file = tmp_path / "answers.jsonl"
    rows = [{"gold": r"$28\%$", "completion": "so $28$"}, {"gold": "$7$", "completion": "so $7$"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "reward_service.cli", "compare", OLD, NEW, str(file), "--url", server.url]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 of 2 differ" in result.stdout
    assert "28" in result.stdout


@pytest.mark.slow  # builds the lock once more
def test_a_lock_is_built_offline_from_a_folder_of_wheels(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    download = ["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", str(LOCK.requirements)]
    subprocess.run([sys.executable, *download, "--dest", str(wheels)], check=True, capture_output=True)
    folder = locks.build(LOCK, tmp_path / "locks", wheels=wheels)
    assert locks.python_of(LOCK, tmp_path / "locks") == str(folder / "bin" / "python")


def test_a_wheel_with_another_hash_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("mpmath==1.3.0 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setattr(locks.LockedEnvironment, "requirements", property(lambda self: requirements))
    with pytest.raises(locks.LockError, match="pip failed"):
        locks.build(LOCK, tmp_path / "locks", wheels=None)
    assert locks.python_of(LOCK, tmp_path / "locks") is None
