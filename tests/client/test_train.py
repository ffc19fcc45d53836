"""Whole runs of a tiny model through a live service: what is written, what is refused, what a failure leaves."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_client.errors import BrokenModelError, ConfigError, RewardServiceError
from grpo_client.train import train
from tests.client.failing import edited, proxy
from tests.client.runs import Configure, Run, read
from tests.client.tiny import TEMPLATE, tiny_model, tiny_tokenizer
from tests.conftest import ROOT, Server


def check_metrics_against_rollouts(folder: Path) -> None:
    """Every number of metrics.jsonl that comes from rewards, recomputed from rollouts.jsonl."""
    rows = {row["step"]: row for row in read(folder / "metrics.jsonl")}
    rollouts = read(folder / "rollouts.jsonl")
    for step, group in itertools.groupby(rollouts, key=lambda one: one["step"]):
        completions, row = list(group), rows[step]
        totals = [one["total"] for one in completions if one["total"] is not None]
        assert row["reward"] == pytest.approx(fmean(totals))
        assert row["reward_std"] == pytest.approx(stdev(totals))
        for name in completions[0]["scores"]:
            scores = [one["scores"][name] for one in completions if one["scores"][name] is not None]
            assert row[f"rewards/{name}/mean"] == pytest.approx(fmean(scores))
            assert row[f"rewards/{name}/std"] == pytest.approx(stdev(scores))
        flat = 0
        by_group = [list(one) for _, one in itertools.groupby(completions, key=lambda one: one["group"])]
        for members in by_group:
            scored = [one["total"] for one in members if one["total"] is not None]
            spread = stdev(scored) if len(scored) > 1 else 0.0
            dead = len(scored) < 2 or max(scored) - min(scored) <= 1e-6
            flat += dead
            for one in members:
                if one["total"] is None:
                    assert one["advantage"] is None
                else:
                    want = 0.0 if dead else (one["total"] - fmean(scored)) / (spread + 1e-4)
                    assert one["advantage"] == pytest.approx(want)
        assert row["frac_reward_zero_std"] == flat / len(by_group)
        assert row["completions/mean_length"] == pytest.approx(fmean(one["token_count"] for one in completions))
        clipped = fmean(one["finish_reason"] == "length" for one in completions)
        assert row["completions/clipped_ratio"] == pytest.approx(clipped)


def tokens_of(folder: Path, step: int) -> int:
    return sum(one["token_count"] for one in read(folder / "rollouts.jsonl") if one["step"] == step)


def test_a_run_writes_rows_rollouts_plot_and_model_that_agree(configure: Configure) -> None:
    config = configure(save_every=2)
    folder = train(config)
    rows = read(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert ["eval/accuracy" in row for row in rows] == [True, False, True, True]
    assert len(read(folder / "rollouts.jsonl")) == 3 * 3 * 4
    check_metrics_against_rollouts(folder)
    assert rows[1]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[1]["sampling/logp_diff_max"] < 1e-3
    assert rows[3]["kl"] > 0
    counted = list(itertools.accumulate(tokens_of(folder, step) for step in (1, 2, 3)))
    assert [row["trained_tokens"] for row in rows[1:]] == counted
    assert "trained_tokens" not in rows[0]
    for step, members in itertools.groupby(read(folder / "evals.jsonl"), key=lambda one: one["step"]):
        assert rows[step]["eval/accuracy"] == fmean(one["value"] == 0.5 for one in members)
        assert rows[step]["eval/reward_id"] == "r1.int@1"
    assert (folder / "reward.png").stat().st_size > 10_000
    assert {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json"} <= {
        one.name for one in (folder / "final").iterdir()
    }
    assert (folder / "checkpoints" / "step-000002" / "model.safetensors").exists()
    assert not list(folder.rglob("*.partial"))


def test_the_saved_model_reproduces_the_last_evaluation(configure: Configure) -> None:
    folder = train(configure())
    model = AutoModelForCausalLM.from_pretrained(folder / "final", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder / "final")
    for one in (one for one in read(folder / "evals.jsonl") if one["step"] == 3):
        encoded: Any = tokenizer.apply_chat_template(
            one["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        ids = model.generate(**encoded, do_sample=False, max_new_tokens=12, pad_token_id=0)[
            0, encoded["input_ids"].shape[1] :
        ]
        assert ids.tolist() == one["token_ids"]


def test_the_same_run_twice_gives_the_same_numbers(configure: Configure, tmp_path: Path) -> None:
    def numbers(folder: Path) -> list[dict[str, Any]]:
        rows = read(folder / "metrics.jsonl")
        return [{k: v for k, v in row.items() if not k.startswith(("time/", "tok_per_s/", "peak"))} for row in rows]

    once = numbers(train(configure(output_dir=tmp_path / "a")))
    assert numbers(train(configure(output_dir=tmp_path / "b"))) == once
    assert numbers(train(configure(output_dir=tmp_path / "c", seed=1))) != once


def test_evaluation_changes_nothing_in_training(configure: Configure, tmp_path: Path) -> None:
    with_eval = train(configure(output_dir=tmp_path / "a"))
    without = train(configure(output_dir=tmp_path / "b", eval_every=0))
    assert read(with_eval / "rollouts.jsonl") == read(without / "rollouts.jsonl")


def test_micro_batches_change_nothing_but_rounding(configure: Configure, tmp_path: Path) -> None:
    whole = read(train(configure(output_dir=tmp_path / "a")) / "metrics.jsonl")
    parts = read(train(configure(output_dir=tmp_path / "b", micro_batch_tokens=40)) / "metrics.jsonl")
    for one, other in zip(whole[1:], parts[1:], strict=True):
        for key in ("loss", "grad_norm", "kl", "reward"):
            assert other[key] == pytest.approx(one[key], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("every", "tables"), [(0, 0), (1, 3), (2, 2)])
def test_tables_of_completions_come_as_often_as_asked_for(
    every: int, tables: int, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    train(configure(eval_every=0, kl_coef=0, max_completion_length=2, show_completions_every=every))
    assert capsys.readouterr().out.count("┏") == tables


def test_a_folder_that_holds_a_run_is_refused_and_overwritten_on_request(configure: Configure) -> None:
    folder = train(configure(steps=1))
    before = (folder / "metrics.jsonl").read_text()
    with pytest.raises(ConfigError, match="holds a run already"):
        train(configure(steps=1))
    assert (folder / "metrics.jsonl").read_text() == before
    train(configure(steps=2, overwrite=True))
    assert len(read(folder / "metrics.jsonl")) == 3


def test_a_step_whose_completions_are_all_null_takes_no_update_and_is_counted(
    configure: Configure, server: Server, tiny: str
) -> None:
    def unscore(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            group["totals"] = [None] * len(group["totals"])
            for name in group["scores"]:
                group["scores"][name] = [None] * len(group["totals"])
                group["statuses"][name] = ["timeout"] * len(group["totals"])

    with proxy(server.url, edited(unscore)) as url:
        folder = train(configure(reward_url=url, eval_every=0, max_null_fraction=1))
    for row in read(folder / "metrics.jsonl")[1:]:
        assert row["reward"] is None
        assert row["loss"] is None
        assert row["update/applied"] == 0
        assert row["reward/null/timeout"] == 3 * 4 * 5
    trained = AutoModelForCausalLM.from_pretrained(folder / "final").state_dict()
    for name, weight in AutoModelForCausalLM.from_pretrained(tiny).state_dict().items():
        assert torch.equal(weight, trained[name])


def test_one_null_among_the_completions_is_masked_and_the_rest_learnt_from(
    configure: Configure, server: Server
) -> None:
    def unscore_first(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            group["totals"][0] = group["scores"]["r1.int@1"][0] = None
            group["statuses"]["r1.int@1"][0] = "timeout"

    with proxy(server.url, edited(unscore_first)) as url:
        folder = train(configure(reward_url=url, eval_every=0))
    check_metrics_against_rollouts(folder)
    assert all(row["reward/null/timeout"] == 3 for row in read(folder / "metrics.jsonl")[1:])
    assert all((one["advantage"] is None) == (one["total"] is None) for one in read(folder / "rollouts.jsonl"))


def test_a_service_that_dies_mid_run_stops_it_with_the_path_of_what_was_saved(
    configure: Configure, start_server: Callable[..., Server]
) -> None:
    server = start_server(workers=1)
    calls = itertools.count()

    def die_at_the_fifth(path: str, answer: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], bytes]:
        if path == "/v1/score" and next(calls) == 5:
            server.process.kill()
        if server.process.poll() is not None:
            return 503, {}, b"{}"
        return answer

    with proxy(server.url, die_at_the_fifth) as url, pytest.raises(RewardServiceError) as config_error:
        train(configure(reward_url=url, reward_retry_seconds=1, eval_every=0, steps=50))
    folder = configure().output_dir
    saved = [note for note in config_error.value.__notes__ if "step-" in note]
    steps = [row["step"] for row in read(folder / "metrics.jsonl")]
    checkpoint = folder / "checkpoints" / f"step-{steps[-1]:06d}"
    assert saved
    assert str(checkpoint) in saved[0]
    assert (checkpoint / "model.safetensors").exists()
    assert 0 < len(steps) < 50


def test_a_think_tag_that_the_template_opens_reaches_rewards_rollouts_and_evaluation(
    configure: Configure, tmp_path: Path
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|><think>\n{% endif")
    tiny_model().save_pretrained(tmp_path / "opens")
    tokenizer.save_pretrained(tmp_path / "opens")
    for kept in (True, False):
        config = configure(
            model=str(tmp_path / "opens"), steps=1, suite=None, reward=["r1.count_xml@2"], template_opening=kept,
            output_dir=tmp_path / str(kept),
        )  # fmt: skip
        folder = train(config)
        written = read(folder / "rollouts.jsonl") + read(folder / "evals.jsonl")
        assert all(one["text"].startswith("<think>\n") is kept for one in written)
        assert [row["rewards/r1.count_xml@2/mean"] for row in read(folder / "metrics.jsonl")[1:]] == [0.125 * kept]


@pytest.mark.parametrize("more", [{}, {"backend": "mlx"}])
def test_a_model_whose_weights_break_ends_with_its_own_message(more: dict[str, str], configure: Configure) -> None:
    config = configure(
        steps=9, learning_rate=1e12, eval_every=0, kl_coef=0.0, reward=["language.script@1"], suite=None, **more
    )
    with pytest.raises(
        BrokenModelError, match=r"the model's logits are not finite \(prompt \d+, token \d+ of a"
    ) as error:
        train(config)
    assert error.value.__notes__ == ["its weights were not saved; there is no checkpoint to go on from"]
    assert error.value.exit_code == 4
    assert not list((config.output_dir / "checkpoints").glob("step-*"))


def test_a_run_learns_what_pays(configure: Configure) -> None:
    """A tiny random model learns to write digits: the reward rises clearly in 25 steps."""
    config = configure(
        suite=None, reward=("r1.int@1",), steps=25, eval_every=0, kl_coef=0, learning_rate=0.01, group_size=16,
        max_completion_length=2, show_completions_every=0,
    )  # fmt: skip
    rewards = [row["reward"] for row in read(train(config) / "metrics.jsonl")[1:]]
    assert fmean(rewards[-5:]) > fmean(rewards[:5]) + 0.1


# ---- the command line --------------------------------------------------------------------------------------


def command(*options: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grpo_client", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_help_teaches() -> None:
    assert "train" in command("--help").stdout
    text = " ".join(command("train", "--help").stdout.split())
    for flag in (
        "--reward-url",
        "--suite",
        "--reward ",
        "--eval-reward",
        "--ignore-eos",
        "--kl-coef",
        "--num-generations",
    ):
        assert flag in text


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--reward", "r1.acuracy@1"], 2, "r1.accuracy@1"),
        (["--reward", "r1.accuracy"], 2, "named with its version"),
        (["--suite", "r1@7"], 2, "r1@1"),
        ([], 2, "--suite NAME@VERSION or --reward"),
        (["--suite", "r1@1", "--reward", "r1.int@1"], 2, "--suite NAME@VERSION or --reward"),
        (["--suite", "r1@1", "--group-size", "1"], 2, "greater than or equal to 2"),
        (["--suite", "r1@1", "--temperature", "0"], 2, "greater than 0"),
        (["--suite", "r1@1", "--grup-size", "4"], 2, "--group-size"),
        (["--suite", "r1@1", "--data", "nowhere.jsonl"], 2, "cannot read nowhere.jsonl"),
        (["--suite", "r1@1", "--model", "./nowhere"], 2, "there is no such folder"),
        (["--suite", "r1@1", "--model", "./empty"], 2, "holds no weights"),
        (["--suite", "r1@1", "--model", "nowhere.gguf"], 2, "no such file"),
        (["--suite", "r1@1", "--max-prompt-length", "2"], 2, "the shortest has"),
        (["--suite", "r1@1", "--eval-reward", "r1.count_xml@1=2"], 2, "r1.count_xml@1"),
        (["--suite", "r1@1", "--reward-url", "http://127.0.0.1:1"], 3, "http://127.0.0.1:1"),
    ],
)
def test_bad_input_is_said_before_training_with_an_exit_code(
    options: list[str], code: int, said: str, server: Server, tiny: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "empty").mkdir()
    base = ["--reward-url", server.url, "--model", tiny, "--data", "addition", "--output-dir", str(tmp_path / "run")]
    found, out, errors = run("train", *base, *options)
    assert found == code, out + errors
    assert said in " ".join((out + errors).replace("│", " ").split())
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_the_process_ends_with_that_code_and_without_a_traceback(server: Server, tmp_path: Path) -> None:
    result = command("train", "--reward-url", server.url, "--suite", "r1@7", "--output-dir", str(tmp_path / "run"))
    assert result.returncode == 2
    assert "r1@1" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_an_interrupted_run_saves_and_exits_130(signal_name: str, server: Server, tiny: str, tmp_path: Path) -> None:
    import signal

    folder = tmp_path / "run"
    options = ["--reward-url", server.url, "--model", tiny, "--suite", "r1@1", "--steps", "100000", "--eval-every", "0"]
    options += ["--max-completion-length", "8", "--output-dir", str(folder), "--show-completions-every", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo_client", "train", *options], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (
        (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").read_text().count("\n") > 3
    ):
        time.sleep(0.1)
    process.send_signal(getattr(signal, signal_name))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    (saved,) = folder.glob("checkpoints/step-*")
    assert str(saved) in errors
    AutoModelForCausalLM.from_pretrained(saved)


def test_the_client_leaves_no_connection_open(configure: Configure, server: Server) -> None:
    train(configure(steps=1, eval_every=0))
    assert httpx.get(server.url + "/v1/health/live").status_code == 200
