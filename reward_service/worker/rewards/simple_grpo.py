"""The two rewards of simple_GRPO's grpo.py (lsdefine/simple_GRPO, 2025)."""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards.blocks import blocks_v1, is_soft_v1, without_end_of_turn_v1
from reward_service.worker.types import NO_ANSWER, Found, Item, Outcome
from reward_service.worker.verify import v2
from reward_service.worker.verify.v1 import MATH_VERIFY_0_9, equal_plain_numbers

_SOURCE = "lsdefine/simple_GRPO grpo.py (2025)"
_SOURCE_V2 = "Hallmark, after lsdefine/simple_GRPO grpo.py (2025)"
_NUMBER = re.compile(r"\d+\.\d+|\d+/\d+|\d+")


@reward("simple_grpo.correct", version=1, range=(-1.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def correct_v1(item: Item) -> Outcome:
    """1.0 when the last number of the text equals the gold (math-verify on plain numbers), else -1.0."""
    last = None
    for last in _NUMBER.finditer(item.completion):
        pass
    answer = last.group() if last else ""
    # Read the gold first: a bad gold is the data set's fault whatever the completion holds.
    equal = equal_plain_numbers(gold=item.gold or "", answer=answer)
    if last is None:
        return Outcome(-1.0, "no_answer")
    return Outcome(1.0 if equal else -1.0, found=Found(answer, "last_number", last.span()))


@reward("simple_grpo.format", version=1, range=(-1.0, 1.25), source=_SOURCE)
def format_v1(item: Item) -> float:
    """1.25 when the whole text is `<think>…</think><answer>…</answer>`, nothing between the blocks; else -1.0."""
    # Python's `$`, which the script used, allows one newline at the end.
    text = item.completion.removesuffix("\n")
    border = text.find("</think><answer>", len("<think>"))
    last_tag = len(text) - len("</answer>")
    whole = text.startswith("<think>") and text.endswith("</answer>")
    return 1.25 if whole and border >= 0 and border + len("</think><answer>") <= last_tag else -1.0


# Version 2: the same two as they were meant.


@reward("simple_grpo.correct", version=2, range=(-1.0, 1.0), needs=("gold",), source=_SOURCE_V2)
def correct_v2(item: Item) -> Outcome:
    """1.0 when the committed answer equals the gold as mathematics, else -1.0."""
    gold = v2.read_gold(item.gold or "")
    found = v2.extract(item.completion)
    if found is None:
        return Outcome(-1.0, NO_ANSWER)
    return Outcome(1.0 if v2.equal(gold=gold, answer=found.answer) else -1.0, found=found)


@reward("simple_grpo.format", version=2, range=(-1.0, 1.25), source=_SOURCE_V2)
def format_v2(item: Item) -> float:
    """1.25 for one think and one answer block and nothing else but white space and end-of-turn tokens; else -1.0."""
    blocks = blocks_v1(item.completion, first="think", second="answer")
    whole = blocks is not None and is_soft_v1(blocks) and not without_end_of_turn_v1(blocks.after)
    return 1.25 if whole else -1.0
