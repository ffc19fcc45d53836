"""What a run does when something is not as it should be: rewards, numbers, disk."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import AutoTokenizer

from grpo_client.errors import ConfigError, NotFiniteError, NothingLearntError, RewardServiceError
from grpo_client.learning.losses import make_loss
from grpo_client.train import train
from tests.client.failing import Answer, edited, first, proxy
from tests.client.runs import Configure, read
from tests.client.storage.test_resume import numbers, weights
from tests.client.tiny import TEMPLATE, save_tiny
from tests.conftest import ROOT, Server, missing

# ---- the reward service ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_a_service_that_is_down_for_a_while_pauses_the_run(
    seconds: float,
    configure: Configure,
    start_server: Callable[..., Server],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = train(configure(output_dir=tmp_path / "whole", steps=6))
    server = start_server(workers=1)
    back: list[Server] = []

    def take_down() -> None:
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.01)
        server.process.kill()
        server.process.wait()
        time.sleep(seconds)
        back.append(Server(tmp_path / "again.log", port=server.port, workers=1))

    outage = threading.Thread(target=take_down)
    outage.start()
    try:
        folder = train(configure(output_dir=tmp_path / "run", steps=6, reward_url=server.url))
    finally:
        outage.join()
        back[0].stop()
    assert numbers(folder) == numbers(whole)
    assert weights(folder) == weights(whole)
    said = capsys.readouterr().out
    assert said.count("the run waits and tries again") == 1
    assert said.count("answers again after") == 1


def test_a_service_that_answers_503_for_a_while_changes_no_number(
    configure: Configure, server: Server, tmp_path: Path
) -> None:
    whole = train(configure(output_dir=tmp_path / "whole"))
    with proxy(server.url, first(5, 503, {"retry-after": "0"})) as url:
        folder = train(configure(output_dir=tmp_path / "run", reward_url=url))
    assert numbers(folder) == numbers(whole)


def from_call(number: int, change: Callable[[dict[str, Any]], None]) -> Callable[[str, Answer], Answer]:
    """Edits the answers of /v1/score from its n-th call on."""
    calls = iter(range(1, 10**6))
    spoil = edited(change)

    def behave(path: str, answer: Answer) -> Answer:
        return spoil(path, answer) if path == "/v1/score" and next(calls) >= number else answer

    return behave


def shorten(answer: dict[str, Any]) -> None:
    answer["groups"][0]["totals"].pop()


def move_digest(answer: dict[str, Any]) -> None:
    answer["rewards"][0]["digest"] = "sha256:other"


@pytest.mark.parametrize("change", [shorten, move_digest])
def test_an_answer_that_breaks_the_contract_stops_the_run_with_a_checkpoint(
    change: Callable[[dict[str, Any]], None], configure: Configure, server: Server, tmp_path: Path
) -> None:
    whole = train(configure(output_dir=tmp_path / "whole", steps=5, eval_every=0))
    spoilt = proxy(server.url, from_call(7, change))
    with spoilt as url, pytest.raises(RewardServiceError, match="broke the contract") as error:
        train(configure(output_dir=tmp_path / "run", steps=5, eval_every=0, reward_url=url))
    assert any("step-000002" in note and "--resume auto" in note for note in error.value.__notes__)
    folder = train(configure(output_dir=tmp_path / "run", steps=5, eval_every=0, resume="auto"))
    assert numbers(folder) == numbers(whole)
    assert weights(folder) == weights(whole)


def test_a_scoring_call_may_take_as_long_as_the_config_says(
    configure: Configure, server: Server, tmp_path: Path
) -> None:
    def slow(path: str, answer: Answer) -> Answer:
        time.sleep(1.0 * (path == "/v1/score"))
        return answer

    with proxy(server.url, slow) as url:
        short = {"reward_url": url, "steps": 1, "eval_every": 0, "reward_retry_seconds": 0, "max_completion_length": 2}
        with pytest.raises(RewardServiceError, match="timed out"):
            train(configure(**short, reward_timeout=0.5, output_dir=tmp_path / "short"))
        folder = train(configure(**short, reward_timeout=60, output_dir=tmp_path / "long"))
    assert len(read(folder / "metrics.jsonl")) == 2


def test_an_interrupted_run_does_not_wait_for_a_service_that_is_silent(
    configure: Configure, start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server(workers=1)
    config = configure(steps=10**6, eval_every=0, reward_url=server.url, save_every=0, reward_timeout=600)
    settings = tmp_path / "settings.json"
    settings.write_text(config.model_dump_json())
    command = [sys.executable, "-m", "grpo_client", "train", "--config", str(settings)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = config.output_dir / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_bytes().count(b"\n") > 2):
        time.sleep(0.05)
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    try:
        _, errors = run.communicate(timeout=60)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert run.returncode == 130
    assert "go on with --resume auto" in errors
    assert list((config.output_dir / "checkpoints").glob("step-*"))


# ---- nulls -------------------------------------------------------------------------------------------------


def null_at(places: list[int], status: str) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            for place in places:
                group["totals"][place] = None
                for name in group["scores"]:
                    group["scores"][name][place] = None
                    group["statuses"][name][place] = status

    return change


LEARNS: dict[str, Any] = {"suite": None, "reward": ["r1.count_xml@1", "r1.int@1"], "eval_every": 0, "steps": 2}


@pytest.mark.parametrize(
    ("on_null", "status", "advantages"),
    [
        ("mask", "timeout", [None, float, float, float]),
        ("worst", "timeout", [float, float, float, float]),
        ("worst", "too_large", [float, float, float, float]),
        ("worst", "crashed", [None, float, float, float]),
        ("worst", "bad_gold", [None, float, float, float]),
        ("drop-group", "timeout", [None] * 4),
    ],
)
def test_what_a_null_is_worth(
    on_null: str, status: str, advantages: list[type | None], configure: Configure, server: Server
) -> None:
    with proxy(server.url, edited(null_at([0], status))) as url:
        folder = train(configure(**LEARNS, reward_url=url, on_null=on_null))
    rollouts = read(folder / "rollouts.jsonl")
    for start in range(0, len(rollouts), 4):
        group = rollouts[start : start + 4]
        assert [one["total"] is None for one in group] == [True, False, False, False]
        assert [one["advantage"] if one["advantage"] is None else float for one in group] == advantages
        if on_null == "worst" and advantages[0] is float:
            assert group[0]["advantage"] == min(one["advantage"] for one in group)
    for row in read(folder / "metrics.jsonl")[1:]:
        assert row[f"reward/null/{status}"] == 3 * 2  # of three groups, by each of two rewards


def test_fail_stops_at_the_first_null_and_says_which(configure: Configure, server: Server) -> None:
    spoilt = proxy(server.url, from_call(4, null_at([1], "timeout")))
    with spoilt as url, pytest.raises(RewardServiceError, match=r"completion 1 of prompt \d has no score \(timeout\)"):
        train(configure(**LEARNS, reward_url=url, on_null="fail"))


def test_too_many_nulls_stop_the_run(configure: Configure, server: Server) -> None:
    spoilt = proxy(server.url, from_call(4, null_at([0, 1, 2], "crashed")))
    with spoilt as url, pytest.raises(RewardServiceError, match=r"18 of the last 36 .* crashed 9"):
        train(configure(**LEARNS | {"steps": 20}, reward_url=url, max_null_fraction=0.4))
    assert len(read(configure().output_dir / "metrics.jsonl")) == 4


# ---- numbers that are not finite ---------------------------------------------------------------------------


def spoilt_gradient(real: Any, at: set[int], calls: list[int]) -> Any:
    """A loss whose value is right, and whose gradient is NaN at some calls: the root of 0 times 0."""

    def loss(ops: Any, inputs: Any, counts: Any) -> Any:
        from dataclasses import replace

        outputs = real(ops, inputs, counts)
        calls.append(1)
        if len(calls) in at:
            nothing = (inputs.logprobs - inputs.logprobs.detach()).sum()
            outputs = replace(outputs, loss=outputs.loss + 0 * nothing.abs().sqrt())
        return outputs

    return loss


def test_a_gradient_that_is_not_finite_skips_its_step_and_is_kept_for_study(configure: Configure) -> None:
    config = configure(steps=4, eval_every=0)
    folder = train(config, loss=spoilt_gradient(make_loss(config.loss_config()), {2}, []))
    rows = read(folder / "metrics.jsonl")[1:]
    assert [row["update/applied"] for row in rows] == [1, 0, 1, 1]
    assert rows[1]["grad_norm"] is None
    assert rows[1]["loss"] is not None
    kept = json.loads((folder / "not-finite" / "step-000002.json").read_text())
    assert len(kept[0]["rows"]) == 12
    assert all(torch.isfinite(torch.tensor(row["sampling_logprobs"])).all() for row in kept[0]["rows"])


def test_steps_in_a_row_that_are_not_finite_stop_the_run(configure: Configure) -> None:
    config = configure(steps=20, eval_every=0, max_not_finite=3)
    loss = spoilt_gradient(make_loss(config.loss_config()), {2, 4, 5, 6}, [])
    with pytest.raises(NotFiniteError, match="3 steps in a row") as error:
        train(config, loss=loss)
    assert any("step-000006" in note for note in error.value.__notes__)
    assert len(read(config.output_dir / "metrics.jsonl")) == 7


# ---- nothing to learn from ---------------------------------------------------------------------------------


def test_a_run_in_which_nothing_was_ever_learnt_ends_as_that_with_a_checkpoint(configure: Configure) -> None:
    config = configure(steps=20, eval_every=0, suite=None, reward=["math.equal@2"], max_idle_steps=3)
    with pytest.raises(NothingLearntError, match="3 steps in a row have taught nothing") as error:
        train(config)
    assert error.value.exit_code == 6
    assert any("step-000003" in note for note in error.value.__notes__)
    assert not (config.output_dir / "final").exists()


def test_a_turn_end_that_stops_nothing_and_a_first_step_of_cut_completions_are_told(
    configure: Configure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_tiny(tmp_path / "base")
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = TEMPLATE.replace("<|end|>", "<|user|>")
    tokenizer.save_pretrained(model)
    train(configure(model=model, steps=1, eval_every=0, max_completion_length=2, ignore_eos=True))
    said = capsys.readouterr().out
    assert "add --stop '<|user|>'" in said
    assert "every completion of the first step was cut at --max-completion-length" in said


def test_a_token_that_the_model_does_not_have_is_refused_before_a_step(
    configure: Configure, tmp_path: Path, data: Path
) -> None:
    model = save_tiny(tmp_path / "base")
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens(["§extra§"])
    tokenizer.save_pretrained(model)
    with data.open("a") as file:
        file.write(json.dumps({"question": "§extra§?", "answer": "1"}) + "\n")
    with pytest.raises(ConfigError, match="prompt 10 has token 260, and the model embeds 260"):
        train(configure(model=model))


# ---- a full disk -------------------------------------------------------------------------------------------

DISK = r"""
set -u
mount -t tmpfs -o size=2m tmpfs "$DISK" || exit 99
$TRAIN; echo "code $?"
mount -o remount,size=64m tmpfs "$DISK"
$TRAIN --resume auto; echo "code $?"
cp -r "$DISK/run" "$KEEP"
"""


def test_a_full_disk_stops_the_run_and_with_room_it_goes_on(
    configure: Configure, server: Server, tiny: str, data: Path, tmp_path: Path
) -> None:
    whole = train(configure(steps=12, save_every=2, eval_every=0, output_dir=tmp_path / "whole", keep_checkpoints=9))
    disk = tmp_path / "disk"
    disk.mkdir()
    config = configure(steps=12, save_every=2, eval_every=0, output_dir=disk / "run", keep_checkpoints=9)
    settings = tmp_path / "settings.json"
    settings.write_text(config.model_dump_json())
    program = (
        "import sys; from pathlib import Path; from grpo_client.cli import main; "
        "main(['train', '--config', sys.argv[1], *sys.argv[2:]])"
    )
    script = tmp_path / "train.py"
    script.write_text(program)
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", DISK],
        env={"DISK": str(disk), "KEEP": str(tmp_path / "kept"), "TRAIN": f"{sys.executable} {script} {settings}"}
        | {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "code" not in done.stdout:
        missing(f"a small disk of its own (unshare -rm, tmpfs): {done.stderr.strip()[-200:]}")
    codes = [line for line in done.stdout.splitlines() if line.startswith("code")]
    assert codes == ["code 5", "code 0"], done.stdout + done.stderr
    assert "No space left" in done.stderr
    assert "is whole; go on with --resume auto" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert numbers(tmp_path / "kept") == numbers(whole)
    assert weights(tmp_path / "kept") == weights(whole)


def test_the_terminal_is_told_what_was_saved(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    train(configure(steps=2), Console(width=300))
    said = capsys.readouterr().out
    assert "checkpoints/step-000002" in said
    assert "final" in said
