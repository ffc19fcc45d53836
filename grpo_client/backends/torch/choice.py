"""One token from a row of logits: temperature, top-k, top-p, min-p, and the inverse of the distribution function."""

from __future__ import annotations

import torch

from grpo_client.backends.draws import narrows
from grpo_client.types import Sampling


def choose(
    logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """One token a row, (B,), its logprob, (B,), and the tokens it was drawn from, (B, V), or None for all.

    From logits (B, V) and numbers in [0, 1), (B,). Temperature 0 takes the likeliest. The sum runs in float64: in
    float32 that over a large vocabulary is coarser than its rarest tokens. Logprobs are those of the distribution
    that was drawn from.
    """
    if not sampling.temperature:
        token = logits.argmax(-1)
        return token, _at(logits, token) - logits.logsumexp(-1), None
    scaled = logits / sampling.temperature
    kept = kept_tokens(scaled, sampling) if narrows(sampling) else None
    if kept is not None:
        scaled = scaled.masked_fill(~kept, -torch.inf)
    top = scaled.amax(-1, keepdim=True)
    cumulative = (scaled - top).exp_().double().cumsum(-1)
    total = cumulative[:, -1:]
    token = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return token, (_at(scaled, token) - top[:, 0] - total[:, 0].log()).float(), kept


def _at(values: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    return values.gather(-1, token[:, None])[:, 0]


def kept_tokens(scaled: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Which tokens, (B, V), are drawn from: at logits / temperature, in transformers' order and meaning.

    top-k: the k likeliest and what equals the last of them. top-p: the likeliest, until their share reaches top_p.
    min-p: those at least min_p times as likely as the likeliest.
    """
    kept = torch.ones_like(scaled, dtype=torch.bool)
    if 0 < sampling.top_k < scaled.shape[-1]:
        kept = scaled >= scaled.topk(sampling.top_k, dim=-1).values[:, -1:]
    if sampling.top_p < 1:
        probabilities = scaled.masked_fill(~kept, -torch.inf).softmax(-1)
        ordered, order = probabilities.sort(dim=-1, descending=True)
        within = ordered.cumsum(-1) - ordered < sampling.top_p  # the share of those before it
        kept = kept & torch.zeros_like(kept).scatter(-1, order, within)
    if sampling.min_p > 0:
        best = scaled.amax(-1, keepdim=True)
        kept = kept & (scaled >= best + torch.log(torch.tensor(sampling.min_p)))
    return kept
