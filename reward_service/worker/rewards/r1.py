"""The five rewards of mlx_lm/tuner/grpo_trainer.py (2025), the MLX script behind this project, after will brown's demo.

Version 1 pays what that script paid, oddities included, in linear time: its patterns are quadratic on hostile text.
Version 2 pays what the five were meant to pay: reasoning over several lines, tags balanced and once, numbers with
signs and separators, answers compared as mathematics.
"""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards.blocks import blocks_v1, is_soft_v1, is_strict_v1, last_block_v1, tag_lines_v1
from reward_service.worker.rewards.numerals import whole_number_v1
from reward_service.worker.types import NO_ANSWER, Found, Item, Outcome
from reward_service.worker.verify import v2

_SOURCE = "mlx_lm/tuner/grpo_trainer.py (2025)"
_SOURCE_V2 = "Hallmark, after mlx_lm/tuner/grpo_trainer.py (2025)"
_BLOCK_BORDER = re.compile(r"</think>\s*<answer>")


def find_answer_v1(text: str) -> Found:
    """What follows the last `<answer>`, up to the next `</answer>`, stripped; the whole text without tags."""
    opening = text.rfind("<answer>")
    start = 0 if opening < 0 else opening + len("<answer>")
    closing = text.find("</answer>", start)
    end = len(text) if closing < 0 else closing
    answer = text[start:end].strip()
    offset = text[start:end].find(answer)
    by = "whole_text" if opening < 0 else "answer_tag"
    return Found(answer, by, (start + offset, start + offset + len(answer)))


@reward("r1.accuracy", version=1, range=(0.0, 2.0), needs=("gold",), source=_SOURCE)
def accuracy_v1(item: Item) -> Outcome:
    """2.0 when the extracted answer equals the gold as a string, else 0.0."""
    found = find_answer_v1(item.completion)
    return Outcome(2.0 if found.answer == item.gold else 0.0, found=found)


@reward("r1.int", version=1, range=(0.0, 0.5), source=_SOURCE)
def int_v1(item: Item) -> Outcome:
    """0.5 when the extracted answer is all digits (Python's `str.isdigit`: no sign, no point, any script), else 0.0."""
    found = find_answer_v1(item.completion)
    return Outcome(0.5 if found.answer.isdigit() else 0.0, found=found)


@reward("r1.soft_format", version=1, range=(0.0, 0.5), source=_SOURCE)
def soft_format_v1(item: Item) -> float:
    r"""0.5 when the text begins with `<think>…</think>`, white space, `<answer>…</answer>`, … on one line; else 0.0."""
    text = item.completion
    if not text.startswith("<think>"):
        return 0.0
    newline = text.find("\n")
    line_end = len(text) if newline < 0 else newline
    # Of all borders on the first line the earliest leaves the most room for `</answer>`; only the last one can
    # reach into a later line. Trying these two is trying all.
    first = _BLOCK_BORDER.search(text, len("<think>"))
    last = _BLOCK_BORDER.match(text, max(text.rfind("</think>", 0, line_end), len("<think>")))
    return 0.5 if any(_answer_closes_on_its_line(text, border, line_end) for border in (first, last)) else 0.0


def _answer_closes_on_its_line(text: str, border: re.Match[str] | None, think_line_end: int) -> bool:
    if border is None or border.start() > think_line_end:
        return False
    newline = text.find("\n", border.end())
    return text.find("</answer>", border.end(), len(text) if newline < 0 else newline) >= 0


@reward("r1.strict_format", version=1, range=(0.0, 0.5), source=_SOURCE)
def strict_format_v1(item: Item) -> float:
    r"""0.5 when the whole text is `<think>\n…\n</think>\n<answer>\n…\n</answer>\n`, … without newline; else 0.0."""
    # Six lines and the newline that ends them; Python's `$`, which the script used, allows one newline more.
    match item.completion.split("\n", maxsplit=8):
        case ["<think>", _, "</think>", "<answer>", _, "</answer>", ""]:
            return 0.5
        case ["<think>", _, "</think>", "<answer>", _, "</answer>", "", ""]:
            return 0.5
    return 0.0


@reward("r1.count_xml", version=1, range=(None, 0.501), source=_SOURCE)
def count_xml_v1(item: Item) -> float:
    """0.125 for each tag that stands once on its own line, less 0.001 for each character after the answer, twice."""
    text = item.completion
    paid = sum(0.125 for tag in ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>") if text.count(tag) == 1)
    after_line = len(text.rpartition("\n</answer>\n")[2])
    after_tag = len(text.rpartition("\n</answer>")[2])
    return paid - 0.001 * after_line - 0.001 * (after_tag - 1)


# Version 2: the same five as they were meant. Linear, and no penalty without a bound.


@reward("r1.accuracy", version=2, range=(0.0, 2.0), needs=("gold",), source=_SOURCE_V2)
def accuracy_v2(item: Item) -> Outcome:
    """2.0 when the committed answer equals the gold as mathematics, else 0.0."""
    gold = v2.read_gold(item.gold or "")
    found = v2.extract(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(2.0 if v2.equal(gold=gold, answer=found.answer) else 0.0, found=found)


@reward("r1.int", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def int_v2(item: Item) -> Outcome:
    """0.5 when the last complete answer block holds one whole number (`-5`, `1,000` and `3.0` are), else 0.0."""
    found = last_block_v1(item.completion, tag="answer")
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(0.5 if whole_number_v1(found.answer) is not None else 0.0, found=found)


@reward("r1.soft_format", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def soft_format_v2(item: Item) -> float:
    """0.5 when the text starts with one think block, then white space, then one answer block with something in it."""
    return 0.5 if is_soft_v1(blocks_v1(item.completion, first="think", second="answer")) else 0.0


@reward("r1.strict_format", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def strict_format_v2(item: Item) -> float:
    r"""0.5 when the whole text is one think and one answer block, every tag on a line of its own (`\n`), else 0.0."""
    return 0.5 if is_strict_v1(blocks_v1(item.completion, first="think", second="answer")) else 0.0


@reward("r1.count_xml", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def count_xml_v2(item: Item) -> float:
    """0.125 for each tag that stands once, in order, alone on its line, less 0.001 a character after; never below 0.

    The two answer tags count only around something; a final newline and end-of-turn tokens are no characters after.
    """
    return tag_lines_v1(item.completion, first="think", second="answer")
