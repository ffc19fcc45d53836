"""TRL's GRPOTrainer and ours, the same work side by side: `make bench-trainer`.

SmolLM2-135M in float32 on 2 threads, GSM8K prompts, completions of one length (TRL: min_new_tokens, ours:
--ignore-eos), rewards that let every group live. Each trainer runs in a process of its own, in turn; a run of few steps
is subtracted from one of more, so that loading is in neither time. Peak memory is the highest resident size of the
process while it trains. TRL computes its reward in its own process, ours asks a real service.

Run: python -m tests.benchmarks.trainer [--model FOLDER] [--more STEPS]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.conftest import ROOT, SHARED, Server

FEW = 1
SYSTEM = "Reply with <think> reasoning </think><answer> number </answer>."
TEMPERATURE = 0.9


@dataclass(frozen=True)
class Case:
    """What a step is made of. Prompts are padded with worked text to `prompt_tokens` where that is given."""

    name: str
    prompts: int
    group: int
    tokens: int
    kl_coef: float
    prompt_tokens: int | None = None


CASES = [
    Case("2 prompts x 8 x 64, no KL", prompts=2, group=8, tokens=64, kl_coef=0.0),
    Case("2 prompts x 8 x 64, KL", prompts=2, group=8, tokens=64, kl_coef=0.04),
    Case("1 prompt of 512 x 16 x 64, no KL", prompts=1, group=16, tokens=64, kl_coef=0.0, prompt_tokens=512),
]


# ---- the two trainers, each in a process of its own ---------------------------------------------------------


def run_trl(case: Case, *, model: str, data: Path, steps: int, folder: Path, url: str) -> dict[str, float]:
    """TRL as it comes, reward in the process: the fewer characters the better, so that no group is flat."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = [json.loads(line) for line in data.read_text().splitlines()]
    prompts = [
        {"prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": row["question"]}]}
        for row in rows
    ]

    def shortness(completions: Any, **_: Any) -> list[float | None]:
        return [-float(len(one[0]["content"])) for one in completions]

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=shortness,
        args=GRPOConfig(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=case.prompts * case.group,
            num_generations=case.group, max_completion_length=case.tokens, beta=case.kl_coef, temperature=TEMPERATURE,
            learning_rate=1e-6, top_k=0, top_p=1.0, generation_kwargs={"min_new_tokens": case.tokens}, use_cpu=True,
            bf16=False, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True, loss_type="dapo",
            gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"},
        ),
        train_dataset=Dataset.from_list(prompts),
    )  # fmt: skip
    with rising_memory() as memory:
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
    logs = [entry for entry in trainer.state.log_history if "completions/mean_length" in entry]
    assert len(logs) == steps
    return {
        "seconds": seconds,
        "memory_gb": memory(),
        "length": sum(entry["completions/mean_length"] for entry in logs) / steps,
        "dead": sum(entry["frac_reward_zero_std"] for entry in logs) / steps,
    }


def run_ours(case: Case, *, model: str, data: Path, steps: int, folder: Path, url: str) -> dict[str, float]:
    """Ours, rewards over HTTP: what count_xml pays for text without tags, again the fewer characters the better."""
    from rich.console import Console

    from grpo_client.config import TrainConfig
    from grpo_client.train import train

    config = TrainConfig(
        model=model, data=str(data), system_prompt=SYSTEM, reward_url=url, reward=("r1.count_xml@1",),
        steps=steps, prompts_per_step=case.prompts, group_size=case.group, max_completion_length=case.tokens,
        ignore_eos=True, temperature=TEMPERATURE, kl_coef=case.kl_coef, learning_rate=1e-6, eval_every=0,
        show_completions_every=0, output_dir=folder,
    )  # fmt: skip
    with rising_memory() as memory:
        train(config, Console(file=sys.stderr))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    assert len(rows) == steps
    total = {name: sum(row[name] for row in rows) for name in ("time/step", "time/rollout", "time/update")}
    return {
        "seconds": total["time/step"],
        "rollout": total["time/rollout"],
        "update": total["time/update"],
        "memory_gb": memory(),
        "length": sum(row["completions/mean_length"] for row in rows) / steps,
        "dead": sum(row["frac_reward_zero_std"] for row in rows) / steps,
    }


TRAINERS = {"trl": run_trl, "ours": run_ours}


@contextmanager
def rising_memory() -> Iterator[Any]:
    """How far the resident size rose, in GB, sampled every 20 ms."""
    status = Path("/proc/self/statm")
    page = resource.getpagesize()
    highest, over = [0], threading.Event()

    def now() -> int:
        return int(status.read_text().split()[1]) * page

    def watch() -> None:
        while not over.wait(0.02):
            highest[0] = max(highest[0], now())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: highest[0] / 1e9
    finally:
        over.set()
        thread.join()


# ---- the comparison -----------------------------------------------------------------------------------------


