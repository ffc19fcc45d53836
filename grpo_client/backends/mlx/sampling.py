"""Batched, cached sampling on mlx-lm's caches: a prompt is run once per group, finished rows make place for others.

The noise of a token is keyed by (seed, step, prompt, completion, position) alone, as on every backend: which rows share
a batch, which have left it and which joined later change nothing. Stop tokens stay in the completion.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from numpy.typing import NDArray

from grpo_client.backends.draws import noise, rollouts_of
from grpo_client.backends.mlx.choice import choose
from grpo_client.types import Prompt, Rollout, Sampling

_COMPACT_BELOW = 0.75  # share of rows alive at which the finished ones are cut out of the cache
_PREFILL = 2048  # tokens of a prompt in one pass
_CLEAR_EVERY = 256  # tokens between which freed buffers, of ever new sizes, are kept for use again


@dataclass
class _Ahead:
    """The next token of each row: computed or on its way, not looked at yet, and not in the caches."""

    token: mx.array  # (B,)
    logprob: mx.array  # (B,)
    kept: mx.array | None  # (B, V) what it was drawn from, where that is not everything

    def arrays(self) -> list[mx.array]:
        """Those that are there."""
        return [one for one in (self.token, self.logprob, self.kept) if one is not None]


@dataclass
class _Live:
    """The rows of the batch."""

    rows: NDArray[np.int64]  # (B,) which completion each is
    caches: list[Any]  # of each layer, mlx-lm's batch caches
    ahead: _Ahead

    def kept(self, places: NDArray[np.int64]) -> _Live:
        """Some of them."""
        chosen = mx.array(places)
        for cache in self.caches:
            cache.filter(chosen)
            mx.eval(cache.state)  # a layer at a time, so that no two copies of all of them are held
        token, logprob, *kept = [one[chosen] for one in self.ahead.arrays()]
        return _Live(self.rows[places], self.caches, _Ahead(token, logprob, kept[0] if kept else None))

    def joined(self, other: _Live) -> _Live:
        """Both."""
        for cache, another in zip(self.caches, other.caches, strict=True):
            cache.extend(another)
        pairs = zip(self.ahead.arrays(), other.ahead.arrays(), strict=True)
        token, logprob, *kept = [mx.concatenate(list(pair)) for pair in pairs]
        rows = np.concatenate([self.rows, other.rows])
        return _Live(rows, self.caches, _Ahead(token, logprob, kept[0] if kept else None))


def sample_groups(
    model: nn.Module, prompts: Sequence[Prompt], sampling: Sampling, *, stop_ids: frozenset[int]
) -> Generator[tuple[int, list[Rollout]], None, None]:
    """Sample `group_size` completions of each prompt; yield (place of the prompt, rollouts) as groups finish."""
    drawn = _Drawn(prompts, sampling, stop_ids)
    waiting = list(range(len(prompts)))
    live: _Live | None = None
    try:
        while waiting or live is not None:
            free = (sampling.rows - (0 if live is None else len(live.rows))) // sampling.group_size
            if waiting and free:
                joining, waiting = waiting[:free], waiting[free:]
                new = _prefilled(model, prompts, joining, sampling.group_size, drawn)
                live = new if live is None else live.joined(new)
            assert live is not None
            live = yield from _decode(model, live, drawn)
    finally:
        mx.clear_cache()


def _prefilled(model: nn.Module, prompts: Sequence[Prompt], places: Sequence[int], size: int, drawn: _Drawn) -> _Live:
    """The rows of some prompts' groups. Each prompt is run once, and what all begin with once for all."""
    ids = [list(prompts[place].token_ids) for place in places]
    shared = _shared(ids)
    beginning = make_prompt_cache(model)
    _run(model, ids[0][:shared], beginning)
    each = [beginning if len(ids) == 1 else copy.deepcopy(beginning) for _ in ids]
    for one, caches in zip(ids, each, strict=True):
        _run(model, one[shared:-1], caches)
    layers = [layer[0].merge(list(layer)) for layer in zip(*each, strict=True)]
    repeated = np.arange(len(ids)).repeat(size)
    for layer in layers:
        layer.filter(mx.array(repeated))
    rows = np.array([place * size + g for place in places for g in range(size)])
    last = mx.array([one[-1] for one in ids])[mx.array(repeated)]
    return _Live(rows, layers, drawn.draw(rows, _logits(model, last, layers)))


def _logits(model: Any, token: mx.array, caches: list[Any]) -> mx.array:
    """Logits (B, V) after a token of each row, (B,), which the caches take in."""
    made: mx.array = model(token[:, None], cache=caches)[:, -1]
    return made


