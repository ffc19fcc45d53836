"""One token from a row of logits: temperature, top-k, top-p, min-p, and the inverse of the distribution function.

The same numbers give the same token as `torch_choice` does, up to rounding.
"""

from __future__ import annotations

import mlx.core as mx

from grpo_client.backends.draws import narrows
from grpo_client.types import Sampling

_BLOCK = 512  # tokens that are summed up on the GPU, which has no float64; the blocks' sums are added up in float64
_BELOW_ONE = 1 - 2**-23  # times any float32 it is less than that


def choose(logits: mx.array, uniform: mx.array, sampling: Sampling) -> tuple[mx.array, mx.array, mx.array | None]:
    """One token a row, (B,), its logprob, (B,), and the tokens it was drawn from, (B, V), or None for all.

    From logits (B, V) and float64 numbers in [0, 1), (B,). Temperature 0 takes the likeliest. Logprobs are those of the
    distribution that was drawn from.
    """
    logits = logits.astype(mx.float32)
    if not sampling.temperature:
        token = mx.argmax(logits, axis=-1)
        return token, _at(logits, token) - mx.logsumexp(logits, axis=-1), None
    scaled = logits / sampling.temperature
    kept = kept_tokens(scaled, sampling) if narrows(sampling) else None
    if kept is not None:
        scaled = mx.where(kept, scaled, -mx.inf)
    token = _invert(mx.exp(scaled - mx.max(scaled, axis=-1, keepdims=True)), uniform)
    return token, _at(scaled, token) - mx.logsumexp(scaled, axis=-1), kept


def _at(values: mx.array, token: mx.array) -> mx.array:
    return mx.take_along_axis(values, token[:, None], axis=-1)[:, 0]


def _invert(weights: mx.array, uniform: mx.array) -> mx.array:
    """The first token whose cumulative weight is above its row's share `uniform` of the whole; never one of weight 0.

    In two steps, as in float32 the sum over a large vocabulary is coarser than its rarest tokens: the block of tokens,
    in float64 on the CPU, then the token within it.
    """
    rows, vocabulary = weights.shape
    blocks = mx.pad(weights, [(0, 0), (0, -vocabulary % _BLOCK)]).reshape(rows, -1, _BLOCK)
    sums = mx.sum(blocks, axis=-1)
    with mx.stream(mx.cpu):
        wide = sums.astype(mx.float64)
        cumulative = mx.cumsum(wide, axis=-1)
        goal = uniform[:, None] * cumulative[:, -1:]
        block = mx.argmax((cumulative > goal) & (wide > 0), axis=-1)[:, None]
        own = mx.take_along_axis(wide, block, axis=-1)
        share = ((goal - mx.take_along_axis(cumulative, block, axis=-1)) / own + 1).astype(mx.float32)
    within = mx.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    reached = mx.where(within > 0, mx.cumsum(within, axis=-1), 0.0)
    wanted = mx.clip(share, 0.0, _BELOW_ONE) * mx.max(reached, axis=-1, keepdims=True)
    return block[:, 0] * _BLOCK + mx.argmax(reached > wanted, axis=-1)


def kept_tokens(scaled: mx.array, sampling: Sampling) -> mx.array:
    """Which tokens, (B, V), are drawn from: at logits / temperature, in transformers' order and meaning.

    top-k: the k likeliest and what equals the last of them. top-p: the likeliest, until their share reaches top_p.
    min-p: those at least min_p times as likely as the likeliest.
    """
    kept = mx.ones(scaled.shape, dtype=mx.bool_)
    if 0 < sampling.top_k < scaled.shape[-1]:
        kept = scaled >= mx.min(mx.topk(scaled, sampling.top_k, axis=-1), axis=-1, keepdims=True)
    if sampling.top_p < 1:
        probabilities = mx.softmax(mx.where(kept, scaled, -mx.inf), axis=-1)
        order = mx.argsort(-probabilities, axis=-1)
        ordered = mx.take_along_axis(probabilities, order, axis=-1)
        within = mx.cumsum(ordered, axis=-1) - ordered < sampling.top_p  # the share of those before it
        kept = kept & mx.put_along_axis(mx.zeros_like(kept), order, within, axis=-1)
    if sampling.min_p > 0:
        kept = kept & (scaled >= mx.max(scaled, axis=-1, keepdims=True) + mx.log(mx.array(sampling.min_p)))
    return kept
