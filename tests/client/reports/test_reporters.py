"""TensorBoard, Weights & Biases and trackio, each read back from what it wrote on this machine."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.evaluation import Evaluation, summarise
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.reporters import Guarded, TensorBoard, WeightsAndBiases, numbers, observers
from grpo_client.train import train
from grpo_client.types import Metrics
from tests.client.runs import Configure, read
from tests.conftest import ROOT

CONFIG = TrainConfig(suite="r1@1", run_name="first", reward_url="http://ada:secret@rewards.test")
STEPS: list[Metrics] = [
    {"step": n, "reward": n / 4, "rewards/r1.int@1/mean": 0.5, "kl": None if n < 2 else 0.25, "reward/suite": "r1@1"}
    for n in range(4)
]
RECORD = {
    "prompt_index": 0, "sample": 0, "gold": "2",
    "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "1 + 1?"}],
    "text": "it is 2 \x1b[2J", "token_ids": [1, 2], "finish_reason": "stop", "value": 1.0, "status": "scored",
    "right": True, "scores": {"math.equal@1": 1.0}, "total": 1.0,
}  # fmt: skip
EVALUATION = summarise([RECORD, RECORD | {"value": None, "right": None, "status": "timeout"}], samples=2)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_PROJECT", "WANDB_API_KEY", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def report(reporter: Callback, folder: Path, rows: list[Metrics]) -> None:
    reporter.on_start(CONFIG, folder)
    for row in rows:
        reporter.on_step(row)
    reporter.on_end(folder)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: a session that starts at a step hides what earlier files say of it and later."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted((folder / "tensorboard").iterdir(), key=lambda file: file.stat().st_mtime_ns):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            if event.session_log.status == event.session_log.START:
                found = {tag: [point for point in line if point[0] < event.step] for tag, line in found.items()}
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def history(file: Path) -> Iterator[dict[str, Any]]:
    """The rows in an offline file of Weights & Biases."""
    for record in whole_file(file):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def whole_file(file: Path) -> list[Any]:
    """Its records, once the last one is there: the library writes in a process of its own and does not wait for it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = list(records(file))
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"{file} does not end")


