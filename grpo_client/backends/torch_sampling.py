"""Batched, cached sampling: a prompt is run once per group, finished rows leave the batch, stop tokens stay.

The noise of a token is keyed by (seed, step, prompt, completion, position) alone: which rows share a batch, which have
left it and on which device it runs change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from grpo_client.backends.torch_forward import head_logits, hidden_states, run_prompts
from grpo_client.types import FinishReason, Prompt, Rollout, Sampling

_COMPACT_BELOW = 0.75  # share of rows alive at which the finished ones are cut out of the cache
_FINISH_REASONS: tuple[FinishReason, FinishReason] = ("length", "stop")


@torch.no_grad()
def sample_groups(
    model: PreTrainedModel, prompts: Sequence[Prompt], sampling: Sampling, *, stop_ids: frozenset[int]
) -> Iterator[tuple[int, list[Rollout]]]:
    """Sample `group_size` completions of each prompt; yield (place of the prompt, rollouts) as groups finish."""
    device = model.device
    size = sampling.group_size
    places = torch.arange(len(prompts), device=device).repeat_interleave(size)
    prefix = run_prompts(model, [prompt.token_ids for prompt in prompts]).select(places)
    cache, mask, positions = prefix.cache, prefix.mask, prefix.lengths
    stops = torch.tensor(sorted(stop_ids if not sampling.ignore_eos else ()), device=device)
    noise = torch.from_numpy(_noise(prompts, sampling)).to(device)  # (rows, max_tokens)
    rows = torch.arange(len(places), device=device)  # which completion each batch row is
    tokens = torch.zeros(len(places), sampling.max_tokens, dtype=torch.long, device=device)
    logprobs = torch.zeros(len(places), sampling.max_tokens, device=device)
    lengths = np.zeros(len(places), dtype=int)  # 0 until finished
    stopped = np.zeros(len(places), dtype=bool)
    alive = torch.ones(len(places), dtype=torch.bool, device=device)
    hidden = prefix.last_hidden
    waiting = list(range(len(prompts)))
    for t in range(sampling.max_tokens):
        token, logprob = choose(head_logits(model, hidden), noise[rows, t], temperature=sampling.temperature)
        tokens[rows, t], logprobs[rows, t] = token, logprob
        ended = torch.isin(token, stops) & alive
        last = t + 1 == sampling.max_tokens
        if last or bool(ended.any()):
            leaving = (alive if last else ended).cpu().numpy()
            leaving_rows = rows.cpu().numpy()[leaving]
            lengths[leaving_rows] = t + 1
            stopped[leaving_rows] = ended.cpu().numpy()[leaving]
            alive &= ~ended
            for place in [one for one in waiting if lengths[one * size : (one + 1) * size].all()]:
                waiting.remove(place)
                yield place, _rollouts(range(place * size, (place + 1) * size), tokens, logprobs, lengths, stopped)
            if last or not waiting:
                return
            if int(alive.sum()) <= _COMPACT_BELOW * len(alive):
                kept = alive.nonzero()[:, 0]
                cache.batch_select_indices(kept)
                rows, mask, positions, token = rows[kept], mask[kept], positions[kept], token[kept]
                alive = alive[kept]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        hidden = hidden_states(model, token[:, None], cache, mask=mask, positions=positions[:, None])[:, -1]
        positions = positions + 1


def choose(logits: torch.Tensor, uniform: torch.Tensor, *, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row, (B,), and its logprob, (B,), from logits (B, V) and numbers in [0, 1), (B,).

    Temperature 0 takes the likeliest. Otherwise the inverse of the distribution function, in float64: in float32 the
    sum over a large vocabulary is coarser than its rarest tokens.
    """
    scaled = logits / temperature if temperature else logits
    logprobs = torch.log_softmax(scaled, dim=-1)
    if temperature:
        cumulative = logprobs.exp().double().cumsum(-1)
        target = uniform[:, None] * cumulative[:, -1:]
        token = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    else:
        token = scaled.argmax(-1)
    return token, logprobs.gather(-1, token[:, None])[:, 0]


def _noise(prompts: Sequence[Prompt], sampling: Sampling) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Uniform numbers in [0, 1), (rows, max_tokens), one stream a completion."""
    keys = [(sampling.seed, sampling.step, prompt.index, g) for prompt in prompts for g in range(sampling.group_size)]
    return np.stack([np.random.default_rng(key).random(sampling.max_tokens) for key in keys])


def _rollouts(
    rows: range,
    tokens: torch.Tensor,
    logprobs: torch.Tensor,
    lengths: np.ndarray[tuple[int], np.dtype[np.int_]],
    stopped: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> list[Rollout]:
    return [
        Rollout(
            tokens[row, : lengths[row]].tolist(),
            logprobs[row, : lengths[row]].tolist(),
            _FINISH_REASONS[int(stopped[row])],
        )
        for row in rows
    ]
