"""What a dry run estimates of memory beside what runs took: `make bench-memory`.

SmolLM2-135M in float32 on the CPU, each shape in a process of its own, three steps without a service: completions of
full length, advantages drawn, so that every row is learnt from. The peak is the highest resident size of the process.

Run: python -m tests.benchmarks.memory [SHAPE …]
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

STEPS = 3


@dataclass(frozen=True)
class Shape:
    """What a step is made of, with prompts of one length, and how many prompts are evaluated after the last."""

    prompts: int
    group: int
    tokens: int
    prompt_tokens: int = 100
    evaluated: int = 0
    settings: dict[str, object] = field(default_factory=dict)


SHAPES = {
    "all weights, 4 x 8 x 64": Shape(4, 8, 64),
    "LoRA 16, 6 x 8 x 48, evaluation of 64": Shape(6, 8, 48, evaluated=64, settings={"lora_rank": 16}),
    "all weights with KL, 4 x 8 x 64": Shape(4, 8, 64, settings={"kl_coef": 0.04}),
    "1 prompt of 512 x 16 x 64": Shape(1, 16, 64, prompt_tokens=512),
}


def measured(shape: Shape) -> tuple[float, float]:
    """Estimate and peak, in bytes, of steps in this process."""
    from grpo_client.backends import load_backend
    from grpo_client.config import TrainConfig
    from grpo_client.learning.batch import Batch, CompletionRow
    from grpo_client.learning.loss_inputs import Denominators
    from grpo_client.learning.losses import make_loss
    from grpo_client.memory import estimate
    from grpo_client.types import Prompt, Sampling

    settings: dict[str, Any] = {"model": "smollm2", "suite": "r1@1", "backend": "torch", "device": "cpu"}
    settings |= {"prompts_per_step": shape.prompts, "group_size": shape.group, "max_completion_length": shape.tokens}
    settings |= {"eval_every": STEPS if shape.evaluated else 0, "eval_prompts": max(shape.evaluated, 1)}
    config = TrainConfig.model_validate(settings | shape.settings)
    drawn = random.Random(0)

    def prompts(count: int) -> list[Prompt]:
        ids = [tuple(drawn.randrange(1_000, 40_000) for _ in range(shape.prompt_tokens)) for _ in range(count)]
        return [Prompt(place, [], one, "7") for place, one in enumerate(ids)]

    backend, loss_fn = load_backend(config), make_loss(config.loss_config())
    expected = estimate(backend.sizes(), config, prompt_tokens=shape.prompt_tokens).peak
    sampling: dict[str, Any] = {"max_tokens": shape.tokens, "ignore_eos": True, "rows": config.sampling_rows}
    for step in range(STEPS):
        asked = prompts(shape.prompts)
        groups = backend.sample(asked, Sampling(shape.group, temperature=1.0, step=step, **sampling))
        rows = [
            CompletionRow(place, g, one.token_ids, one.sampling_logprobs, one.kept, drawn.choice([-1.0, 1.0]))
            for place, group in groups
            for g, one in enumerate(group)
        ]
        lengths = [len(row.token_ids) for row in rows]
        counts = Denominators.from_lengths(lengths, max_completion_length=shape.tokens)
        batch = Batch([one.token_ids for one in asked], rows, counts)
        batch = backend.with_logprobs(batch, old=False, ref=config.kl_coef > 0)
        backend.update(batch, loss_fn, learning_rate=1e-6)
    if shape.evaluated:
        list(backend.sample(prompts(shape.evaluated), Sampling(1, temperature=0.0, **sampling)))
    return expected, 1e9 * backend.peak_memory_gb()


def main(arguments: list[str]) -> None:
    """Measure a shape that is named, or start a process for each."""
    if arguments[:1] == ["--here"]:
        print(json.dumps(measured(SHAPES[arguments[1]])))
        return
    print(f"{'':40} estimate     peak   ratio")
    for name in arguments or SHAPES:
        command = [sys.executable, "-m", "tests.benchmarks.memory", "--here", name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        expected, peak = json.loads(output.splitlines()[-1])
        print(f"{name:40} {expected / 1e9:5.2f} GB {peak / 1e9:5.2f} GB {expected / peak:7.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
