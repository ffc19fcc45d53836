"""Curves and counts that rewards on length and repetition share: no reward by itself, no text rule."""

from __future__ import annotations

from collections.abc import Sequence

from reward_service.worker.types import Item, Outcome

_LONGEST_NGRAM = 64


def token_count_v1(item: Item) -> int:
    """The item's number of tokens. Raises ValueError without one: characters never stand in for tokens."""
    if item.token_count is None:
        raise ValueError("this reward needs token_count")
    return item.token_count


def repetition_penalty_v1(parts: Sequence[object], *, ngram: int, max_penalty: float) -> float:
    """The share of n-grams that repeat an earlier one, times `max_penalty`, which must not be positive."""
    if max_penalty > 0:
        raise ValueError(f"max_penalty is {max_penalty}; a penalty is not positive")
    return repeated_share_v1(parts, ngram) * max_penalty + 0.0  # no negative zero


def repeated_share_v1(parts: Sequence[object], ngram: int) -> float:
    """1 - unique n-grams / all n-grams; 0.0 for fewer than n parts. Raises ValueError unless 1 <= n <= 64."""
    if not 1 <= ngram <= _LONGEST_NGRAM:
        raise ValueError(f"n-grams of {ngram} parts; from 1 to {_LONGEST_NGRAM} are counted")
    total = len(parts) - ngram + 1
    if total < 1:
        return 0.0
    return 1 - len(set(zip(*(parts[start:] for start in range(ngram)), strict=False))) / total


def soft_overlong_v1(count: int, *, most: int, cache: int) -> float:
    """DAPO's soft punishment (equation 13): 0.0 up to `most - cache`, a line down to -1.0 at `most`, -1.0 beyond."""
    if count <= most - cache:
        return 0.0
    return (most - cache - count) / cache if count <= most else -1.0


def shorter_is_better_v1(lengths: Sequence[int], *, correct: Sequence[Outcome]) -> list[float | Outcome]:
    """Kimi k1.5's length reward: 0.5 - (length - shortest) / (longest - shortest), of a wrong one at most 0.0.

    Where correctness is null the outcome is null with the same status, and the others are measured among themselves.
    All of one length: 0.0.
    """
    known = [length for length, outcome in zip(lengths, correct, strict=True) if outcome.value is not None]
    shortest, longest = min(known, default=0), max(known, default=0)
    rewards: list[float | Outcome] = []
    for length, outcome in zip(lengths, correct, strict=True):
        if outcome.value is None:
            rewards.append(Outcome(None, outcome.status))
        elif longest == shortest:
            rewards.append(0.0)
        else:
            value = 0.5 - (length - shortest) / (longest - shortest)
            rewards.append(value if outcome.value > 0 else min(0.0, value))
    return rewards
