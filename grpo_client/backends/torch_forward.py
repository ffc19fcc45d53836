"""Forward passes: prompts once and completions on top of them, or, where a model cannot, every row whole.

The prompt of a group is run once and its keys and values are shared by the group's completions, gradients included;
what all prompts begin with (a system message, worked examples) is run once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from grpo_client.backends.torch_cache import Pair, SharedLayer, empty_cache, pairs, select_rows
from grpo_client.backends.torch_head import selected_logprobs
from grpo_client.batch import Batch, Row

_SHORTEST_SHARED_PREFIX = 16  # below this, a pass of its own costs more than it saves

Logprobs = Callable[..., tuple[torch.Tensor, torch.Tensor]]  # (model, batch, *, temperature) -> logprobs, mask (B, T)


@dataclass
class Prefix:
    """Prompts that have been run. Row i of everything belongs to prompt i."""

    pairs: list[Pair]  # of each layer, (P, heads, L, d)
    mask: torch.Tensor  # (P, L) 1 where a cached position holds a token
    lengths: torch.Tensor  # (P,) tokens of each prompt
    last_hidden: torch.Tensor  # (P, H) from which the first token of a completion is predicted

    def select(self, prompts: torch.Tensor) -> Prefix:
        """The same for a list of prompt places, (B,), repeated as often as they stand there."""
        chosen = [(select_rows(keys, prompts), select_rows(values, prompts)) for keys, values in self.pairs]
        return Prefix(chosen, self.mask[prompts], self.lengths[prompts], self.last_hidden[prompts])


def shared_logprobs(model: PreTrainedModel, batch: Batch, *, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and mask, (B, T), of a batch's rows; each of its prompts is run once."""
    used = sorted({row.prompt for row in batch.rows})
    prefix = run_prompts(model, [batch.prompts[place] for place in used])
    prefix = prefix.select(torch.tensor([used.index(row.prompt) for row in batch.rows], device=model.device))
    ids, mask = padded_completions(batch.rows, device=model.device)
    hidden = prefix.last_hidden[:, None]
    if ids.shape[1] > 1:
        positions = prefix.lengths[:, None] + torch.arange(ids.shape[1] - 1, device=model.device)[None]
        seen = torch.cat([prefix.mask, mask[:, :-1]], dim=1)
        cache = Cache(layers=[SharedLayer(pair) for pair in prefix.pairs])
        own = hidden_states(model, ids[:, :-1], cache, mask=seen, positions=positions)
        hidden = torch.cat([hidden, own], dim=1)
    return _at_completions(model, hidden, ids, mask, batch.rows, temperature=temperature), mask


def plain_logprobs(model: PreTrainedModel, batch: Batch, *, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with prompt and completion of every row run whole, prompts left-padded."""
    prompts = [list(batch.prompts[row.prompt]) for row in batch.rows]
    width = max(len(prompt) for prompt in prompts)
    ids, mask = padded_completions(batch.rows, device=model.device)
    filling = [[0] * (width - len(prompt)) for prompt in prompts]
    opening = torch.tensor([gap + prompt for gap, prompt in zip(filling, prompts, strict=True)], device=model.device)
    seen = torch.tensor([gap + [1] * len(prompt) for gap, prompt in zip(filling, prompts, strict=True)])
    seen = torch.cat([seen.to(model.device), mask[:, :-1]], dim=1)
    hidden = model.base_model(
        input_ids=torch.cat([opening, ids[:, :-1]], dim=1),
        attention_mask=seen,
        position_ids=(seen.cumsum(1) - 1).clamp(min=0),
        use_cache=False,
    ).last_hidden_state
    return _at_completions(model, hidden[:, width - 1 :], ids, mask, batch.rows, temperature=temperature), mask


def padded_completions(rows: Sequence[Row], *, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, (B, T), right-padded. 0 is as good as any id under a mask of 0: no id is told by its value."""
    width = max(len(row.token_ids) for row in rows)
    ids = [row.token_ids + [0] * (width - len(row.token_ids)) for row in rows]
    mask = [[1] * len(row.token_ids) + [0] * (width - len(row.token_ids)) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _at_completions(
    model: PreTrainedModel,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    mask: torch.Tensor,
    rows: Sequence[Row],
    *,
    temperature: float,
) -> torch.Tensor:
    """Logprobs (B, T) from hidden (B, T, H), 0 at padding, for which no logits are made."""
    real = mask.bool()
    kept = None
    if rows[0].kept is not None:  # one sampler drew them all
        kept = [one for row in rows for one in row.kept or ()]
    chosen = selected_logprobs(model, hidden[real], ids[real], temperature=temperature, kept=kept)
    return torch.zeros(ids.shape, dtype=chosen.dtype, device=ids.device).masked_scatter(real, chosen)


def run_prompts(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> Prefix:
    """Run P prompts (left-padded past what they share) and keep their keys and values."""
    device = model.device
    cache = empty_cache(model)
    shared = 0 if has_windows(model) else shared_prefix_length(prompts)  # padding would stand within a window
    if shared:
        hidden_states(model, torch.tensor([list(prompts[0][:shared])], device=device), cache)
        everyone = torch.zeros(len(prompts), dtype=torch.long, device=device)
        before = [(select_rows(keys, everyone), select_rows(values, everyone)) for keys, values in pairs(cache)]
        cache = Cache(layers=[SharedLayer(pair) for pair in before])
    rest = [list(prompt[shared:]) for prompt in prompts]
    width = max(len(one) for one in rest)
    ids = torch.tensor([[0] * (width - len(one)) + one for one in rest], device=device)
    own = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in rest], device=device)
    mask = torch.cat([torch.ones(len(rest), shared, dtype=own.dtype, device=device), own], dim=1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, shared:]
    hidden = hidden_states(model, ids, cache, mask=mask, positions=positions)
    return Prefix(pairs(cache), mask, mask.sum(1), hidden[:, -1])


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
    cache: Cache,
    *,
    mask: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Last hidden states (B, T, H) of ids (B, T) on top of a cache, which takes them in.

    mask (B, cached + T) and positions (B, T) are always passed where rows are padded: a model that is left to guess
    them gets left padding wrong.
    """
    output = model.base_model(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True)
    hidden: torch.Tensor = output.last_hidden_state
    return hidden


def has_windows(model: PreTrainedModel) -> bool:
    """Whether some layer sees only the last positions."""
    return any(isinstance(layer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=model.config).layers)


def choose_forward(model: PreTrainedModel) -> tuple[Logprobs, str | None]:
    """The pass for this model, and a note where it is the plain one.

    Keys and values can be shared where each layer is attention over all positions or over a window of them.
    """
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    foreign = kinds - {DynamicLayer, DynamicSlidingWindowLayer}
    if not foreign:
        return shared_logprobs, None
    names = ", ".join(sorted(kind.__name__ for kind in foreign))
    return plain_logprobs, f"plain forward passes, every row whole: this model's layers keep more than keys ({names})"
