"""What a run writes, shows and tells: files, terminal, callbacks."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_client.config import TrainConfig
from grpo_client.evaluation import Evaluation, summarise
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.monitor import Monitor, line, progress_text
from grpo_client.terminal import printable
from grpo_client.types import Metrics
from tests.client.runs import read

CONFIG = TrainConfig(suite="r1@1")
ROW: Metrics = {
    "step": 7,
    "reward": 0.5,
    "completions/mean_length": 1024.0,
    "kl": None,
    "loss": 1e-9,
    "time/step": 4.0,
    "tok_per_s/rollout": 12_345.6,
    "peak_mem_gb": 1.25,
    "reward/null/timeout": 2,
    "reward/null/error": 1,
    "reward/unscored": 3,
}
RECORD = {
    "prompt_index": 0, "status": "scored", "token_ids": [1], "finish_reason": "stop", "value": 1.0, "right": True,
    "scores": {"math.equal@1": 1.0}, "total": 1.0,
}  # fmt: skip


class Heard(Callback):
    """Writes down what it is told; raises where it is asked to."""

    def __init__(self, name: str, into: list[str], *, fails_in: str = "") -> None:
        self.name, self.into, self.fails_in = name, into, fails_in

    def hear(self, what: str) -> None:
        self.into.append(f"{self.name} {what}")
        if what.split()[0] == self.fails_in:
            raise RuntimeError(f"{self.name} failed in {what}")

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        self.hear(f"start {config.suite} {folder.name}")

    def on_step(self, row: Metrics) -> None:
        self.hear(f"step {row['step']}")

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        self.hear(f"evaluation {step} {evaluation.accuracy}")

    def on_save(self, step: int, path: Path) -> None:
        self.hear(f"save {step} {path.name}")

    def on_end(self, folder: Path) -> None:
        self.hear(f"end {folder.name}")


def monitor(folder: Path, **changes: Any) -> Monitor:
    folder.mkdir(exist_ok=True)
    settings: dict[str, Any] = {"steps": 20, "show_completions_every": 0, "config": CONFIG}
    console = changes.pop("console", None) or Console(file=io.StringIO())
    return Monitor(folder, console=console, **(settings | changes))


@contextmanager
def open_descriptors_unchanged() -> Iterator[None]:
    def of(folder: str) -> set[str]:
        return {str(link.resolve()) for link in Path("/proc/self/fd").iterdir() if folder in str(link.resolve())}

    yield
    if Path("/proc/self/fd").exists():
        assert not of("metrics.jsonl")


def test_callbacks_hear_of_a_run_in_their_order_and_of_its_end_when_it_fails(tmp_path: Path) -> None:
    heard: list[str] = []

    def run() -> None:
        with monitor(tmp_path / "run", callbacks=[Heard("a", heard), Heard("b", heard)]) as one:
            one.log_evaluation(0, summarise([RECORD], samples=1))
            one.log({"step": 0, "eval/accuracy": 0.25})
            one.saved(0, tmp_path / "final")
            raise KeyError("the run")

    with pytest.raises(KeyError, match="the run"):
        run()
    assert heard == [
        f"{name} {what}"
        for what in ("start r1@1 run", "evaluation 0 1.0", "step 0", "save 0 final", "end run")
        for name in ("a", "b")
    ]


def test_a_row_is_in_the_file_when_callbacks_hear_of_it(tmp_path: Path) -> None:
    class Reads(Callback):
        def on_step(self, row: Metrics) -> None:
            assert read(tmp_path / "metrics.jsonl")[-1] == row
            self.read = row["step"]

    reads = Reads()
    with monitor(tmp_path, callbacks=[reads]) as one:
        one.log({"step": 3})
    assert reads.read == 3


def test_a_callback_that_raises_ends_the_run_and_the_others_still_hear_of_the_end(tmp_path: Path) -> None:
    heard: list[str] = []
    callbacks = [Heard("a", heard, fails_in="end"), Heard("b", heard)]
    with pytest.raises(RuntimeError, match="a failed in end"), monitor(tmp_path, callbacks=callbacks):
        pass
    assert heard[-2:] == [f"a end {tmp_path.name}", f"b end {tmp_path.name}"]


def test_a_callback_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    heard: list[str] = []
    console = Console(file=io.StringIO(), force_terminal=True)
    callbacks = [Heard("a", heard), Heard("b", heard, fails_in="start")]
    with (
        open_descriptors_unchanged(),
        pytest.raises(RuntimeError, match="b failed in start"),
        monitor(tmp_path, callbacks=callbacks, console=console),
    ):
        pass
    assert heard == [f"a start r1@1 {tmp_path.name}", f"b start r1@1 {tmp_path.name}", f"a end {tmp_path.name}"]


def test_a_resumed_run_goes_on_with_its_files_and_says_so_in_its_first_row(tmp_path: Path) -> None:
    with monitor(tmp_path) as one:
        for step in range(3):
            one.log({"step": step})
    with monitor(tmp_path, resumed_at=2) as one:
        one.log({"step": 3})
        one.log({"step": 4})
    rows = read(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row.get("resumed_at") for row in rows] == [None, None, None, 2, None]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here, the device that is always full")
def test_a_full_disk_ends_the_run_with_an_oserror_and_leaves_the_terminal_whole(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    screen = io.StringIO()
    heard: list[str] = []
    console = Console(file=screen, force_terminal=True)
    with (
        pytest.raises(OSError, match="No space left on device"),
        monitor(tmp_path, console=console, callbacks=[Heard("a", heard)]) as one,
    ):
        one.log(ROW)
    assert screen.getvalue().rfind("\x1b[?25h") > screen.getvalue().rfind("\x1b[?25l") >= 0  # the cursor is back
    assert heard == [f"a start r1@1 {tmp_path.name}", f"a end {tmp_path.name}"]
    assert console._live_stack == []


def test_a_line_tells_rate_tokens_and_memory_and_leaves_out_what_is_not_known() -> None:
    assert line(ROW) == (
        "step 7  reward 0.5  length 1024  loss 1e-09  seconds 4  it/s 0.25  tok/s 12346  peak mem GB 1.25  UNSCORED 3"
    )
    assert line({"step": 0, "eval/accuracy": 0.0}) == "step 0  held-out accuracy 0"


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ({"a@1": 0.5, "b@1": None, "c@2": -0.25}, "reward 0.5  a@1 0.5  c@2 -0.25"),
        ({"a@1": 0.25}, "reward 0.5  a@1 0.25"),  # of weight 2
        ({"a@1": 0.5}, "reward 0.5"),  # it would be said twice
        ({}, "reward 0.5"),
    ],
)
def test_a_line_tells_each_reward_loss_and_rate(named: dict[str, float | None], shown: str) -> None:
    of_each: Metrics = {f"rewards/{name}/mean": value for name, value in named.items()}
    row: Metrics = {"step": 3, "reward": 0.5} | of_each | {"rewards/a@1/std": 9.0, "loss": 0.125, "learning_rate": 3e-5}
    assert line(row) == f"step 3  {shown}  loss 0.125  rate 3e-05"


def test_the_progress_bar_tells_reward_length_kl_and_tokens(tmp_path: Path) -> None:
    assert progress_text(ROW | {"kl": 0.01}) == "reward 0.5  length 1024  kl 0.01  tok/s 12346"
    screen = io.StringIO()
    with monitor(tmp_path, resumed_at=6, console=Console(file=screen, force_terminal=True, width=160)) as one:
        one.log(ROW)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "6/20" in shown
    assert "7/20" in shown
    assert "reward 0.5  length 1024  tok/s 12346" in shown


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\x07", r"a\r" + "\n" + r"b\x07"),
        ("\u202etxt", r"\u202etxt"),
        ("[red]é😀", "[red]é😀"),
    ],
)
def test_what_others_wrote_cannot_steer_the_terminal(hostile: str, shown: str, tmp_path: Path) -> None:
    screen = io.StringIO()
    with monitor(tmp_path, console=Console(file=screen)) as one:
        one.say(hostile)
    assert printable(hostile) == shown
    assert screen.getvalue() == shown + "\n"
