"""Logprobs of chosen tokens from hidden states, without the whole vocabulary x tokens in memory.

log softmax(logits / temperature)[id] needs one row of logits at a time. They are made in chunks that a CPU's cache can
hold, thrown away, and made again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from grpo_client.backends.torch.matmul import first_transposed_times, times_transposed
from grpo_client.backends.torch.own import has_bare_head, own_logits

CHUNK_ELEMENTS = 1 << 23  # logits held at a time: 32 MiB in float32
Kept = Sequence[NDArray[np.int32]]


def selected_logprobs(
    model: PreTrainedModel, hidden: torch.Tensor, ids: torch.Tensor, *, temperature: float, kept: Kept | None = None
) -> torch.Tensor:
    """log softmax(logits / temperature) at ids (N,), in float32, from hidden (N, H).

    kept: the ids (N lists) that the softmax runs over, where the sampler drew from a part of the vocabulary.
    """
    head = model.get_output_embeddings()
    rows = max(1, CHUNK_ELEMENTS // head.weight.shape[0])
    plain = has_bare_head(model) and head.weight.dtype == torch.float32
    if kept is None and plain and not torch.is_autocast_enabled(hidden.device.type):
        chosen: torch.Tensor = SelectedLogprobs.apply(hidden / temperature, head.weight, ids, rows)
        return chosen
    parts = []
    for start in range(0, len(ids), rows):
        some = slice(start, start + rows)
        arguments = (model, hidden[some], ids[some], temperature, None if kept is None else kept[some])
        if torch.is_grad_enabled():
            parts.append(checkpoint(_selected, *arguments, use_reentrant=False))
        else:
            parts.append(_selected(*arguments))
    return torch.cat(parts)


class SelectedLogprobs(torch.autograd.Function):
    """The same for a bare linear head: 4 matrix products forward and backward, and a chunk of memory.

    d logprob / d logits = onehot - softmax, so a chunk's logits become their own gradient in place.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor, rows: int) -> torch.Tensor:
        """hidden (N, H), weight (V, H), ids (N,) -> logprobs (N,)."""
        chosen, sums = hidden.new_empty(len(ids)), hidden.new_empty(len(ids))
        for start in range(0, len(ids), rows):
            some = slice(start, start + rows)
            logits = times_transposed(hidden[some], weight)
            chosen[some] = logits.gather(-1, ids[some, None])[:, 0]
            top = logits.amax(-1)
            sums[some] = logits.sub_(top[:, None]).exp_().sum(-1).log_() + top
        ctx.save_for_backward(hidden, weight, ids, sums)
        ctx.rows = rows
        return chosen - sums

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None, None]:
        """Gradients of hidden and, where it is trained, weight."""
        hidden, weight, ids, sums = ctx.saved_tensors
        (gradient,) = gradients
        into_hidden = torch.zeros_like(hidden)
        into_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        width = max(1, ctx.rows * len(weight) // len(ids))  # of the vocabulary: each part of `weight` is written once
        for start in range(0, len(weight), width):
            some = slice(start, start + width)
            logits = times_transposed(hidden, weight[some])
            logits.sub_(sums[:, None]).exp_().mul_(-gradient[:, None])
            inside = ((ids >= start) & (ids < start + width)).nonzero()[:, 0]
            logits[inside, ids[inside] - start] += gradient[inside]
            into_hidden += times_transposed(logits, weight[some].T)
            if into_weight is not None:
                into_weight[some] = first_transposed_times(logits, hidden)
        return into_hidden, into_weight, None, None


def _selected(
    model: PreTrainedModel, hidden: torch.Tensor, ids: torch.Tensor, temperature: float, kept: Kept | None
) -> torch.Tensor:
    logits = head_logits(model, hidden) / temperature
    if kept is not None:
        logits = logits.masked_fill(~kept_mask(kept, logits), -torch.inf)
    chosen: torch.Tensor = logits.gather(-1, ids[:, None])[:, 0] - logits.logsumexp(-1)
    return chosen


def kept_mask(kept: Kept, logits: torch.Tensor) -> torch.Tensor:
    """Which logits (N, V) belong to tokens that were kept."""
    mask = torch.zeros(logits.shape, dtype=torch.bool)
    for row, one in enumerate(kept):
        mask[row, torch.from_numpy(one.astype(np.int64))] = True
    return mask.to(logits.device)


def head_logits(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits (N, V) in float32 of hidden states (N, H): what the model's own forward makes of them."""
    if has_bare_head(model):
        logits: torch.Tensor = model.get_output_embeddings()(hidden)
        return logits.float()
    return own_logits(model, hidden).float()
