"""Attention on a CPU in blocks of oneDNN products: over a prompt that many rows share, and over each row itself.

Exact, in float32, and linear in memory as flash attention is (Dao 2023, arXiv 2307.08691): scores are made a block at a
time, thrown away, and made again in the backward pass. Against PyTorch's own, a prompt's keys and values are repeated
neither for its rows nor for the heads that share them, and no mask is added where a slice will do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicSlidingWindowLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from grpo_client.backends.torch.matmul import product, transposed_product, usable

_NAME = "hallmark_blocks"
_QUERIES = 128  # positions of a row in a block
_SCORES = 1 << 20  # in a block: 4 MiB, which a core's cache holds in good part
_NOT_KNOWN = ("softcap", "position_bias", "s_aux", "sliding_window")  # what changes attention in some models
_ROW_BY_ROW = 1 << 15  # scores of a row from which a product of its own is faster than a batched one


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring rows of a pass that see the same prompt, and how much padding stands left of it and of them."""

    rows: slice
    prompt: int
    prompt_padding: int
    padding: int


@dataclass(frozen=True, slots=True)
class SharedStates:
    """Keys, or values, of prompts (P, heads, L, d), L = 0 for none, and of the rows themselves (B, heads, T, d)."""

    prompts: torch.Tensor
    own: torch.Tensor
    segments: Sequence[Segment]


def segments(own: torch.Tensor, prompt_of: torch.Tensor, prompts: torch.Tensor) -> list[Segment]:
    """Of rows with mask `own` (B, T), each on top of a prompt, (B,), of those with mask `prompts` (P, L)."""
    padding, of_prompts = _left_padding(own), _left_padding(prompts)
    found = []
    kinds = enumerate(zip(prompt_of.tolist(), padding, strict=True))
    for (prompt, left), some in itertools.groupby(kinds, key=lambda one: one[1]):
        rows = [row for row, _ in some]
        found.append(Segment(slice(rows[0], rows[-1] + 1), prompt, of_prompts[prompt], left))
    return found


def _left_padding(mask: torch.Tensor) -> list[int]:
    lengths: list[int] = (mask.cumsum(1) == 0).sum(1).tolist()
    return lengths


