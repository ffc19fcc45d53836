"""What a scoring call costs over HTTP, beside an endpoint that reads the same body and does nothing: `make bench`.

Both are served by uvicorn, asked in turn by one client, one group of 8 completions a call; medians of what was measured
in this run. The last line is throughput: all groups in one request.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
from fastapi import FastAPI
from reward_proto import v1

from tests.conftest import ROOT, SHARED, Server, free_port

CALLS = 200
RULES = ("r1.accuracy@1", "math.equal@1")

nothing = FastAPI()


@nothing.post(v1.SCORE_PATH)
async def do_nothing(body: v1.ScoreRequest) -> dict[str, str]:
    """Validate the body and answer."""
    return {}


@contextmanager
def serving_nothing() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.benchmarks.service:nothing", "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "warning"], cwd=ROOT)
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            try:
                httpx.get(url)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def groups() -> list[dict[str, Any]]:
    """GSM8K questions with their four published model solutions, twice each with another ending: 8 a group."""
    file = SHARED / "data/gsm8k/example_model_solutions.jsonl"
    found: list[dict[str, Any]] = []
    if file.exists():
        for n, line in enumerate(file.read_text(encoding="utf-8").splitlines()[:CALLS]):
            row = json.loads(line)
            texts = [value["solution"] for value in row.values() if isinstance(value, dict)]
            gold = row["ground_truth"].rpartition("A:")[2].strip()
            found.append({"id": str(n), "gold": gold, "completions": texts + [text + " " for text in texts]})
        return found
    print("(../shared is not here: made-up completions)")
    texts = [f"{'so we add them up, ' * 20} and the answer is {k}" for k in range(8)]
    return [{"id": str(n), "gold": str(n % 8), "completions": [f"{n}: {text}" for text in texts]} for n in range(CALLS)]


def call(http: httpx.Client, url: str, rule: str, part: Sequence[Mapping[str, object]]) -> float:
    body = {"rewards": [{"id": rule}], "groups": part}
    started = time.perf_counter()
    response = http.post(url + v1.SCORE_PATH, json=body)
    seconds = time.perf_counter() - started
    response.raise_for_status()
    return seconds


def main() -> None:
    work = groups()
    with tempfile.TemporaryDirectory() as folder, serving_nothing() as idle, httpx.Client(timeout=600) as http:
        server = Server(Path(folder) / "log")
        try:
            server.wait_ready()
            for rule in RULES:
                pairs = [(call(http, server.url, rule, [one]), call(http, idle, rule, [one])) for one in work]
                ours, theirs = ([pair[i] * 1e3 for pair in pairs[20:]] for i in (0, 1))
                for name, times in ((rule, ours), ("nothing", theirs)):
                    cut = quantiles(times, n=100)
                    print(f"{name:16} one group of 8:  p50 {median(times):7.2f} ms   p99 {cut[98]:7.2f} ms")
                count = sum(len(one["completions"]) for one in work)
                seconds = call(http, server.url, rule, work)
                print(f"{rule:16} {count} completions in one request: {count / seconds:9.0f} completions/s")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
