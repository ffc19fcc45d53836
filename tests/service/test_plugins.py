"""Rewards of the user's own: served, released, reloaded without dropping a request, and harmless when they fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Server

PLUGIN = '''
"""My rewards."""
import re
from reward_service.worker.catalogue import Catalogue, reward
from reward_service.worker.types import Item

SHOUT = re.compile(r"[A-Z]")

@reward("mine.quiet", version=1, range=(0.0, 1.0))
def quiet_v1(item: Item, *, most: int = 3) -> float:
    """1.0 when there are at most `most` capital letters."""
    return float(len(SHOUT.findall(item.completion)) <= most)

CATALOGUE = Catalogue([quiet_v1])
'''
BAD = """
import os, sys, time
from reward_service.worker.catalogue import Catalogue, reward

@reward("bad.raises", version=1, range=(0, 1))
def raises_v1(item):
    raise KeyError(item.completion)

@reward("bad.hangs", version=1, range=(0, 1))
def hangs_v1(item):
    while item.completion == "hang":
        pass
    return 1.0

@reward("bad.prints", version=1, range=(0, 1))
def prints_v1(item):
    print("x" * 100_000)
    sys.stderr.write("\\x1b[31mred")
    return 1.0

@reward("bad.exits", version=1, range=(0, 1))
def exits_v1(item):
    sys.exit(3)

@reward("bad.dies", version=1, range=(0, 1))
def dies_v1(item):
    if item.completion == "die":
        os._exit(1)
    return 1.0

@reward("bad.nan", version=1, range=(0, 1))
def nan_v1(item):
    return float("nan")

CATALOGUE = Catalogue([raises_v1, hangs_v1, prints_v1, exits_v1, dies_v1, nan_v1])
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "my_rewards.py"
    file.write_text(PLUGIN)
    return file


def ids(server: Server) -> dict[str, str]:
    return {one["id"]: one["digest"] for one in server.http.get("/v1/rewards").json()["rewards"]}


