"""What a sampled token costs on MLX as completions grow, beside running the prefix again: `make bench-mlx`.

A group of 8 completions of one prompt, none of which stops early, on a random Llama of 4 layers. The script behind
this project (an MLX trainer of 2025) sampled the completions one after another and ran the whole prefix through the
model for each token. It is measured on one completion, as the next one costs the same again, at 32 of its tokens.

Run: python -m tests.benchmarks.mlx_sampling
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import mlx.core as mx

from grpo_client.backends.mlx.models import load_model, prepare_device
from grpo_client.backends.mlx.sampling import sample_groups
from grpo_client.types import Prompt, Sampling
from tests.client.tiny import tiny_config, tiny_model, tiny_tokenizer

LENGTHS = (64, 256, 1024)
GROUP = 8
MEASURED = 32  # tokens of the slow way
PROMPT = Prompt(0, [], tuple(range(32)), "7")


def ours(model: Any, tokens: int) -> float:
    """Seconds a token, all rows of the group counted."""
    sampling = Sampling(group_size=GROUP, max_tokens=tokens, temperature=1.0, ignore_eos=True)
    started = time.perf_counter()
    ((_, rollouts),) = sample_groups(model, [PROMPT], sampling, stop_ids=frozenset())
    assert all(len(one.token_ids) == tokens for one in rollouts)
    return (time.perf_counter() - started) / (GROUP * tokens)


def prefix_again(model: Any, tokens: int) -> float:
    """The same for a loop that runs prompt and completion again for each token: the mean over evenly spaced tokens."""
    places = range(0, tokens, max(1, tokens // MEASURED))
    ids = mx.arange(len(PROMPT.token_ids) + tokens) % 256
    started = time.perf_counter()
    for place in places:
        mx.random.categorical(model(ids[None, : len(PROMPT.token_ids) + place])[0, -1]).item()
    return (time.perf_counter() - started) / len(places)


def main() -> None:
    """Print the comparison."""
    prepare_device("auto")
    config = tiny_config(
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        max_position_embeddings=2048,
        initializer_range=0.02,
    )
    with tempfile.TemporaryDirectory() as folder:
        tiny_model(config).save_pretrained(folder)
        tiny_tokenizer().save_pretrained(Path(folder))
        model = load_model(folder, dtype="float32").model
    ours(model, 8), prefix_again(model, 8)  # kernels are built on first use
    print(f"milliseconds a token, {mx.default_device()}, {GROUP} completions of one prompt of {len(PROMPT.token_ids)}")
    print("  tokens     ours   whole prefix again   times")
    for tokens in LENGTHS:
        cached, again = ours(model, tokens), prefix_again(model, tokens)
        print(f"  {tokens:6} {1e3 * cached:8.3f} {1e3 * again:20.3f} {again / cached:7.1f}", flush=True)


if __name__ == "__main__":
    main()
