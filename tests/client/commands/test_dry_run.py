"""`grpo-client train --dry-run`: goes through all of a run, says what it found, and leaves nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.client.runs import Run
from tests.client.tiny import tiny_model
from tests.conftest import Server


@pytest.mark.parametrize(("backend", "library"), [("torch", "torch"), ("mlx", "mlx_lm")])
def test_a_dry_run_goes_through_all_of_it_and_leaves_nothing(
    backend: str, library: str, tiny: str, data: Path, server: Server, run: Run, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    before = sorted(tmp_path.rglob("*"))
    code, out, errors = run(
        *["train", "--dry-run", "--model", tiny, "--data", data, "--reward-url", server.url, "--suite", "r1@1"],
        *["--steps", 7, "--prompts-per-step", 3, "--group-size", 4, "--output-dir", "runs/x", "--kl-coef", 0.1],
        *["--backend", backend],
    )
    assert code == 0, errors
    assert sorted(tmp_path.rglob("*")) == before
    assert "output_dir: runs/x" in out
    assert re.search(r"r1\.accuracy@1 +2 +0 \(no_answer\) +0\n|r1\.accuracy@1 +2 +0 +0\n", out), out
    assert "warning" not in out
    weights = sum(one.numel() for one in tiny_model().parameters())
    assert f"{weights:,} weights, {weights:,} of them trained" in out
    assert re.search(r"reference +0\.\d+ GB", out)
    assert re.search(r"peak +\d+\.\d+ GB", out)
    assert len(re.findall(r"^  total .* tokens ", out, re.MULTILINE)) == 4
    assert re.search(r"update applied: loss \S+, gradient norm \d", out)
    assert "7 steps of 3 prompts × 4 completions" in out
    assert "84 completions of at most 256 tokens" in out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--prompts-per-step", "20"], 2, "--prompts-per-step 20"),
        (["--suite", "r1@7"], 2, "r1@1"),
        (["--reward-url", "http://127.0.0.1:1"], 3, "http://127.0.0.1:1"),
        (["--output-dir", "there"], 2, "holds a run already"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(
    options: list[str], code: int, said: str, tiny: str, data: Path, server: Server, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "metrics.jsonl").write_text("{}\n")
    base = ["train", "--dry-run", "--model", tiny, "--data", data, "--reward-url", server.url, "--suite", "r1@1"]
    got, _, errors = run(*base, *options)
    assert got == code
    assert said in errors


def test_a_dry_run_warns_of_rewards_that_do_not_tell_right_from_wrong(
    tiny: str, data: Path, server: Server, run: Run
) -> None:
    code, out, _ = run(
        *["train", "--dry-run", "--model", tiny, "--data", data, "--reward-url", server.url, "--reward", "r1.int@1"]
    )
    assert code == 0
    assert "warning: the right completion is paid no more than the wrong one" in out
