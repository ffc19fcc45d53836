"""Forward passes: prompts once and completions on top of them, or every row whole (`ways` says which for a model).

The prompt of a group is run once and its keys and values are shared by the group's completions, gradients included;
what all prompts begin with (a system message, worked examples) is run once for all of them. Attention in blocks takes
them as they are; for PyTorch's they are repeated for each row, and a mask is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import Cache, PreTrainedModel

from grpo_client.backends.torch.attention import has_windows, segments, shares_in_blocks
from grpo_client.backends.torch.cache import Pair, SegmentsLayer, SharedLayer, pairs, repeated
from grpo_client.backends.torch.head import selected_logprobs
from grpo_client.backends.torch.own import body
from grpo_client.learning.batch import Batch, CompletionRow

_SHARING_PAYS = 128  # tokens saved from which a pass of their own, which also makes gradients of all weights, pays

Logprobs = Callable[..., tuple[torch.Tensor, torch.Tensor]]  # (model, batch, *, temperature) -> logprobs, mask (B, T)


@dataclass(frozen=True)
class Prefix:
    """Prompts that have been run. CompletionRow i of everything belongs to prompt i; padding stands on the left."""

    pairs: list[Pair]  # of each layer, (P, heads, L, d)
    mask: torch.Tensor  # (P, L) 1 where a cached position holds a token
    last_hidden: torch.Tensor  # (P, H) from which the first token of a completion is predicted

    @property
    def lengths(self) -> torch.Tensor:
        """(P,) tokens of each prompt."""
        return self.mask.sum(1)


def shared_logprobs(model: PreTrainedModel, batch: Batch, *, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and mask, (B, T), of a batch's rows; each of its prompts is run once."""
    used = sorted({row.prompt for row in batch.rows})
    prefix = run_prompts(model, [batch.prompts[place] for place in used])
    order = sorted(range(len(batch.rows)), key=lambda place: batch.rows[place].prompt)  # a group's rows side by side
    rows = [batch.rows[place] for place in order]
    prompt_of = torch.tensor([used.index(row.prompt) for row in rows], device=model.device)
    ids, mask = padded_completions(rows, device=model.device)
    hidden = prefix.last_hidden[prompt_of, None]
    if ids.shape[1] > 1:
        own, _ = run_on_top(model, ids[:, :-1], mask[:, :-1], prefix, prompt_of)
        hidden = torch.cat([hidden, own], dim=1)
    logprobs = _at_completions(model, hidden, ids, mask, rows, temperature=temperature)
    back = torch.tensor(order, device=model.device).argsort()
    return logprobs[back], mask[back]


def whole_logprobs(model: PreTrainedModel, batch: Batch, *, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with every row run whole, as `model(ids)` runs it: no cache, no mask, no padding.

    Rows of one length share a pass, so that what depends on a pass's length (positions, in some models) is their own.
    """
    ids, mask = padded_completions(batch.rows, device=model.device)
    hidden: dict[int, torch.Tensor] = {}
    lengths = [len(batch.prompts[row.prompt]) + len(row.token_ids) for row in batch.rows]
    for length in sorted(set(lengths)):
        places = [place for place, one in enumerate(lengths) if one == length]
        rows = [batch.rows[place] for place in places]
        whole = torch.tensor([[*batch.prompts[row.prompt], *row.token_ids] for row in rows], device=model.device)
        states = body(model)(input_ids=whole, use_cache=False).last_hidden_state
        hidden |= {
            place: one[len(batch.prompts[row.prompt]) - 1 : -1]
            for place, row, one in zip(places, rows, states, strict=True)
        }
    padded = torch.nn.utils.rnn.pad_sequence([hidden[place] for place in range(len(lengths))], batch_first=True)
    return _at_completions(model, padded, ids, mask, batch.rows, temperature=temperature), mask


def padded_completions(rows: Sequence[CompletionRow], *, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
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
    rows: Sequence[CompletionRow],
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
    """Run P prompts and keep their keys and values."""
    shared = 0 if has_windows(model) else shared_prefix_length(prompts)  # padding would stand within a window
    beginning = _run_rows(model, [prompts[0][:shared]], None) if shared else None
    return _run_rows(model, [prompt[shared:] for prompt in prompts], beginning)


def _run_rows(model: PreTrainedModel, rows: Sequence[Sequence[int]], beginning: Prefix | None) -> Prefix:
    """Run rows, left-padded, on top of what all of them begin with."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=model.device)
    own = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
    everyone = torch.zeros(len(rows), dtype=torch.long, device=model.device)
    hidden, kept = run_on_top(model, ids, own, beginning, everyone)
    if beginning is None:
        return Prefix(kept, own, hidden[:, -1])
    mask = torch.cat([beginning.mask[everyone], own], dim=1)
    padding_first = mask.argsort(dim=1, stable=True)
    joined = [
        (_joined(before[0], after[0], padding_first), _joined(before[1], after[1], padding_first))
        for before, after in zip((repeated(pair, everyone) for pair in beginning.pairs), kept, strict=True)
    ]
    return Prefix(joined, mask.gather(1, padding_first), hidden[:, -1])


def _joined(before: torch.Tensor, after: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """(P, heads, L + T, d), its positions in an order (P, L + T)."""
    both = torch.cat([before, after], dim=2)
    return both.gather(2, order[:, None, :, None].expand_as(both))


def run_on_top(
    model: PreTrainedModel, ids: torch.Tensor, own: torch.Tensor, prefix: Prefix | None, prompt_of: torch.Tensor
) -> tuple[torch.Tensor, list[Pair]]:
    """Last hidden states (B, T, H) of rows of ids (B, T) with mask `own`, and their own keys and values by layer.

    prompt_of (B,) says which of the prefix's prompts each row goes on from; rows of a prompt stand side by side.
    """
    before = prefix.pairs if prefix is not None else [None] * model.config.get_text_config().num_hidden_layers
    mask = prefix.mask if prefix is not None else own[:1, :0]
    passed = mask[prompt_of]
    positions = (passed.sum(1, keepdim=True) + own.cumsum(1) - 1).clamp(min=0)
    if shares_in_blocks(model):
        parts = segments(own, prompt_of, mask)
        cache = Cache(layers=[SegmentsLayer(pair, parts) for pair in before])
        return hidden_states(model, ids, cache, mask=None, positions=positions), pairs(cache)
    cache = Cache(layers=[SharedLayer(None if pair is None else repeated(pair, prompt_of)) for pair in before])
    hidden = hidden_states(model, ids, cache, mask=torch.cat([passed, own], dim=1), positions=positions)
    width = passed.shape[1]
    return hidden, [(keys[:, :, width:], values[:, :, width:]) for keys, values in pairs(cache)]


def shared_prefix_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many first tokens all prompts share, leaving each at least one of its own; 0 where sharing would not pay."""
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))
    limit = min(len(prompt) for prompt in prompts) - 1
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), limit)
    shared = min(shared, limit)
    return shared if shared * (len(prompts) - 1) >= _SHARING_PAYS else 0


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
    output = body(model)(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True)
    hidden: torch.Tensor = output.last_hidden_state
    return hidden
