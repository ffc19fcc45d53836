"""Keys and values of earlier positions, as transformers' attention asks for them through its `Cache`.

All kinds hold all positions, also for layers with a sliding window: their mask cuts, by distance in the cache, so no
padding may stand between two tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from grpo_client.backends.torch.attention import Segment, SharedStates

_ROOM = 64  # positions that are allocated at a time

Pair = tuple[torch.Tensor, torch.Tensor]


class SharedLayer(CacheLayerMixin):
    """What earlier passes left, (B, heads, L, d), read by one pass that adds its own.

    Nothing is overwritten: gradients flow into the earlier passes, and a pass may run twice (checkpointing).
    """

    is_sliding = False

    def __init__(self, before: Pair | None = None) -> None:
        super().__init__()
        self.before = before
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to set up."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        """Earlier and new keys and values."""
        if self.before is not None:
            key_states = torch.cat([self.before[0], key_states], dim=-2)
            value_states = torch.cat([self.before[1], value_states], dim=-2)
        self.keys, self.values = key_states, value_states
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Positions before this pass."""
        return 0 if self.before is None else self.before[0].shape[-2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a pass over `query_length` tokens sees."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """No limit."""
        return -1


class SegmentsLayer(SharedLayer):
    """The same for attention in blocks: `before` is that of prompts, (P, heads, L, d), not repeated for the rows.

    What `update` returns goes to the attention function as it is.
    """

    def __init__(self, before: Pair | None, segments: Sequence[Segment]) -> None:
        super().__init__(before)
        self._segments = segments

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Earlier and new keys and values, apart."""
        self.keys, self.values = key_states, value_states
        keys, values = self.before or (key_states[:1, :, :0].detach(), value_states[:1, :, :0].detach())
        return SharedStates(keys, key_states, self._segments), SharedStates(values, value_states, self._segments)

    def get_seq_length(self) -> int:
        """None that a mask would have to tell apart."""
        return 0


class RoomLayer(SharedLayer):
    """With room for more, for sampling: a step writes its position in place and reads a view. No gradients."""

    def __init__(self, before: Pair) -> None:
        super().__init__()
        self.length = before[0].shape[-2]
        self.keys, self.values = (_with_room(one) for one in before)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Pair:
        """All keys and values so far."""
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self.keys, self.values = _with_room(self.keys), _with_room(self.values)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Positions written."""
        return self.length


def _with_room(states: torch.Tensor) -> torch.Tensor:
    rows, heads, length, size = states.shape
    roomy = states.new_empty(rows, heads, length + _ROOM, size)
    roomy[:, :, :length] = states
    return roomy


def roomy_cache(pairs: list[Pair]) -> Cache:
    """For sampling on top of `pairs`, which is emptied on the way, so that no layer is held twice."""
    return Cache(layers=[RoomLayer(pairs.pop(0)) for _ in range(len(pairs))])


def pairs(cache: Cache) -> list[Pair]:
    """Each layer's keys and values as they are now, (B, heads, L, d)."""
    return [_pair(layer) for layer in cache.layers]


def _pair(layer: Any) -> Pair:
    if isinstance(layer, RoomLayer):
        return layer.keys[:, :, : layer.length], layer.values[:, :, : layer.length]  # type: ignore[index]
    return layer.keys, layer.values


def repeated(pair: Pair, places: torch.Tensor) -> Pair:
    """Keys and values of prompts, (P, ...), by place, (B,), as often as it is named: a view where there is but one."""
    if len(pair[0]) == 1:
        return pair[0].expand(len(places), -1, -1, -1), pair[1].expand(len(places), -1, -1, -1)
    return pair[0].index_select(0, places), pair[1].index_select(0, places)
