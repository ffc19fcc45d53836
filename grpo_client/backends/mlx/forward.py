"""Forward passes with gradients: prompts once and completions on top, or, where a model cannot, every row whole.

Everything is padded on the right, where causal attention and recurrent layers alike do not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from grpo_client.backends.mlx.head import ModelParts, selected_logprobs
from grpo_client.learning.batch import Batch, CompletionRow

Pair = tuple[mx.array, mx.array]
Logprobs = Callable[..., tuple[mx.array, mx.array]]  # (parts, batch, *, temperature) -> logprobs, mask (B, T)


@dataclass(frozen=True)
class Before:
    """What a layer has seen: keys and values of prompts, padded on the right, (B, heads, L, d), and their lengths."""

    pair: Pair
    lengths: mx.array  # (B,)


class PassCache:
    """One layer's cache for one pass, as mlx-lm's models ask for it. Nothing is overwritten, so gradients flow."""

    def __init__(self, *, window: int | None, before: Before | None = None) -> None:
        self.window = window
        self.before = before
        self.offset: Any = 0 if before is None else before.lengths
        self.pair: Pair | None = None

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Pair:
        """Earlier and new keys and values."""
        self.pair = keys, values
        if self.before is None:
            return self.pair
        earlier = self.before.pair
        return mx.concatenate([earlier[0], keys], axis=2), mx.concatenate([earlier[1], values], axis=2)

    def make_mask(self, length: int, return_array: bool = False, window_size: int | None = None) -> mx.array | str:
        """Which keys each of `length` new positions sees: by position, so padding between them does not matter."""
        window = window_size or self.window
        if self.before is None:
            if return_array or (window is not None and length > window):
                mask: mx.array = create_causal_mask(length, window_size=window)
                return mask
            return "causal"
        lengths = self.before.lengths[:, None]
        old, new = mx.arange(self.before.pair[0].shape[2])[None], mx.arange(length)[None]
        far = 1 << 30  # padding stands where nobody looks back from
        columns = mx.concatenate([mx.where(old < lengths, old, far), lengths + new], axis=1)[:, None]
        rows = (lengths + new)[:, :, None]
        mask = columns <= rows
        if window is not None:
            mask = mask & (rows - columns < window)
        return mask[:, None]


def choose_forward(model: nn.Module) -> tuple[Logprobs, str | None]:
    """The pass for this model, and a note where it is the plain one."""
    foreign = {type(one) for one in make_prompt_cache(model)} - {KVCache, RotatingKVCache}
    if not foreign:
        return shared_logprobs, None
    names = ", ".join(sorted(kind.__name__ for kind in foreign))
    return plain_logprobs, f"plain forward passes, every row whole: this model's layers keep more than keys ({names})"


def shared_logprobs(parts: ModelParts, batch: Batch, *, temperature: float) -> tuple[mx.array, mx.array]:
    """Logprobs and mask, (B, T), of a batch's rows; each of its prompts is run once."""
    used = sorted({row.prompt for row in batch.rows})
    prompts = [list(batch.prompts[place]) for place in used]
    windows = [getattr(one, "max_size", None) for one in make_prompt_cache(parts.model)]
    caches = [PassCache(window=window) for window in windows]
    hidden = parts.hidden(padded(prompts), caches)  # (P, L, H)
    lengths = mx.array([len(prompt) for prompt in prompts])
    place = mx.array([used.index(row.prompt) for row in batch.rows])
    last = hidden[mx.arange(len(used)), lengths - 1][place][:, None]
    ids = padded([row.token_ids for row in batch.rows])
    if ids.shape[1] > 1:
        own = [
            PassCache(window=cache.window, before=Before((keys[place], values[place]), lengths[place]))
            for cache in caches
            for keys, values in [_pair(cache)]
        ]
        last = mx.concatenate([last, parts.hidden(ids[:, :-1], own)], axis=1)
    width = ids.shape[1]
    places = [np.arange(len(row.token_ids)) + i * width for i, row in enumerate(batch.rows)]
    return _at_completions(parts, last, places, batch.rows, temperature=temperature)


def _pair(cache: PassCache) -> Pair:
    assert cache.pair is not None
    return cache.pair


def plain_logprobs(parts: ModelParts, batch: Batch, *, temperature: float) -> tuple[mx.array, mx.array]:
    """The same with prompt and completion of every row run whole."""
    whole = [[*batch.prompts[row.prompt], *row.token_ids][:-1] for row in batch.rows]
    hidden = parts.hidden(padded(whole), None)
    width = hidden.shape[1]
    places = [
        np.arange(len(row.token_ids)) + i * width + len(batch.prompts[row.prompt]) - 1
        for i, row in enumerate(batch.rows)
    ]
    return _at_completions(parts, hidden, places, batch.rows, temperature=temperature)


def padded(lists: Sequence[Sequence[int]]) -> mx.array:
    """Ids, (B, T), right-padded. 0 is as good as any id: no id is told by its value."""
    width = max(map(len, lists))
    return mx.array([[*one, *[0] * (width - len(one))] for one in lists])


def _at_completions(
    parts: ModelParts,
    hidden: mx.array,
    places: Sequence[np.ndarray[Any, Any]],
    rows: Sequence[CompletionRow],
    *,
    temperature: float,
) -> tuple[mx.array, mx.array]:
    """Logprobs and mask (B, T), 0 at padding, from hidden (…, H) at flat `places`, one list a row; no other logits."""
    lengths = [len(row.token_ids) for row in rows]
    width = max(lengths)
    kept = None
    if rows[0].kept is not None:  # one sampler drew them all
        kept = [one for row in rows for one in row.kept or ()]
    real = hidden.reshape(-1, hidden.shape[-1])[mx.array(np.concatenate(places))]
    ids = mx.array([token for row in rows for token in row.token_ids])
    chosen = selected_logprobs(parts, real, ids, temperature=temperature, kept=kept)
    target = mx.array(np.concatenate([np.arange(length) + i * width for i, length in enumerate(lengths)]))
    logprobs = mx.zeros((len(rows) * width,), dtype=chosen.dtype).at[target].add(chosen)
    mask = mx.arange(width)[None] < mx.array(lengths)[:, None]
    return logprobs.reshape(len(rows), width), mask
