"""Hallmark's penalties for saying the same again: in token ids, in words, in lines. 0.0 at best, -1.0 at worst."""

from __future__ import annotations

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item


@reward("repetition.tokens", version=1, range=(-1.0, 0.0), needs=("token_ids",), source="Hallmark")
def tokens_v1(item: Item, *, ngram: int = 8) -> float:
    """Less the share of n-grams of token ids that repeat an earlier one; 0.0 for fewer than n tokens."""
    if item.token_ids is None:
        raise ValueError("repetition.tokens needs token_ids")
    return shapes.repetition_penalty_v1(item.token_ids, ngram=ngram, max_penalty=-1.0)


@reward("repetition.words", version=1, range=(-1.0, 0.0), source="Hallmark")
def words_v1(item: Item, *, ngram: int = 5) -> float:
    """Less the share of n-grams of case-folded words that repeat an earlier one; 0.0 for fewer than n words.

    Words are what white space parts, so a language written without it needs repetition.tokens.
    """
    return shapes.repetition_penalty_v1(item.completion.casefold().split(), ngram=ngram, max_penalty=-1.0)


@reward("repetition.lines", version=1, range=(-1.0, 0.0), source="Hallmark")
def lines_v1(item: Item) -> float:
    """Less the share of lines, stripped and not blank, that repeat an earlier one."""
    lines = [line.strip() for line in item.completion.splitlines()]
    return shapes.repetition_penalty_v1([line for line in lines if line], ngram=1, max_penalty=-1.0)
