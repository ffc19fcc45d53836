"""The values that travel along a training step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FinishReason = Literal["stop", "length"]

Metrics = dict[str, float | int | str | None]
"""A step's (or an evaluation's) numbers under the names that people chart; what is unknown is None, never 0."""


def finite(value: float) -> float | None:
    """The value as a metric: None where it is not a number that JSON has."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of the data, ready to be sampled from. `index` is its place in the data: noise is keyed by it."""

    index: int
    messages: Sequence[Mapping[str, str]]
    token_ids: tuple[int, ...]
    gold: str | list[str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    opening: str = ""  # of the completion, which the prompt's template has written already: a think tag, say


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion. The stop token, where there was one, is the last of `token_ids`."""

    token_ids: list[int]  # (T,)
    sampling_logprobs: list[float]  # (T,) natural logs at logits / temperature, as the sampler computed them
    finish_reason: FinishReason
    kept: list[NDArray[np.int32]] | None = None  # (T,) ids that each token was drawn from; None = the whole vocabulary


@dataclass(frozen=True, slots=True)
class Scores:
    """A group's scores as the service gave them: per reward name a list over the group, None where unscored."""

    totals: list[float | None]
    values: Mapping[str, list[float | None]]
    statuses: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt, its G completions and their scores, and what is learnt from where that is not the same (`nulls`)."""

    prompt: Prompt
    rollouts: list[Rollout]
    texts: list[str]  # each with the prompt's opening before what was sampled
    scores: Scores  # as the service gave them
    learnt: Scores | None = None

    @property
    def rewards(self) -> Scores:
        """What is learnt from."""
        return self.learnt or self.scores


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. Temperature 0 is greedy, which only evaluation may be; `seed`, `step` and `stream` key the noise.

    top_k, top_p and min_p narrow the vocabulary, in this order, each over what the one before it kept; 0, 1 and 0 keep
    all. `rows` bounds the completions sampled at a time.
    """

    group_size: int
    max_tokens: int
    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    ignore_eos: bool = False
    rows: int = 128
    seed: int = 0
    step: int = 0
    stream: int = 0

    def noise_key(self, prompt: int, completion: int) -> tuple[int, ...]:
        """What the noise of a completion is drawn by. Stream 0 is training's, and not in the key."""
        key = (self.seed, self.step, prompt, completion)
        return (*key, self.stream) if self.stream else key