def measured(trainer: str, case: Case, *, model: str, data: Path, steps: int, url: str) -> dict[str, float]:
    """A run in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        request = json.dumps(
            {"trainer": trainer, "case": CASES.index(case), "model": model, "data": str(data), "steps": steps}
            | {"folder": folder, "url": url}
        )
        command = [sys.executable, "-m", "tests.benchmarks.trainer", "--one", request]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{trainer} failed:\n{done.stderr[-3000:]}")
        answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return answer


def one(request: dict[str, Any]) -> None:
    """The child process: one run, its numbers as the last line."""
    import torch

    torch.set_num_threads(2)
    run = TRAINERS[request["trainer"]]
    result = run(
        CASES[request["case"]],
        model=request["model"],
        data=Path(request["data"]),
        steps=request["steps"],
        folder=Path(request["folder"]) / "run",
        url=request["url"],
    )
    print("\n" + json.dumps(result))


def write_data(case: Case, file: Path, model: str) -> None:
    """GSM8K questions; where a length is asked for, other questions before them up to about that many tokens."""
    lines = (SHARED / "data/gsm8k/train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    if case.prompt_tokens is not None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
        around = case.prompt_tokens - 40  # the template and the system message
        for i, row in enumerate(rows[:16]):
            ids = tokenizer.encode(" ".join(other["question"] for other in rows[i : i + 40]))
            row["question"] = tokenizer.decode(ids[:around])
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:16]))


def compare(case: Case, *, model: str, more: int, rounds: int, url: str) -> None:
    """Both trainers in turn; medians of (FEW + more steps minus FEW) over the rounds."""
    per_step: dict[str, list[dict[str, float]]] = {name: [] for name in TRAINERS}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.jsonl"
        write_data(case, data, model)
        for _ in range(rounds):
            for name in TRAINERS:
                few = measured(name, case, model=model, data=data, steps=FEW, url=url)
                many = measured(name, case, model=model, data=data, steps=FEW + more, url=url)
                assert many["length"] == case.tokens, f"{name}: completions of {many['length']} tokens"
                assert many["dead"] == 0, f"{name}: {many['dead']} of the groups are dead"
                timed = {key: (many[key] - few[key]) / more for key in many if key in ("seconds", "rollout", "update")}
                per_step[name].append(timed | {"memory_gb": many["memory_gb"]})
    middle = {
        name: {key: median(round_[key] for round_ in rounds_) for key in rounds_[0]}
        for name, rounds_ in per_step.items()
    }
    trl, ours = middle["trl"], middle["ours"]
    print(f"\n{case.name}")
    print(f"  TRL    {trl['seconds']:6.2f} s a step   peak {trl['memory_gb']:.2f} GB")
    print(
        f"  ours   {ours['seconds']:6.2f} s a step   peak {ours['memory_gb']:.2f} GB"
        f"   (rollout {ours['rollout']:.2f}, update {ours['update']:.2f})"
    )
    print(f"  {trl['seconds'] / ours['seconds']:.2f} x TRL's steps a second", end="")
    print(f", {ours['memory_gb'] / trl['memory_gb']:.2f} x its peak memory")
    floors(case, rollout=ours["rollout"], update=ours["update"], model=model)


def floors(case: Case, *, rollout: float, update: float, model: str) -> None:
    """What the hardware would take: matrix products at the measured peak, and for sampling also weights once a step."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from grpo_client.backends.torch.matmul import times_transposed

    torch.set_num_threads(2)
    config = AutoConfig.from_pretrained(model)
    with torch.device("meta"):
        weights = sum(one.numel() for one in AutoModelForCausalLM.from_config(config).parameters())
    head = config.vocab_size * config.hidden_size
    x, w, big = torch.randn(2048, 2048), torch.randn(2048, 2048), torch.randn(1 << 26)
    with torch.no_grad():
        peak = 2 * 2048**3 / fastest(lambda: times_transposed(x, w))
        bandwidth = big.numel() * 4 / fastest(big.sum)
    completions = case.prompts * case.group * case.tokens
    prompts = case.prompts * (case.prompt_tokens or 120)
    body = 2 * (weights - head) * (completions + prompts)  # a forward pass
    passes = 3 + (1 if case.kl_coef else 0)
    learning = passes * (body + 2 * head * completions)
    decoding = body + 2 * head * completions
    floor = max(decoding / peak, case.tokens * weights * 4 / bandwidth)
    speed, top = learning / update / 1e9, peak / 1e9
    print(f"  update at {speed:.0f} GFLOP/s, {speed / top:.0%} of the measured peak ({top:.0f})", end="")
    print(f"; sampling at {floor / rollout:.0%} of its floor's speed ({floor:.2f} s)")


def fastest(function: Any) -> float:
    """Seconds of the quickest of ten calls."""
    seconds = []
    for _ in range(10):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> None:
    """Run all cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--model", help="a folder with SmolLM2 in Hugging Face format; default: made from the package")
    parser.add_argument("--more", type=int, default=2, help="steps that are measured")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--case", type=int, action="append", help=f"0 to {len(CASES) - 1}; repeat for several")
    options = parser.parse_args()
    if options.one:
        one(json.loads(options.one))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or saved_model(Path(folder) / "model")
        server = Server(Path(folder) / "service.log", workers=1)
        try:
            server.wait_ready()
            for i in options.case or range(len(CASES)):
                compare(CASES[i], model=model, more=options.more, rounds=options.rounds, url=server.url)
        finally:
            server.stop()


def saved_model(folder: Path) -> str:
    """SmolLM2 from its package, de-quantised, where both trainers can load it."""
    from grpo_client.backends.torch.models import load_model

    loaded = load_model("smollm2", device="cpu")
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    main()
