"""Which prompts each step takes, and how many steps there are."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt

PromptOrder = Callable[..., Iterable[list[Prompt]]]
"""`(prompts, *, size, seed)` -> the prompts of each step, without end."""


def steps_of(epochs: int, prompts: int, size: int) -> int:
    """Steps of `size` prompts in which each of the prompts comes `epochs` times; the last one may begin another."""
    return math.ceil(epochs * prompts / size)


def with_steps(config: TrainConfig, prompts: Sequence[Prompt]) -> TrainConfig:
    """The configuration with its epochs turned into steps, now that it is known how many prompts there are."""
    if config.epochs is None:
        return config
    steps = steps_of(config.epochs, len(prompts), config.prompts_per_step)
    return config.model_copy(update={"steps": steps, "epochs": None})


def prompt_order(
    prompts: Sequence[Prompt], *, size: int, seed: int, shuffle: bool = True, length_buckets: bool = False
) -> Iterator[list[Prompt]]:
    """The prompts of each step, without end, each once an epoch, in an order that depends on the arguments alone.

    What is left at the end of an epoch begins the next one's first step; no step takes a prompt twice, for both would
    be sampled with the same noise. `length_buckets` puts prompts of like token counts together, after mlx_lm's
    length-sorted batches, and shuffles the order of steps; without shuffling, it goes from short to long.
    Raises ConfigError when there are fewer prompts than one step takes.
    """
    if len(prompts) < size:
        raise ConfigError(
            f"--prompts-per-step {size} is more than the {len(prompts)} prompts that there are, and a step takes each "
            "only once; lower it, or give more data"
        )
    arrange = partial(_by_length if length_buckets else _in_turn, size=size, shuffle=shuffle)
    return _stream(prompts, arrange, size=size, seed=seed)


def _stream(prompts: Sequence[Prompt], arrange: Any, *, size: int, seed: int) -> Iterator[list[Prompt]]:
    waiting: list[Prompt] = []
    for epoch in itertools.count():
        order = waiting + arrange(prompts, waiting, rng=random.Random(f"epoch {epoch} of {seed}"))
        full = len(order) // size * size
        for start in range(0, full, size):
            yield order[start : start + size]
        waiting = order[full:]


def _in_turn(
    prompts: Sequence[Prompt], waiting: Sequence[Prompt], *, size: int, shuffle: bool, rng: random.Random
) -> list[Prompt]:
    """An epoch's order. Its start fills up the step of those that wait from the epoch before, with none of them."""
    order = list(prompts)
    if shuffle:
        rng.shuffle(order)
    if not waiting:
        return order
    taken = {prompt.index for prompt in waiting}
    filling = [prompt for prompt in order if prompt.index not in taken][: size - len(waiting)]
    return filling + _without(order, filling)


def _by_length(
    prompts: Sequence[Prompt], waiting: Sequence[Prompt], *, size: int, shuffle: bool, rng: random.Random
) -> list[Prompt]:
    """The same with like lengths together: cut from the sorted order, so that the steps' ranges do not overlap."""
    order = list(prompts)
    if shuffle:
        rng.shuffle(order)  # decides among equal lengths
    filling: list[Prompt] = []
    if waiting:
        taken, middle = {prompt.index for prompt in waiting}, _length(waiting[len(waiting) // 2])
        others = [prompt for prompt in order if prompt.index not in taken]
        filling = sorted(others, key=lambda prompt: abs(_length(prompt) - middle))[: size - len(waiting)]
    rest = sorted(_without(order, filling), key=_length)
    whole = len(rest) // size
    border = (rng.randint(0, whole) if shuffle else whole) * size  # those that will wait stand here
    end = border + len(rest) % size
    cuts = [rest[start : start + size] for start in (*range(0, border, size), *range(end, len(rest), size))]
    if shuffle:
        rng.shuffle(cuts)
    return filling + list(itertools.chain.from_iterable(cuts)) + rest[border:end]


def _length(prompt: Prompt) -> int:
    return len(prompt.token_ids)


def _without(prompts: Sequence[Prompt], taken: Sequence[Prompt]) -> list[Prompt]:
    indices = {prompt.index for prompt in taken}
    return [prompt for prompt in prompts if prompt.index not in indices]