def records(file: Path) -> Iterator[Any]:
    """Records in LevelDB's log format: in blocks of 32 KiB, a record in parts where it does not fit."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        size, part = struct.unpack_from("<HB", data, at + 4)
        if at + 7 + size > len(data):  # it is being written
            return
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (1, 4):  # whole in itself, or the last part
            yield Record.FromString(whole)
            whole = b""


def offline_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime_ns)


def test_tensorboard_gets_every_known_number_under_its_name(tmp_path: Path) -> None:
    report(TensorBoard(), tmp_path, STEPS)
    assert scalars(tmp_path) == {
        "reward": [(0, 0.0), (1, 0.25), (2, 0.5), (3, 0.75)],
        "rewards/r1.int@1/mean": [(n, 0.5) for n in range(4)],
        "kl": [(2, 0.25), (3, 0.25)],
    }
    assert b"secret" not in b"".join(file.read_bytes() for file in (tmp_path / "tensorboard").iterdir())


def test_tensorboard_after_a_resume_shows_each_step_once_as_it_was_at_last(tmp_path: Path) -> None:
    report(TensorBoard(), tmp_path, STEPS)
    (first,) = (tmp_path / "tensorboard").iterdir()
    first.rename(first.with_name(first.name + ".first"))  # two files of one second would have one name
    report(TensorBoard(), tmp_path, [row | {"reward": 9.0} for row in STEPS[2:]])
    assert scalars(tmp_path)["reward"] == [(0, 0.0), (1, 0.25), (2, 9.0), (3, 9.0)]


def test_weights_and_biases_offline_gets_rows_config_and_completions(tmp_path: Path) -> None:
    reporter = WeightsAndBiases(print)
    reporter.on_start(CONFIG, tmp_path)
    reporter.on_step(STEPS[0])
    reporter.on_evaluation(1, EVALUATION)
    reporter.on_step(STEPS[1])
    reporter.on_end(tmp_path)
    (file,) = offline_files(tmp_path)
    rows = list(history(file))
    kept = [{key: value for key, value in row.items() if key[0] != "_" or key == "_step"} for row in rows]
    assert kept[0] == {"_step": 0, "reward": 0.0, "rewards/r1.int@1/mean": 0.5}
    assert kept[1].items() >= {"_step": 1, "reward": 0.25, "eval/completions/nrows": 2}.items()
    table = json.loads((file.parent / "files" / kept[1]["eval/completions/path"]).read_text())
    assert table["columns"] == ["prompt", "gold", "completion", "value", "status", "right"]
    assert table["data"] == [
        ["1 + 1?", "2", "it is 2 \x1b[2J", 1.0, "scored", True],
        ["1 + 1?", "2", "it is 2 \x1b[2J", None, "timeout", None],
    ]
    (run,) = [record.run for record in whole_file(file) if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.display_name) == ("hallmark", "first")
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert config["suite"] == "r1@1"
    assert config["reward_url"] == "http://rewards.test"


def test_weights_and_biases_goes_on_under_the_same_id_after_a_resume(tmp_path: Path) -> None:
    report(WeightsAndBiases(print), tmp_path, STEPS[:2])
    report(WeightsAndBiases(print), tmp_path, STEPS[2:])
    report(WeightsAndBiases(print), tmp_path.with_name("other"), STEPS[:1])
    first, second = offline_files(tmp_path)
    (other,) = offline_files(tmp_path.with_name("other"))
    assert first.name == second.name != other.name
    assert [row["_step"] for file in (first, second) for row in history(file)] == [0, 1, 2, 3]


def test_weights_and_biases_without_an_account_is_a_configuration_error(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.client.reports.test_reporters import STEPS, WeightsAndBiases, report\n"
        "report(WeightsAndBiases(print), Path(sys.argv[1]), STEPS)"
    )
    # A process of its own: the library remembers the mode of the first run. In this home there is no .netrc.
    environment = os.environ | {"WANDB_MODE": "online", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("NETRC", None)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert re.search(r"ConfigError: --report-to wandb: .*wandb login.* WANDB_MODE=offline", ran.stderr)


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_missing_package_is_a_configuration_error_that_says_what_to_install(
    name: str, module: str, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # what Python itself does to forbid an import
    config = configure(report_to=[name])
    with pytest.raises(ConfigError, match=rf"--report-to {name} needs a package .*: pip install {module}$"):
        train(config, Console(file=io.StringIO()))
    assert not (config.output_dir / "metrics.jsonl").exists()


class Fails(Callback):
    """Raises in the calls it is told to, and counts them all."""

    def __init__(self, *fails_in: str, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.fails_in, self.error = fails_in, error or ConnectionError("no route to [host]")

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if what in self.fails_in:
            raise self.error

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        self._call("start")

    def on_step(self, row: Metrics) -> None:
        self._call("step")

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        self._call("evaluation")

    def on_save(self, step: int, path: Path) -> None:
        self._call("save")

    def on_end(self, folder: Path) -> None:
        self._call("end")


def guarded(reporter: Callback, folder: Path) -> tuple[Guarded, list[str]]:
    said: list[str] = []
    guard = Guarded(reporter, name="wandb", say=said.append)
    guard.on_start(CONFIG, folder)
    guard.on_step(STEPS[0])
    guard.on_evaluation(0, EVALUATION)
    guard.on_step(STEPS[1])
    guard.on_save(1, folder)
    guard.on_end(folder)
    return guard, said


FIRST = "wandb: a report failed, and the run goes on: ConnectionError: no route to [host]"


@pytest.mark.parametrize(
    ("fails_in", "calls", "said"),
    [
        ([], ["start", "step", "evaluation", "step", "save", "end"], []),
        (["evaluation"], ["start", "step", "evaluation", "step", "save", "end"], [FIRST]),
        (["step", "end"], ["start", "step", "evaluation", "step", "save", "end"], [FIRST, "wandb: 3 reports failed"]),
        (["start"], ["start"], [FIRST]),
    ],
)
def test_a_failing_report_is_said_once_and_counted_and_ends_nothing(
    fails_in: list[str], calls: list[str], said: list[str], tmp_path: Path
) -> None:
    reporter = Fails(*fails_in)
    guard, heard = guarded(reporter, tmp_path)
    assert reporter.calls == calls
    assert heard == said
    assert guard.failures == sum(call in fails_in for call in calls)


@pytest.mark.parametrize("error", [ConfigError("mend this"), KeyboardInterrupt()])
def test_what_is_the_users_comes_through(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        guarded(Fails("start", error=error), tmp_path)


def test_only_known_numbers_are_charted() -> None:
    row: Metrics = {"step": 3, "reward": 0.0, "kl": None, "reward/suite": "r1@1", "update/applied": 1}
    assert numbers(row) == {"reward": 0.0, "update/applied": 1}


def test_a_report_is_asked_for_once_however_often_it_is_named() -> None:
    config = TrainConfig(suite="r1@1", report_to=("tensorboard", "wandb", "tensorboard"))
    with observers(config, print) as callbacks:
        assert len(callbacks) == 3  # with the plot


def test_a_whole_run_is_reported_as_its_rows_say(configure: Configure) -> None:
    folder = train(configure(report_to=["tensorboard", "wandb"]), Console(file=io.StringIO()))
    rows = read(folder / "metrics.jsonl")
    shown: dict[str, Any] = scalars(folder)
    assert shown["reward"] == [(row["step"], pytest.approx(row["reward"])) for row in rows if "reward" in row]
    assert shown["eval/accuracy"] == [(n, pytest.approx(rows[n]["eval/accuracy"])) for n in (0, 2, 3)]
    (file,) = offline_files(folder)
    found = list(history(file))
    assert [row["_step"] for row in found] == [0, 1, 2, 3]
    assert [row["reward"] for row in found[1:]] == [row["reward"] for row in rows[1:]]
    assert found[2]["eval/completions/nrows"] == 5


@pytest.fixture(scope="module")
def trackio_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trackio and what it brings, beside this environment: uvloop must not get into the tests of the service."""
    folder = tmp_path_factory.mktemp("trackio")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "trackio>=0.30"]
    subprocess.run(install, check=True, timeout=600)
    return folder