def release(plugin: Path, reward_id: str) -> None:
    command = [sys.executable, "-m", "reward_service.cli", "release", reward_id, "--rewards-module", str(plugin)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_plugin_is_a_draft_until_released_and_then_served_like_any_other(
    plugin: Path, start_server: Callable[..., Server]
) -> None:
    assert "mine.quiet@1" not in ids(start_server(rewards_module=plugin))
    release(plugin, "mine.quiet@1")
    assert "mine.quiet@1" in json.loads(plugin.with_name("my_rewards.released.json").read_text())["rewards"]
    server = start_server(rewards_module=plugin)
    body = {
        "rewards": [{"id": "mine.quiet@1", "params": {"most": 1}}, {"id": "r1.int@1"}],
        "groups": [{"id": "g", "gold": None, "completions": ["7", "LOUD"]}],
    }
    answer = server.http.post("/v1/score", json=body).json()
    assert answer["groups"][0]["scores"] == {"mine.quiet@1": [1.0, 0.0], "r1.int@1": [0.5, 0.0]}
    assert answer["rewards"][0]["draft"] is False


def test_a_plugin_that_fails_harms_only_its_items(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    file = tmp_path / "bad_rewards.py"
    file.write_text(BAD)
    server = start_server(rewards_module=file, allow_drafts=True, unit_cpu_seconds=0.5)
    names = ["raises", "hangs", "prints", "exits", "dies", "nan"]
    rewards = [f"bad.{name}@1" for name in names] + ["r1.int@1"]
    group = server.score(rewards, None, ["hang", "die", "7"])
    statuses = group["statuses"]
    assert statuses["bad.raises@1"] == ["error"] * 3
    assert statuses["bad.hangs@1"] == ["timeout", "scored", "scored"]
    assert statuses["bad.prints@1"] == ["scored"] * 3
    assert statuses["bad.exits@1"] == ["error"] * 3
    assert statuses["bad.dies@1"] == ["scored", "crashed", "scored"]
    assert statuses["bad.nan@1"] == ["error"] * 3
    assert group["scores"]["r1.int@1"] == [0.0, 0.0, 0.5]
    assert group["details"]["bad.raises@1"][0] == {"error": "KeyError"}
    log = server.log.read_text()
    assert "\x1b" not in log
    assert len(log) < 200_000


@pytest.mark.parametrize(
    "text",
    [
        "import nothing_like_this",
        "raise SystemExit(1)",
        "CATALOGUE = 1",
        "print('no catalogue')",
        PLUGIN.replace("mine.quiet", "r1.int"),
        pytest.param("while True: pass", marks=pytest.mark.slow),  # an import may take 20 s
    ],
)
def test_a_plugin_that_cannot_be_imported_is_left_out_and_said(
    text: str, tmp_path: Path, start_server: Callable[..., Server]
) -> None:
    file = tmp_path / "broken_rewards.py"
    file.write_text(text)
    server = start_server(rewards_module=file)
    assert server.score(["r1.int@1"], None, ["7"])["totals"] == [0.5]
    wait_for(lambda: "plugin" in server.log.read_text(), "the log says nothing of the plugin")


def test_a_new_version_is_taken_up_without_dropping_a_request(
    plugin: Path, start_server: Callable[..., Server]
) -> None:
    release(plugin, "mine.quiet@1")
    server = start_server(rewards_module=plugin, allow_drafts=True)
    before = ids(server)
    codes: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        body = {"rewards": [{"id": "mine.quiet@1"}], "groups": [{"id": "g", "gold": None, "completions": ["7"] * 9}]}
        while not stop.is_set():
            response = server.http.post("/v1/score", json=body)
            codes.append(response.status_code)
            assert response.json()["groups"][0]["totals"] == [1.0] * 9

    asking = threading.Thread(target=ask)
    asking.start()
    new = PLUGIN.replace(
        "CATALOGUE = Catalogue([quiet_v1])",
        '@reward("mine.quiet", version=2, range=(0.0, 1.0))\ndef quiet_v2(item):\n    """0.5."""\n    return 0.5\n\n'
        "CATALOGUE = Catalogue([quiet_v1, quiet_v2])",
    )
    plugin.write_text(new)
    os.kill(server.process.pid, signal.SIGHUP)
    wait_for(lambda: "mine.quiet@2" in ids(server), "the new version is not served")
    time.sleep(0.5)
    stop.set()
    asking.join()
    assert set(codes) == {200}
    assert ids(server)["mine.quiet@1"] == before["mine.quiet@1"]
    assert server.score(["mine.quiet@1", "mine.quiet@2"], None, ["7"])["totals"] == [1.5]
    wait_for(lambda: "drains" in server.log.read_text(), "the log says nothing of the reload")


@pytest.mark.parametrize("change", [PLUGIN.replace("[A-Z]", "[A-Y]"), "import nothing_like_this"])
def test_a_reload_that_would_move_a_released_digest_or_lose_a_plugin_is_refused(
    change: str, plugin: Path, start_server: Callable[..., Server]
) -> None:
    release(plugin, "mine.quiet@1")
    server = start_server(rewards_module=plugin)
    before = ids(server)
    plugin.write_text(change)
    os.kill(server.process.pid, signal.SIGHUP)
    wait_for(lambda: "reload refused" in server.log.read_text(), "the log does not refuse the reload")
    assert ids(server) == before
    assert server.score(["mine.quiet@1"], None, ["LOUD"])["totals"] == [0.0]


def test_a_released_plugin_whose_source_moved_is_not_served_after_a_restart(
    plugin: Path, start_server: Callable[..., Server]
) -> None:
    release(plugin, "mine.quiet@1")
    plugin.write_text(PLUGIN.replace("[A-Z]", "[A-Y]"))
    server = start_server(rewards_module=plugin)
    response = server.http.post("/v1/score", json={"rewards": [{"id": "mine.quiet@1"}], "groups": []})
    assert response.status_code == 503
    assert "add a new version" in response.json()["detail"]
