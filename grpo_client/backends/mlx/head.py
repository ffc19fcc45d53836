"""Logprobs of chosen tokens from hidden states, without the whole vocabulary x tokens in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from numpy.typing import NDArray

CHUNK_ELEMENTS = 1 << 24  # logits held at a time: 64 MiB in float32
Kept = Sequence[NDArray[np.int32]]


@dataclass(frozen=True)
class ModelParts:
    """A model cut in two before its head, or, where that cannot be, with all of it before the cut."""

    model: nn.Module
    hidden: Callable[[mx.array, Any], mx.array]  # (ids (B, T), caches or None) -> (B, T, H)
    logits: Callable[[mx.array], mx.array]  # (N, H) -> (N, V)
    head: nn.Module | None  # whose weights the logits are made with
    vocabulary: int


def cut_model(model: Any) -> tuple[ModelParts, str | None]:
    """The parts of a model, and a note where its head cannot be had alone."""
    ids = mx.array([[1, 2, 3, 4]])
    whole = model(ids)
    vocabulary = whole.shape[-1]
    if hasattr(model, "model"):

        def logits(hidden: mx.array) -> mx.array:
            # the model's own code, with scales and caps of its own, on a body that has been run already
            made: mx.array = type(model).__call__(_WithBody(model, hidden), hidden)
            return made

        head = getattr(model, "lm_head", None) or getattr(model.model, "embed_tokens", None)
        parts = ModelParts(model, lambda ids, caches: model.model(ids, cache=caches), logits, head, vocabulary)
        if head is not None and _agrees(parts, ids, whole):
            return parts, None
    note = "logits of every position, so more memory: the head of this model cannot be run alone"
    return ModelParts(model, lambda ids, caches: model(ids, cache=caches), lambda made: made, None, vocabulary), note


def _agrees(parts: ModelParts, ids: mx.array, whole: mx.array) -> bool:
    try:
        made = parts.logits(parts.hidden(ids, None)[0])
    except (AttributeError, TypeError, ValueError):  # a model that is put together in another way
        return False
    return made.shape == whole[0].shape and bool(mx.allclose(made, whole[0], rtol=1e-2, atol=1e-2))


class _WithBody:
    """A model whose body answers with hidden states that are there already."""

    def __init__(self, model: Any, hidden: mx.array) -> None:
        self._model = model
        self.model = _Body(model.model, hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Body:
    def __init__(self, body: Any, hidden: mx.array) -> None:
        self._body, self._hidden = body, hidden

    def __call__(self, *args: Any, **kwargs: Any) -> mx.array:
        return self._hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


def selected_logprobs(
    parts: ModelParts, hidden: mx.array, ids: mx.array, *, temperature: float, kept: Kept | None = None
) -> mx.array:
    """log softmax(logits / temperature) at ids (N,), in float32, from hidden (N, H), chunk by chunk.

    A chunk's logits are thrown away and made again in the backward pass. kept: the ids (N lists) that the softmax runs
    over, where the sampler drew from a part of the vocabulary.
    """

    rows = max(1, CHUNK_ELEMENTS // parts.vocabulary)
    made = []
    for start in range(0, len(ids), rows):
        some = slice(start, start + rows)
        mask = None if kept is None else kept_mask(kept[some], parts.vocabulary)
        one = partial(_selected, parts, ids=ids[some], mask=mask, temperature=temperature)
        again = mx.checkpoint(one) if parts.head is None else nn.utils.checkpoint(parts.head, one)
        made.append(again(hidden[some]))
    return mx.concatenate(made)


def _selected(
    parts: ModelParts, hidden: mx.array, *, ids: mx.array, mask: mx.array | None, temperature: float
) -> mx.array:
    logits = parts.logits(hidden).astype(mx.float32) / temperature
    if mask is not None:
        logits = mx.where(mask, logits, -mx.inf)
    return mx.take_along_axis(logits, ids[:, None], axis=-1)[:, 0] - mx.logsumexp(logits, axis=-1)


def kept_mask(kept: Kept, vocabulary: int) -> mx.array:
    """Which tokens, (N, V), were kept."""
    mask = np.zeros((len(kept), vocabulary), dtype=bool)
    for row, one in enumerate(kept):
        mask[row, one] = True
    return mx.array(mask)
