"""Forward passes: prompts once, completions on top of them, logprobs without the whole vocabulary in memory.

The prompt of a group is run once and its keys and values are shared by the group's completions, gradients included;
what all prompts begin with (a system message, worked examples) is run once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

LOGITS_CHUNK_ELEMENTS = 1 << 26  # logits held at a time: 256 MiB in float32
_SHORTEST_SHARED_PREFIX = 16  # below this, a pass of its own costs more than it saves


@dataclass
class Prefix:
    """Prompts that have been run. Row i of everything belongs to prompt i."""

    cache: DynamicCache
    mask: torch.Tensor  # (P, L) 1 where a cached position holds a token
    lengths: torch.Tensor  # (P,) tokens of each prompt
    last_hidden: torch.Tensor  # (P, H) from which the first token of a completion is predicted

    def select(self, prompts: torch.Tensor) -> Prefix:
        """The same for a list of prompt places, (B,), repeated as often as they stand there."""
        self.cache.batch_select_indices(prompts)
        return Prefix(self.cache, self.mask[prompts], self.lengths[prompts], self.last_hidden[prompts])


def run_prompts(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> Prefix:
    """Run P prompts (left-padded past what they share) and keep their keys and values."""
    device = model.device
    cache = DynamicCache(config=model.config)
    shared = shared_prefix_length(prompts)
    if shared:
        hidden_states(model, torch.tensor([list(prompts[0][:shared])], device=device), cache)
        cache.batch_repeat_interleave(len(prompts))
    rest = [list(prompt[shared:]) for prompt in prompts]
    width = max(len(one) for one in rest)
    # 0 is as good as any id under a mask of 0; pad ids are never told from real ones by value.
    ids = torch.tensor([[0] * (width - len(one)) + one for one in rest], device=device)
    own = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in rest], device=device)
    mask = torch.cat([torch.ones(len(rest), shared, dtype=own.dtype, device=device), own], dim=1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, shared:]
    hidden = hidden_states(model, ids, cache, mask=mask, positions=positions)
    return Prefix(cache, mask, mask.sum(1), hidden[:, -1])


def shared_prefix_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many first tokens all prompts share, leaving each at least one of its own; 0 where sharing would not pay."""
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))
    limit = min(len(prompt) for prompt in prompts) - 1
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), limit)
    shared = min(shared, limit)
    return shared if len(prompts) > 1 and shared >= _SHORTEST_SHARED_PREFIX else 0


def hidden_states(
    model: PreTrainedModel,
    ids: torch.Tensor,
    cache: DynamicCache,
    *,
    mask: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Last hidden states (B, T, H) of ids (B, T) on top of a cache, which grows by them.

    mask (B, cached + T) and positions (B, T) are always passed where rows are padded: a model that is left to guess
    them gets left padding wrong.
    """
    output = model.base_model(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True)
    hidden: torch.Tensor = output.last_hidden_state
    return hidden


def completion_logprobs(
    model: PreTrainedModel, prefix: Prefix, completions: Sequence[Sequence[int]], *, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs (B, T) of completions given their prompts (one prefix row each), and their mask (B, T).

    At logits / temperature, in float32; positions past a completion's end hold numbers that mean nothing.
    """
    device = model.device
    width = max(len(one) for one in completions)
    ids = torch.tensor([list(one) + [0] * (width - len(one)) for one in completions], device=device)
    mask = torch.tensor([[1] * len(one) + [0] * (width - len(one)) for one in completions], device=device)
    hidden = prefix.last_hidden[:, None]
    if width > 1:
        positions = prefix.lengths[:, None] + torch.arange(width - 1, device=device)[None]
        seen = torch.cat([prefix.mask, mask[:, :-1]], dim=1)
        own = hidden_states(model, ids[:, :-1], prefix.cache, mask=seen, positions=positions)
        hidden = torch.cat([hidden, own], dim=1)
    return selected_logprobs(model, hidden, ids, temperature=temperature), mask


def selected_logprobs(
    model: PreTrainedModel, hidden: torch.Tensor, ids: torch.Tensor, *, temperature: float
) -> torch.Tensor:
    """log softmax(logits / temperature) at ids, (B, T), from hidden (B, T, H), in chunks of bounded size.

    With gradients, a chunk's logits are computed again in the backward pass and never kept.
    """
    head = model.get_output_embeddings()
    flat, targets = hidden.flatten(0, 1), ids.flatten()
    rows = max(1, LOGITS_CHUNK_ELEMENTS // head.weight.shape[0])
    chunks = list(zip(flat.split(rows), targets.split(rows), strict=True))
    if len(chunks) > 1 and torch.is_grad_enabled():
        parts = [
            checkpoint(_selected, model, part, target, temperature, use_reentrant=False) for part, target in chunks
        ]
    else:
        parts = [_selected(model, part, target, temperature) for part, target in chunks]
    return torch.cat(parts).view_as(ids)


def _selected(model: PreTrainedModel, hidden: torch.Tensor, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = head_logits(model, hidden) / temperature
    chosen: torch.Tensor = logits.gather(-1, ids[:, None])[:, 0] - logits.logsumexp(-1)
    return chosen


def head_logits(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits (…, V) in float32, through the model's own output embedding and soft cap."""
    logits: torch.Tensor = model.get_output_embeddings()(hidden).float()
    cap = getattr(model.config, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap
