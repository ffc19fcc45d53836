"""Hallmark's rewards on length alone, in tokens as the client counted them, or in characters where the name says so."""

from __future__ import annotations

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item


@reward("length.at_most", version=1, range=(0.0, 1.0), needs=("token_count",), source="Hallmark")
def at_most_v1(item: Item, *, tokens: int = 1024) -> float:
    """1.0 for at most `tokens` tokens, else 0.0."""
    return 1.0 if shapes.token_count_v1(item) <= tokens else 0.0


@reward("length.over", version=1, range=(-1.0, 0.0), needs=("token_count",), source="Hallmark")
def over_v1(item: Item, *, free: int = 512, most: int = 1024) -> float:
    """0.0 up to `free` tokens, then down a line to -1.0 at `most`, and -1.0 beyond."""
    if not 0 <= free < most:
        raise ValueError(f"free is {free}; it wants to be at least 0 and below most, {most}")
    return -min(1.0, max(0, shapes.token_count_v1(item) - free) / (most - free)) + 0.0  # no negative zero


@reward("length.near", version=1, range=(0.0, 1.0), needs=("token_count",), source="Hallmark")
def near_v1(item: Item, *, tokens: int = 512) -> float:
    """1.0 at `tokens` tokens, down a line on both sides to 0.0 at none and at twice as many."""
    if tokens < 1:
        raise ValueError(f"tokens is {tokens}; it wants to be at least 1")
    return max(0.0, 1.0 - abs(shapes.token_count_v1(item) - tokens) / tokens)


@reward("length.characters_at_most", version=1, range=(0.0, 1.0), source="Hallmark")
def characters_at_most_v1(item: Item, *, characters: int = 4096) -> float:
    """1.0 for at most `characters` code points, else 0.0."""
    return 1.0 if len(item.completion) <= characters else 0.0