def _shared(ids: Sequence[Sequence[int]]) -> int:
    """How many first tokens all prompts share, leaving each one of its own."""
    limit = min(map(len, ids)) - 1
    return next((i for i, column in enumerate(zip(*ids, strict=False)) if len({*column}) > 1 or i == limit), limit)


def _run(model: Any, ids: list[int], caches: list[Any]) -> None:
    """Take tokens into caches. Logits are not asked for, so they are never computed."""
    for start in range(0, len(ids), _PREFILL):
        model(mx.array(ids[start : start + _PREFILL])[None], cache=caches)
        mx.eval([cache.state for cache in caches])


def _decode(model: Any, live: _Live, drawn: _Drawn) -> Generator[tuple[int, list[Rollout]], None, _Live | None]:
    """Sample until rows are to be cut out. Yields groups as they finish, returns the rows that go on.

    A token is looked at while the next one is computed already, so that the device need not wait for Python.
    """
    alive = np.ones(len(live.rows), dtype=bool)
    steps = 0
    while alive.sum() > _COMPACT_BELOW * len(alive):
        ahead = live.ahead
        if drawn.may_go_on(live.rows[alive]):
            live.ahead = drawn.draw(live.rows, _logits(model, ahead.token, live.caches), before=1)
            mx.async_eval(*live.ahead.arrays())
        ended = drawn.record(live.rows, ahead, alive)
        if ended.any():
            alive &= ~ended
            for place in drawn.finished_by(live.rows, ended):
                yield place, drawn.rollouts(place)
        if not alive.any():
            return None
        steps += 1
        if steps % _CLEAR_EVERY == 0:
            mx.clear_cache()
    return live.kept(alive.nonzero()[0])


class _Drawn:
    """What each completion has got so far, (rows, max_tokens), and the noise that it draws with."""

    def __init__(self, prompts: Sequence[Prompt], sampling: Sampling, stop_ids: frozenset[int]) -> None:
        self._sampling = sampling
        self._stops = np.array(sorted(stop_ids if not sampling.ignore_eos else ()), dtype=np.int64)
        self._noise = np.minimum(noise(prompts, sampling), 1 - 2**-52)  # below 1 after any rounding
        rows = len(self._noise)
        self.tokens = np.zeros((rows, sampling.max_tokens), dtype=np.int64)
        self.logprobs = np.zeros((rows, sampling.max_tokens), dtype=np.float32)
        self.lengths = np.zeros(rows, dtype=np.int64)
        self._over = np.zeros(rows, dtype=bool)
        self.stopped = np.zeros(rows, dtype=bool)
        self.kept: list[list[NDArray[np.int32]]] = [[] for _ in range(rows)]

    def draw(self, rows: NDArray[np.int64], logits: mx.array, *, before: int = 0) -> _Ahead:
        """A token of each row; `before` says how many of its tokens have been drawn and not recorded yet."""
        at = np.minimum(self.lengths[rows] + before, self._sampling.max_tokens - 1)
        return _Ahead(*choose(logits, mx.array(self._noise[rows, at], dtype=mx.float64), self._sampling))

    def may_go_on(self, rows: NDArray[np.int64]) -> bool:
        """Whether some row has room for a token after the next one."""
        return bool((self.lengths[rows] + 1 < self._sampling.max_tokens).any())

    def record(self, rows: NDArray[np.int64], ahead: _Ahead, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep the tokens of the living; which of them end with it."""
        token, going = np.array(ahead.token), rows[alive]
        at = self.lengths[going]
        self.tokens[going, at] = token[alive]
        self.logprobs[going, at] = np.array(ahead.logprob)[alive]
        self.lengths[going] += 1
        if ahead.kept is not None:
            kept = np.array(ahead.kept)
            for place in alive.nonzero()[0]:
                self.kept[int(rows[place])].append(kept[place].nonzero()[0].astype(np.int32))
        stop = np.isin(token, self._stops) & alive
        self.stopped[rows[stop]] = True
        return (stop | (self.lengths[rows] >= self._sampling.max_tokens)) & alive

    def finished_by(self, rows: NDArray[np.int64], ended: NDArray[np.bool_]) -> list[int]:
        """The groups whose last completions have just ended."""
        size = self._sampling.group_size
        self._over[rows[ended]] = True
        return [int(p) for p in np.unique(rows[ended] // size) if self._over[p * size : (p + 1) * size].all()]

    def rollouts(self, place: int) -> list[Rollout]:
        """A finished group."""
        return rollouts_of(self, place, self._sampling)