@pytest.mark.e2e
def test_trackio_gets_rows_and_goes_on_after_a_resume(trackio_folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from grpo_client.reports.reporters import Trackio\n"
        "from tests.client.reports.test_reporters import STEPS, report\n"
        "report(Trackio(), Path(sys.argv[1]), STEPS[int(sys.argv[2]) : int(sys.argv[3])])"
    )
    environment = os.environ | {"PYTHONPATH": f"{trackio_folder}:{ROOT}", "TRACKIO_DIR": str(tmp_path / "db")}
    for run, start, end in (("a", 0, 2), ("b", 0, 1), ("a", 2, 4)):
        (tmp_path / run).mkdir(exist_ok=True)
        words = [sys.executable, "-c", program, str(tmp_path / run), str(start), str(end)]
        subprocess.run(words, env=environment, check=True, timeout=120)
    with sqlite3.connect(tmp_path / "db" / "hallmark.db") as database:
        rows = database.execute("SELECT run_name, run_id, step, metrics FROM metrics ORDER BY id").fetchall()
        configs = database.execute("SELECT config FROM configs").fetchall()
    assert b"secret" not in b"".join(config for (config,) in configs)
    names = {run: json.loads((tmp_path / run / "reports.json").read_text())["trackio"] for run in "ab"}
    assert all(name.startswith("first-") for name in names.values())
    assert [(name, step) for name, _, step, _ in rows] == [
        (names[run], step) for run, step in (("a", 0), ("a", 1), ("b", 0), ("a", 2), ("a", 3))
    ]
    assert len({run_id for _, run_id, _, _ in rows}) == 2
    assert json.loads(rows[0][3]) == {"reward": 0.0, "rewards/r1.int@1/mean": 0.5}
    assert json.loads(rows[4][3]) == {"reward": 0.75, "rewards/r1.int@1/mean": 0.5, "kl": 0.25}
