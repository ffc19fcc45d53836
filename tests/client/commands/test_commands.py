"""Commands beside `train`, against a real service and tiny models: eval, rewards, doctor, generate, validate-data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_client.train import train
from tests.client.failing import edited, proxy
from tests.client.runs import Configure, Run, read
from tests.client.tiny import save_adapter, tiny_tokenizer
from tests.conftest import Server, free_port

# ---- eval --------------------------------------------------------------------------------------------------


def test_eval_finds_what_evaluation_in_training_found(configure: Configure, run: Run, tmp_path: Path) -> None:
    config = configure(eval_samples=2, eval_temperature=1.0, eval_prompts=9)
    folder = train(config)
    code, out, _ = run(
        *["eval", "--config", folder / "config.yaml", "--model", folder / "final", "--output", "found.jsonl"]
    )
    assert code == 0
    last = [one for one in read(folder / "evals.jsonl") if one.pop("step") == 3]
    found = read(tmp_path / "found.jsonl")
    assert [one.pop("scores") for one in found] == [{"r1.int@1": one["value"]} for one in last]
    assert [one.pop("total") for one in found] == [one["value"] for one in last]
    assert found == [{key: one[key] for key in one.keys() - {"scores", "total"}} for one in last]
    row = read(folder / "metrics.jsonl")[-1]
    for label, key in (("accuracy", "eval/accuracy"), ("pass@1", "eval/pass@1"), ("pass@2", "eval/pass@2")):
        assert re.search(rf"{label} .*{row[key]:.1%}", out), (label, out)
    assert f"{row['eval/mean_length']:.1f} tokens" in out
    assert "9 × 2" in out
    assert "unscored" in out


def test_eval_with_an_adapter_says_what_the_adapted_model_says(
    tiny: str, data: Path, server: Server, run: Run, tmp_path: Path
) -> None:
    adapter = save_adapter(tiny, tmp_path / "adapter")
    base = ["eval", "--model", tiny, "--data", data, "--reward", "r1.int@1", "--reward-url", server.url]
    base += ["--max-completion-length", 6, "--limit", 4]
    assert run(*base, "--output", "bare.jsonl")[0] == 0
    assert run(*base, "--adapter", adapter, "--output", "adapted.jsonl")[0] == 0
    bare, adapted = read(tmp_path / "bare.jsonl"), read(tmp_path / "adapted.jsonl")
    assert len(bare) == len(adapted) == 4
    assert [one["text"] for one in bare] != [one["text"] for one in adapted]
    assert run("merge", "--model", tiny, "--adapter", adapter, "--output", "merged")[0] == 0
    merged = [tmp_path / "merged" if one == tiny else one for one in base]
    assert run(*merged, "--output", "merged.jsonl")[0] == 0
    assert read(tmp_path / "merged.jsonl") == adapted


def test_eval_counts_nulls_by_status(tiny: str, data: Path, server: Server, run: Run) -> None:
    def unscore(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            group["totals"] = group["scores"]["r1.int@1"] = [None] * len(group["totals"])
            group["statuses"]["r1.int@1"] = ["timeout"] * len(group["totals"])

    with proxy(server.url, edited(unscore)) as url:
        code, out, _ = run(
            *["eval", "--model", tiny, "--data", data, "--reward", "r1.int@1", "--reward-url", url, "--limit", 2],
            *["--max-completion-length", 4],
        )
    assert code == 0
    assert "timeout 2" in out
    assert re.search(r"accuracy .* - ", out)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--data", "DATA", "--output", "DATA"], 2, "exists"),
        (["--data", "nowhere.jsonl"], 2, "nowhere.jsonl"),
        (["--data", "DATA", "--reward", "r1.imt@1"], 2, "r1.int@1"),
        (["--data", "DATA", "--samples", "4"], 2, "temperature"),
        (["--data", "DATA", "--reward-url", "http://127.0.0.1:1"], 3, "http://127.0.0.1:1"),
    ],
)
def test_eval_refuses_what_cannot_be(
    options: list[str], code: int, said: str, tiny: str, data: Path, server: Server, run: Run, tmp_path: Path
) -> None:
    options = [str(data) if one == "DATA" else one for one in options]
    base = ["eval", "--model", tiny, "--reward-url", server.url, "--limit", "1", "--max-completion-length", "2"]
    base += [] if "--reward" in options else ["--reward", "r1.int@1"]
    got, _, errors = run(*base, *options)
    assert got == code, errors
    assert said in errors
    assert [one.name for one in tmp_path.glob("*.jsonl")] == [data.name]


# ---- rewards -----------------------------------------------------------------------------------------------


def test_rewards_lists_what_is_served(server: Server, run: Run) -> None:
    code, out, _ = run("rewards", "--reward-url", server.url)
    assert code == 0
    assert re.search(r"^  r1\.accuracy@1 +released +sha256:[0-9a-f]{12} +gold +2\.0 when", out, re.MULTILINE)
    assert re.search(r"^  kimi\.length@1 .*uses math\.equal@1", out, re.MULTILINE)
    assert re.search(r"^  r1@1 +released +r1\.accuracy@1 × 0\.2, ", out, re.MULTILINE)
    assert "aliases:" not in out


def test_rewards_shows_one_in_full_and_a_suite(server: Server, run: Run) -> None:
    code, out, _ = run("rewards", "--reward-url", server.url, "math.numeric@1", "r1@1")
    assert code == 0
    assert re.search(r"^parameters  rel_tol = 0\.0001  number\n            abs_tol = 0\.0  number$", out, re.MULTILINE)
    assert re.search(r"^range       0 … 1\nneeds       gold\n", out, re.MULTILINE)
    assert re.search(r"^digest +sha256:[0-9a-f]{64}$", out, re.MULTILINE)
    assert re.search(r"^ +r1\.strict_format@1 × 0\.2$", out, re.MULTILINE)
    code, _, errors = run("rewards", "--reward-url", server.url, "r1.acuracy@1")
    assert code == 2
    assert "r1.accuracy@1" in errors


def test_aliases_are_listed_where_the_service_keeps_them(
    start_server: Callable[..., Server], run: Run, tmp_path: Path
) -> None:
    server = start_server(store=tmp_path / "aliases.db", admin_token="secret")
    put = server.http.put(
        "/v1/aliases/r1/stable",
        json={"author": "ada", "target": "r1@1"},
        headers={"Authorization": "Bearer secret", "If-None-Match": "*"},
    )
    assert put.status_code == 201
    _, out, _ = run("rewards", "--reward-url", server.url)
    assert re.search(r"r1@stable +r1@1 +since 2", out.partition("aliases:")[2])


def test_texts_are_scored_by_hand_with_status_and_details(server: Server, run: Run) -> None:
    code, out, _ = run(
        *["rewards", "--reward-url", server.url, "--score", "--reward", "math.equal@2", "--reward", "r1.int@1=2"],
        *["--gold", "1/2", r"so \boxed{0.5}", "<answer>7</answer>\x1b[31m", "nothing"],
    )
    assert code == 0
    blocks = re.split(r"^(?=\S)", out, flags=re.MULTILINE)[1:]
    assert len(blocks) == 3
    assert re.search(r"math\.equal@2 +1 +scored +.*answer '0\.5'", blocks[0])
    assert re.search(r"r1\.int@1 +0\.5 +scored", blocks[1])
    assert re.search(r"total +1$", blocks[1], re.MULTILINE)
    assert "\x1b" not in out
    assert r"\x1b[31m" in blocks[1]


def test_scoring_by_hand_needs_texts_and_rewards(server: Server, run: Run) -> None:
    for options in (["text"], ["--reward", "r1.int@1"], ["--reward", "r1.int@1", "--suite", "r1@1", "text"]):
        code, _, errors = run("rewards", "--reward-url", server.url, "--score", *options)
        assert code == 2
        assert "--reward ID" in errors


def test_rewards_of_a_service_that_is_away_ends_with_3(run: Run) -> None:
    code, _, errors = run("rewards", "--reward-url", f"http://127.0.0.1:{free_port()}")
    assert code == 3
    assert "reward-service serve" in errors


# ---- doctor ------------------------------------------------------------------------------------------------


def test_doctor_finds_a_working_setup_in_order(tiny: str, server: Server, run: Run) -> None:
    code, out, _ = run("doctor", "--reward-url", server.url, "--model", tiny)
    lines = {line.split()[1]: line for line in out.splitlines()}
    assert code == 0, out
    for what in ("python", "torch", "transformers", "peft", "cpu", "memory", "disk", "service", "model"):
        assert lines[what].split()[0] in ("ok", "warn"), lines[what]
    assert torch.__version__.partition("+")[0] in lines["torch"]
    assert re.search(r"[1-9]\d* workers", lines["service"])
    assert "260 tokens" in lines["model"]


def test_doctor_says_what_fails_and_what_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    url = f"http://127.0.0.1:{free_port()}"
    code, out, _ = run("doctor", "--reward-url", url, "--model", "./nowhere", "--output-dir", "file/runs")
    lines = {line.split()[1]: line for line in out.splitlines()}
    assert code == 2
    assert "reward-service serve" in lines["service"]
    assert "there is no such folder" in lines["model"]
    assert "--output-dir" in lines["disk"]
    assert all(lines[what].startswith("fail") for what in ("service", "model", "disk"))


# ---- generate ----------------------------------------------------------------------------------------------


def test_generate_prints_completions_with_counts_and_reasons(tiny: str, run: Run) -> None:
    code, out, _ = run(
        *["generate", "--model", tiny, "--prompt", "2 + 2?", "--system-prompt", "Add.", "-n", 3],
        *["--max-completion-length", 5],
    )
    assert code == 0
    assert "system: Add.\nuser: 2 + 2?" in out
    found = re.findall(r"^--- completion (\d): (\d+) tokens?, (stop|length)$", out, re.MULTILINE)
    assert [number for number, _, _ in found] == ["1", "2", "3"]
    assert all((int(count) == 5) or reason == "stop" for _, count, reason in found)
    assert all(char.isprintable() or char == "\n" for char in out)
    prompt_tokens = len(tiny_tokenizer()("<|system|>Add.<|end|><|user|>2 + 2?<|end|><|assistant|>")["input_ids"])
    assert f"prompt 1, {prompt_tokens} tokens" in out


def test_generate_greedily_for_rows_says_what_eval_says(
    tiny: str, data: Path, server: Server, run: Run, tmp_path: Path
) -> None:
    _, out, _ = run(
        *["generate", "--model", tiny, "--data", data, "--limit", 2, "--temperature", 0, "--max-completion-length", 4]
    )
    run(
        *["eval", "--model", tiny, "--data", data, "--limit", 2, "--reward", "r1.int@1", "--reward-url", server.url],
        *["--max-completion-length", 4, "--output", "x.jsonl"],
    )
    counts = [int(count) for count in re.findall(r"^--- completion 1: (\d+) token", out, re.MULTILINE)]
    assert sorted(counts) == sorted(len(one["token_ids"]) for one in read(tmp_path / "x.jsonl"))


def test_generate_wants_a_prompt_or_data(tiny: str, data: Path, run: Run) -> None:
    assert run("generate", "--model", tiny)[0] == 2
    assert run("generate", "--model", tiny, "--prompt", "x", "--data", data)[0] == 2


# ---- validate-data -----------------------------------------------------------------------------------------


def test_validate_data_says_whether_a_run_would_start(tiny: str, data: Path, run: Run) -> None:
    code, out, _ = run("validate-data", "--model", tiny, "--data", data)
    assert code == 0
    assert "a run would start with this data" in out
    data.write_text(data.read_text() + json.dumps({"question": "no gold"}) + "\n")
    code, out, _ = run("validate-data", "--model", tiny, "--data", data)
    assert code == 2
    assert "row 10" in out
