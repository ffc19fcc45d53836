"""Batched, cached sampling: a prompt is run once per group, finished rows make place for waiting prompts.

The noise of a token is keyed by (seed, step, prompt, completion, position) alone: which rows share a batch, which have
left it, which joined later and on which device it runs change nothing. Stop tokens stay in the completion.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from grpo_client.backends.draws import noise, rollouts_of
from grpo_client.backends.torch.cache import Pair, pairs, repeated, roomy_cache
from grpo_client.backends.torch.choice import choose
from grpo_client.backends.torch.forward import hidden_states, run_prompts
from grpo_client.backends.torch.head import head_logits
from grpo_client.types import Prompt, Rollout, Sampling

_COMPACT_BELOW = 0.75  # share of rows alive at which the finished ones are cut out of the cache


@dataclass
class _Live:
    """The rows of the batch, all with their newest token in the last column of the cache."""

    rows: torch.Tensor  # (B,) which completion each is
    pairs: list[Pair]  # of each layer, (B, heads, L, d)
    mask: torch.Tensor  # (B, L)
    positions: torch.Tensor  # (B,) of the next token
    hidden: torch.Tensor  # (B, H) from which the next token is predicted

    def kept(self, places: torch.Tensor) -> _Live:
        """Some of them, without the columns that hold nothing for any."""
        start = int(self.mask[places].any(0).int().argmax()) if len(places) else 0
        cut = []
        while self.pairs:  # emptied on the way, so that no layer but one is held twice
            keys, values = self.pairs.pop(0)
            cut.append((keys[places][:, :, start:], values[places][:, :, start:]))
        return _Live(self.rows[places], cut, self.mask[places][:, start:], self.positions[places], self.hidden[places])

    def joined(self, other: _Live) -> _Live:
        """Both, padded on the left to one width."""
        width = max(self.mask.shape[1], other.mask.shape[1])
        both = []
        while self.pairs:  # as above
            layers = zip(self.pairs.pop(0), other.pairs.pop(0), strict=True)
            keys, values = (torch.cat([_left_padded(one, width) for one in two]) for two in layers)
            both.append((keys, values))
        mask = torch.cat([torch.nn.functional.pad(one.mask, (width - one.mask.shape[1], 0)) for one in (self, other)])
        return _Live(
            torch.cat([self.rows, other.rows]),
            both,
            mask,
            torch.cat([self.positions, other.positions]),
            torch.cat([self.hidden, other.hidden]),
        )


def _left_padded(states: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, width - states.shape[2], 0))


@torch.no_grad()
def sample_groups(
    model: PreTrainedModel, prompts: Sequence[Prompt], sampling: Sampling, *, stop_ids: frozenset[int]
) -> Generator[tuple[int, list[Rollout]], None, None]:
    """Sample `group_size` completions of each prompt; yield (place of the prompt, rollouts) as groups finish."""
    drawn = Drawn(prompts, sampling, stop_ids, device=model.device)
    waiting = list(range(len(prompts)))
    live: _Live | None = None
    while waiting or live is not None:
        free = (sampling.rows - (0 if live is None else len(live.rows))) // sampling.group_size
        if waiting and free:
            joining, waiting = waiting[:free], waiting[free:]
            new = _prefilled(model, prompts, joining, sampling)
            live = new if live is None else live.joined(new)
        assert live is not None
        live = yield from _decode(model, live, drawn)


def _prefilled(model: PreTrainedModel, prompts: Sequence[Prompt], places: Sequence[int], sampling: Sampling) -> _Live:
    """The rows of some prompts' groups, each prompt run once."""
    size = sampling.group_size
    prefix = run_prompts(model, [prompts[place].token_ids for place in places])
    of = torch.arange(len(places), device=model.device).repeat_interleave(size)
    rows = torch.tensor([place * size + g for place in places for g in range(size)], device=model.device)
    return _Live(
        rows, [repeated(pair, of) for pair in prefix.pairs], prefix.mask[of], prefix.lengths[of], prefix.last_hidden[of]
    )


def _decode(
    model: PreTrainedModel, live: _Live, drawn: Drawn
) -> Generator[tuple[int, list[Rollout]], None, _Live | None]:
    """Sample until rows are to be cut out. Yields groups as they finish, returns the rows that go on."""
    cache = roomy_cache(live.pairs)
    rows, mask, positions, hidden = live.rows, live.mask, live.positions, live.hidden
    alive = np.ones(len(rows), dtype=bool)
    while alive.sum() > _COMPACT_BELOW * len(alive):
        token, ended = drawn.draw(rows, head_logits(model, hidden), alive)
        if ended.any():
            alive &= ~ended
            for place in drawn.finished_by(rows, ended):
                yield place, drawn.rollouts(place)
        if not alive.any():
            return None
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        hidden = hidden_states(model, token[:, None], cache, mask=mask, positions=positions[:, None])[:, -1]
        positions = positions + 1
    left = pairs(cache)
    del cache  # which holds them, too
    return _Live(rows, left, mask, positions, hidden).kept(torch.from_numpy(alive.nonzero()[0]).to(rows.device))


class Drawn:
    """What each completion has got so far, (rows, max_tokens), and the noise that it draws with."""

    def __init__(
        self, prompts: Sequence[Prompt], sampling: Sampling, stop_ids: frozenset[int], *, device: torch.device
    ) -> None:
        self._sampling = sampling
        self._stops = torch.tensor(sorted(stop_ids if not sampling.ignore_eos else ()), device=device)
        self._noise = torch.from_numpy(noise(prompts, sampling)).to(device)
        rows = len(self._noise)
        self.tokens = torch.zeros(rows, sampling.max_tokens, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rows, sampling.max_tokens, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self._over = np.zeros(rows, dtype=bool)
        self.stopped = np.zeros(rows, dtype=bool)
        self.kept: list[list[NDArray[np.int32]]] = [[] for _ in range(rows)]

    def draw(
        self, rows: torch.Tensor, logits: torch.Tensor, alive: NDArray[np.bool_]
    ) -> tuple[torch.Tensor, NDArray[np.bool_]]:
        """A token of each row, (B,), and which of the living end with it. What the others draw is not kept."""
        at = self.lengths[rows].clamp(max=self._sampling.max_tokens - 1)
        token, logprob, kept = choose(logits, self._noise[rows, at], self._sampling)
        going = torch.from_numpy(alive).to(rows.device)
        self.tokens[rows[going], at[going]] = token[going]
        self.logprobs[rows[going], at[going]] = logprob[going]
        self.lengths[rows[going]] += 1
        if kept is not None:
            for place in alive.nonzero()[0]:
                ids = kept[place].nonzero()[:, 0].to("cpu", torch.int32).numpy()
                self.kept[int(rows[place])].append(ids)
        stop = torch.isin(token, self._stops)
        full = at + 1 >= self._sampling.max_tokens
        ended: NDArray[np.bool_] = torch.stack([stop, stop | full]).cpu().numpy() & alive
        self.stopped[rows.cpu().numpy()[ended[0]]] = True
        return token, ended[1]

    def finished_by(self, rows: torch.Tensor, ended: NDArray[np.bool_]) -> list[int]:
        """The groups whose last completions have just ended."""
        size = self._sampling.group_size
        over = rows.cpu().numpy()[ended]
        self._over[over] = True
        return [int(p) for p in np.unique(over // size) if self._over[p * size : (p + 1) * size].all()]

    def rollouts(self, place: int) -> list[Rollout]:
        """A finished group."""
        return rollouts_of(self, place, self._sampling)
