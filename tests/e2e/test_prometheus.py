"""A real Prometheus scrapes a real service while the client trains SmolLM2, and answers for the run's rewards."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT, Server, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.model]


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.fail("the commands prometheus and promtool are missing: apt-get install prometheus")
    running = []

    def start(target: str) -> str:
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        config = tmp_path / "prometheus.yml"
        config.write_text(text.replace("rewards:8000", target).replace("scrape_interval: 5s", "scrape_interval: 1s"))
        assert "rewards:8000" in text
        port = free_port()
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
        running.append(
            subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        )
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait(20)


def test_promtool_accepts_the_configuration_and_the_metrics(start_server: Callable[..., Server]) -> None:
    config = str(ROOT / "deploy/prometheus/prometheus.yml")
    assert subprocess.run(["promtool", "check", "config", config], check=False).returncode == 0
    server = start_server()
    server.score(["r1.count_xml@1", "math.equal@1"], "7", ["7", "abc"])
    metrics = server.http.get("/metrics").content
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_answers_for_the_rewards_of_a_run(
    prometheus: Callable[[str], str], start_server: Callable[..., Server], smollm2: str, tmp_path: Path
) -> None:
    server = start_server()
    url = prometheus(f"127.0.0.1:{server.port}")
    options = ["--reward-url", server.url, "--model", smollm2, "--data", "addition", "--suite", "r1@1", "--steps", "3"]
    options += ["--prompts-per-step", "2", "--group-size", "4", "--max-completion-length", "16", "--eval-every", "0"]
    subprocess.run(
        [sys.executable, "-m", "grpo_client", "train", *options, "--output-dir", str(tmp_path / "run")],
        cwd=ROOT,
        check=True,
    )
    rollouts = [json.loads(line) for line in (tmp_path / "run/rollouts.jsonl").read_text().rstrip("\n").split("\n")]
    wanted = sum(one["scores"]["r1.accuracy@1"] for one in rollouts)
    queries = {
        'hallmark_scores_total{reward="r1.accuracy@1",status="scored"}': len(rollouts),
        'hallmark_reward_value_count{reward="r1.accuracy@1"}': len(rollouts),
        'hallmark_reward_paid_total{reward="r1.accuracy@1",sign="+"}': wanted,
    }
    deadline = time.monotonic() + 20
    for query, value in queries.items():
        got = None
        while got != value and time.monotonic() < deadline:
            answer = httpx.get(f"{url}/api/v1/query", params={"query": query}).json()["data"]["result"]
            got = float(answer[0]["value"][1]) if answer else None
            time.sleep(0.5)
        assert got == value, query