def use_blocks(model: PreTrainedModel) -> None:
    """Have a model that would use PyTorch's attention, over all positions, ask for `attention`."""
    settable = model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation()
    if settable and not has_windows(model):
        AttentionInterface.register(_NAME, attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def use_plain(model: PreTrainedModel) -> None:
    """Have it ask for PyTorch's attention again."""
    model.set_attn_implementation("sdpa")


def shares_in_blocks(model: PreTrainedModel) -> bool:
    """Whether its attention takes `SharedStates`: it was made to, and computes in float32 on a CPU."""
    embedding: Any = model.get_input_embeddings()
    return model.config._attn_implementation == _NAME and usable(embedding.weight)


def has_windows(model: PreTrainedModel) -> bool:
    """Whether some layer sees only the last positions."""
    return any(isinstance(layer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=model.config).layers)


def attention(
    module: torch.nn.Module, query: torch.Tensor, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    """What transformers' layers call, (B, heads, T, d) -> (B, T, heads, d): PyTorch's, but for `SharedStates`."""
    if not isinstance(key, SharedStates):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    assert attention_mask is None, "shared states say by themselves who sees what"
    foreign = [name for name in _NOT_KNOWN if options.get(name) is not None]
    if foreign:
        raise ValueError(f"attention in blocks knows nothing of {', '.join(foreign)}")
    scale = query.shape[-1] ** -0.5 if options.get("scaling") is None else options["scaling"]
    arrays = (query, key.own, value.own, key.prompts, value.prompts)
    out: torch.Tensor = BlockAttention.apply(*arrays, key.segments, scale)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2).contiguous(), None


class BlockAttention(torch.autograd.Function):
    """Causal attention of queries (B, H, T, d) over own keys and values (B, h, T, d) and prompts' (P, h, L, d).

    H is a multiple of h: neighbouring query heads share one of keys. Values may be of another size than keys. What
    stands at padding comes out as 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        prompt_k: torch.Tensor,
        prompt_v: torch.Tensor,
        segments: Sequence[Segment],
        scale: float,
    ) -> torch.Tensor:
        """(B, H, T, size of a value)."""
        q, k, v, prompt_k, prompt_v = (one.contiguous() for one in (q, k, v, prompt_k, prompt_v))  # oneDNN crawls else
        out, logsums = q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(q.shape[:3])
        for block in _blocks(q, k, prompt_k, segments):
            own, far, queries = _scores(block, q, k, prompt_k, scale)
            flat = own.view(len(queries), -1)
            tops = torch.maximum(flat.amax(-1), far.amax(-1)) if far.numel() else flat.amax(-1)
            sums = flat.sub_(tops[:, None]).exp_().sum(-1)
            mixed = _times(own, block.of_keys(v).transpose(1, 2)).view(len(queries), -1)
            if far.numel():
                sums += far.sub_(tops[:, None]).exp_().sum(-1)
                mixed += product(far, block.of_prompt(prompt_v).T)
            _write(block.of_queries(out), mixed.div_(sums[:, None]))
            _write(block.of_queries(logsums), sums.log_().add_(tops))
        ctx.save_for_backward(q, k, v, prompt_k, prompt_v, out, logsums)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Of the five arrays. Through the softmax P of scores S: dS = P * (dP - rowsum(dO * O))."""
        q, k, v, prompt_k, prompt_v, out, logsums = ctx.saved_tensors
        into_q, into_k, into_v, into_prompt_k, into_prompt_v = (
            torch.zeros_like(one) for one in (q, k, v, prompt_k, prompt_v)
        )
        for block in _blocks(q, k, prompt_k, ctx.segments):
            own, far, queries = _scores(block, q, k, prompt_k, ctx.scale)
            gradient = block.of_queries(gradients[0])
            mean = (gradient * block.of_queries(out)).sum(-1).view(-1, 1)
            logsum = block.of_queries(logsums).reshape(-1, 1)
            gradient = gradient.reshape(len(queries), -1)
            by_row = own.shape[0], own.shape[1], -1
            own.view(len(queries), -1).sub_(logsum).exp_()
            _add_transposed_times(block.of_keys(into_v), own, gradient.view(by_row))
            own.mul_(_times(gradient.view(by_row), block.of_keys(v)).sub_(mean.view(by_row)))
            _add_transposed_times(block.of_keys(into_k), own, queries.view(by_row))
            learnt = _times(own, block.of_keys(k).transpose(1, 2)).view(queries.shape)
            if far.numel():
                far.sub_(logsum).exp_()
                block.of_prompt(into_prompt_v).add_(transposed_product(far, gradient))
                far.mul_(product(gradient, block.of_prompt(prompt_v)).sub_(mean))
                block.of_prompt(into_prompt_k).add_(transposed_product(far, queries))
                learnt += product(far, block.of_prompt(prompt_k).T)
            _write(block.of_queries(into_q), learnt.mul_(ctx.scale))
        return into_q, into_k, into_v, into_prompt_k, into_prompt_v, None, None


@dataclass(frozen=True, slots=True)
class _Block:
    """Queries of some rows and of the heads that share one of keys, and all that they see."""

    rows: slice
    heads: slice
    queries: slice
    key_head: int
    keys: slice  # own ones, which end where the queries do
    prompt: int
    prompt_keys: slice

    def of_queries(self, x: torch.Tensor) -> torch.Tensor:
        """(c, shared heads, n, ...) from (B, H, T, ...)."""
        return x[self.rows, self.heads, self.queries]

    def of_keys(self, x: torch.Tensor) -> torch.Tensor:
        """(c, m, d) from (B, h, T, d)."""
        return x[self.rows, self.key_head, self.keys]

    def of_prompt(self, x: torch.Tensor) -> torch.Tensor:
        """(L, d) from (P, h, L, d)."""
        return x[self.prompt, self.key_head, self.prompt_keys]


def _blocks(q: torch.Tensor, k: torch.Tensor, prompt_k: torch.Tensor, segments: Sequence[Segment]) -> Iterator[_Block]:
    shared = q.shape[1] // k.shape[1]
    for one in segments:
        for start in range(one.padding, q.shape[2], _QUERIES):
            end = min(start + _QUERIES, q.shape[2])
            seen = prompt_k.shape[2] - one.prompt_padding + end - one.padding
            rows = max(1, _SCORES // (shared * (end - start) * seen))
            for first in range(one.rows.start, one.rows.stop, rows):
                for head in range(k.shape[1]):
                    yield _Block(
                        rows=slice(first, min(first + rows, one.rows.stop)),
                        heads=slice(head * shared, (head + 1) * shared),
                        queries=slice(start, end),
                        key_head=head,
                        keys=slice(one.padding, end),
                        prompt=one.prompt,
                        prompt_keys=slice(one.prompt_padding, None),
                    )


def _scores(
    block: _Block, q: torch.Tensor, k: torch.Tensor, prompt_k: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores over own keys (c, shared * n, m) and over the prompt's (c * shared * n, L), and the scaled queries."""
    some = block.of_queries(q) * scale
    c, shared, n, size = some.shape
    queries = some.reshape(-1, size)
    own = _times(queries.view(c, shared * n, size), block.of_keys(k))
    own.view(c, shared, n, -1)[..., -n:].masked_fill_(_future(n), -torch.inf)
    prompt = block.of_prompt(prompt_k)
    return own, product(queries, prompt) if len(prompt) else queries[:, :0], queries


@lru_cache(maxsize=16)
def _future(n: int) -> torch.Tensor:
    """Which of n own keys (n, n) a query is not to see yet."""
    return torch.ones(n, n, dtype=torch.bool).triu_(1)


def _write(place: torch.Tensor, values: torch.Tensor) -> None:
    place.copy_(values.view(place.shape))


def _times(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x (c, M, K) times y (c, N, K) transposed: (c, M, N)."""
    if x.shape[1] * max(x.shape[2], y.shape[1]) < _ROW_BY_ROW:
        return torch.bmm(x, y.transpose(1, 2))
    return torch.stack([product(a, b) for a, b in zip(x, y, strict=True)])


def _add_transposed_times(place: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    """Add x (c, M, K) transposed times y (c, M, N) to a place (c, K, N)."""
    if x.shape[1] * x.shape[2] < _ROW_BY_ROW:
        place.add_(torch.bmm(x.transpose(1, 2), y))
        return
    for one, a, b in zip(place, x, y, strict=True):
        one.add_(transposed_product(a, b))
