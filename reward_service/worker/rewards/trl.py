"""The rewards of TRL (huggingface/trl, Apache-2.0).

Source: trl/rewards/ of release 1.16.0. Version 1 pays what TRL pays outside the main thread, where its timers are off;
a gold that cannot be read is null there too. One difference: a text that math-verify could not read within TRL's timers
is cut to its end (see verify/v1/bare.py). Parameters without a default in TRL have one here.
"""

from __future__ import annotations

import math

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item, Outcome
from reward_service.worker.verify.v1 import MATH_VERIFY_0_9, bare

_SOURCE = "huggingface/trl 1.16.0 trl/rewards (Apache-2.0)"


@reward("trl.accuracy", version=1, range=(0.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def accuracy_v1(item: Item) -> Outcome:
    """1.0 when math-verify holds the first answer in LaTeX, boxed first, equal to the gold, else 0.0."""
    return _verified_v1(item.completion, gold=item.gold or "")


@reward("trl.reasoning_accuracy", version=1, range=(0.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def reasoning_accuracy_v1(item: Item, *, delimiter: str = "</think>") -> Outcome:
    """trl.accuracy on what follows the last `delimiter`; 0.0 where it is missing, whatever the gold."""
    _, ended, answer = item.completion.rpartition(delimiter)
    return _verified_v1(answer, gold=item.gold or "") if ended else Outcome(0.0)


def _verified_v1(text: str, *, gold: str) -> Outcome:
    read_gold = bare.gold_in(gold)
    answer = bare.answer_in(text, bare.TRL, first_match=True)
    return Outcome(float(bare.verdict(read_gold, answer)), found=bare.found(answer))


@reward("trl.think_format", version=1, range=(0.0, 1.0), source=_SOURCE)
def think_format_v1(item: Item) -> float:
    """1.0 when the text starts with `<think>`, the only one, and `</think>` follows somewhere; else 0.0."""
    rest = item.completion.removeprefix("<think>")
    return 1.0 if len(rest) < len(item.completion) and "<think>" not in rest and "</think>" in rest else 0.0


@reward("trl.cosine", version=1, range=(-1.0, 1.0), needs=("gold", "token_count"), source=_SOURCE, lock=MATH_VERIFY_0_9)
def cosine_v1(
    item: Item,
    *,
    max_len: int = 1024,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
) -> Outcome:
    """A half cosine over `max_len` tokens: correct 1.0 down to 0.5, wrong -1.0 up to -0.5; beyond, the long end."""
    outcome = _verified_v1(item.completion, gold=item.gold or "")
    low, high = (min_value_correct, max_value_correct) if outcome.value else (max_value_wrong, min_value_wrong)
    cosine = math.cos(min(shapes.token_count_v1(item) / max_len, 1.0) * math.pi)
    return Outcome(low + 0.5 * (high - low) * (1.0 + cosine), found=outcome.found)


@reward("trl.repetition", version=1, range=(-1.0, 0.0), needs=("token_ids",), source=_SOURCE)
def repetition_v1(item: Item, *, ngram_size: int = 3, max_penalty: float = -1.0) -> float:
    """The share of repeated n-grams of token ids, times `max_penalty`; 0.0 for fewer than n tokens."""
    if item.token_ids is None:
        raise ValueError("trl.repetition needs token_ids")
    return shapes.repetition_penalty_v1(item.token_ids, ngram=ngram_size, max_penalty=max_penalty)


@reward("trl.soft_overlong", version=1, range=(-1.0, 0.0), needs=("token_count",), source=_SOURCE)
def soft_overlong_v1(item: Item, *, max_completion_len: int = 20480, soft_punish_cache: int = 4096) -> float:
    """0.0 up to the soft limit, then down a line to -1.0 at `max_completion_len` tokens, and -1.0 beyond."""
    return shapes.soft_overlong_v1(shapes.token_count_v1(item), most=max_completion_len, cache=soft_punish_cache)
