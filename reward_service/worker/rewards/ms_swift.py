"""The rewards of ms-swift (modelscope/ms-swift, Apache-2.0) that differ from their namesakes elsewhere.

Source: swift/rewards/orm.py of release 4.6.0. Version 1 pays what ms-swift pays, two things apart: a gold that
math-verify cannot read is a bad gold here and 0.0 there; and a text that it could not read within its timers is cut
to its end (see verify/v1/bare.py). Its repetition reward is `open_r1.repetition` to the digit. Parameters without a
default in ms-swift have one here. Left out: toolbench and math, which take other inputs.
"""

from __future__ import annotations

import math
import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item, Outcome
from reward_service.worker.verify.v1 import MATH_VERIFY_0_9, bare

_SOURCE = "modelscope/ms-swift 4.6.0 swift/rewards/orm.py (Apache-2.0)"
_BLOCK_BORDER = re.compile(r"</think>\s*<answer>")
_ACTION_BORDER = re.compile(r"</think>\s*Action:")


@reward("ms_swift.accuracy", version=1, range=(0.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def accuracy_v1(item: Item) -> Outcome:
    """1.0 when math-verify holds the first answer block, or else the first LaTeX, equal to the gold; else 0.0."""
    return _verified_v1(item)


def _verified_v1(item: Item) -> Outcome:
    gold_text = item.gold or ""
    gold_block = _first_block_v1(gold_text)
    gold = bare.gold_in(gold_text if gold_block is None else gold_block, first_match=True)
    block = _first_block_v1(item.completion)
    if block is None:
        answer = bare.answer_in(item.completion, bare.MS_SWIFT, first_match=True)
    else:
        answer = bare.answer_in(block, first_match=True)
    return Outcome(float(bare.verdict(gold, answer)), found=bare.found(answer))


def _first_block_v1(text: str) -> str | None:
    _, opened, rest = text.partition("<answer>")
    block, closed, _ = rest.partition("</answer>")
    return block.strip() if opened and closed else None


@reward("ms_swift.format", version=1, range=(0.0, 1.0), source=_SOURCE)
def format_v1(item: Item) -> float:
    """1.0 when the text is `<think>…</think>`, white space, `<answer>…</answer>` and nothing more, else 0.0."""
    text = item.completion
    border = _BLOCK_BORDER.search(text, len("<think>")) if text.startswith("<think>") else None
    # The earliest border leaves the most room for the end.
    return 1.0 if border and text.endswith("</answer>") and border.end() <= len(text) - len("</answer>") else 0.0


@reward("ms_swift.react_format", version=1, range=(0.0, 1.0), source=_SOURCE)
def react_format_v1(item: Item) -> float:
    """1.0 when the text starts with `<think>…</think>`, white space, `Action:…Action Input:`, else 0.0."""
    text = item.completion
    border = _ACTION_BORDER.search(text, len("<think>")) if text.startswith("<think>") else None
    return 1.0 if border and text.find("Action Input:", border.end()) >= 0 else 0.0


@reward(
    "ms_swift.cosine", version=1, range=(-0.5, 1.0), needs=("gold", "token_count"), source=_SOURCE, lock=MATH_VERIFY_0_9
)
def cosine_v1(
    item: Item,
    *,
    min_len_value_wrong: float = -0.5,
    max_len_value_wrong: float = 0.0,
    min_len_value_correct: float = 1.0,
    max_len_value_correct: float = 0.5,
    max_len: int = 1024,
) -> Outcome:
    """A half cosine over `max_len` tokens: correct 1.0 down to 0.5, wrong -0.5 up to 0.0; beyond, it turns back."""
    outcome = _verified_v1(item)
    if outcome.value:
        low, high = max_len_value_correct, min_len_value_correct
    else:
        low, high = max_len_value_wrong, min_len_value_wrong
    cosine = math.cos(shapes.token_count_v1(item) * math.pi / max_len)
    return Outcome(high - (high - low) * (1 - cosine) / 2, found=outcome.found)


@reward("ms_swift.soft_overlong", version=1, range=(None, 0.0), needs=("token_count",), source=_SOURCE)
def soft_overlong_v1(item: Item, *, soft_max_length: int = 20480, soft_cache_length: int = 4096) -> float:
    """0.0 up to `soft_max_length - soft_cache_length` tokens, then down a line without end."""
    exceeding = shapes.token_count_v1(item) - (soft_max_length - soft_cache_length)
    return min(-exceeding / soft_cache_length, 0.0)
