"""The five rewards of will brown's GRPO demo, which most GRPO scripts copy.

Source: gist willccbb/4676755236bb08cab5f4e54a0475d6fb, grpo_demo.py (2025-01-25), read in public copies; no licence
stated, so the rules only.
Version 1 pays what the demo pays: its dot stops at newlines, so reasoning over several lines has no format.
Version 2 pays what the five were meant to pay. Linear time in both; the demo's soft pattern is quadratic.
"""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards.blocks import blocks_v1, is_soft_v1, is_strict_v1, last_block_v1, tag_lines_v1
from reward_service.worker.rewards.numerals import whole_number_v1
from reward_service.worker.types import NO_ANSWER, Found, Item, Outcome
from reward_service.worker.verify import v2

_SOURCE = "willccbb gist 4676755236bb08cab5f4e54a0475d6fb, grpo_demo.py (2025-01-25)"
_SOURCE_V2 = "Hallmark, after willccbb's grpo_demo.py (2025)"
_BLOCK_BORDER = re.compile(r"</reasoning>\s*<answer>")


def find_answer_v1(text: str) -> Found:
    """What follows the last `<answer>`, up to the next `</answer>`, stripped; the whole text without tags."""
    rest = text.rpartition("<answer>")[2]
    answer = rest.partition("</answer>")[0].strip()
    return Found(answer, "answer_tag" if len(rest) < len(text) else "whole_text", None)


@reward("willccbb.correctness", version=1, range=(0.0, 2.0), needs=("gold",), source=_SOURCE)
def correctness_v1(item: Item) -> Outcome:
    """2.0 when the extracted answer equals the gold as a string, else 0.0."""
    found = find_answer_v1(item.completion)
    return Outcome(2.0 if found.answer == item.gold else 0.0, found=found)


@reward("willccbb.int", version=1, range=(0.0, 0.5), source=_SOURCE)
def int_v1(item: Item) -> Outcome:
    """0.5 when the extracted answer is all digits (Python's `str.isdigit`: no sign, no point, any script), else 0.0."""
    found = find_answer_v1(item.completion)
    return Outcome(0.5 if found.answer.isdigit() else 0.0, found=found)


@reward("willccbb.strict_format", version=1, range=(0.0, 0.5), source=_SOURCE)
def strict_format_v1(item: Item) -> float:
    r"""0.5 for exactly `<reasoning>\n…\n</reasoning>\n<answer>\n…\n</answer>\n`, … without newline; else 0.0."""
    # Six lines and the newline that ends them; Python's `$`, which the demo uses, allows one newline more.
    match item.completion.split("\n", maxsplit=8):
        case ["<reasoning>", _, "</reasoning>", "<answer>", _, "</answer>", "", *rest] if rest in ([], [""]):
            return 0.5
    return 0.0


@reward("willccbb.soft_format", version=1, range=(0.0, 0.5), source=_SOURCE)
def soft_format_v1(item: Item) -> float:
    """0.5 when the text begins with both blocks, white space between them, each … on one line; else 0.0."""
    text = item.completion
    if not text.startswith("<reasoning>"):
        return 0.0
    # Of all borders on the first line the earliest leaves the most room for `</answer>`; only the last one can
    # reach into a later line. Trying these two is trying all.
    first = _BLOCK_BORDER.search(text, len("<reasoning>"))
    last = _BLOCK_BORDER.match(text, max(text.rfind("</reasoning>", 0, _line_end(text, 0)), len("<reasoning>")))
    borders = [border for border in (first, last) if border and border.start() < _line_end(text, 0)]
    return 0.5 if any(text.find("</answer>", b.end(), _line_end(text, b.end())) >= 0 for b in borders) else 0.0


def _line_end(text: str, start: int) -> int:
    newline = text.find("\n", start)
    return len(text) if newline < 0 else newline


@reward("willccbb.xml_count", version=1, range=(None, 0.501), source=_SOURCE)
def xml_count_v1(item: Item) -> float:
    """0.125 for each tag that stands once on its own line; each answer tag less 0.001 for each character after it."""
    text = item.completion
    paid = sum(0.125 for tag in ("<reasoning>\n", "\n</reasoning>\n") if text.count(tag) == 1)
    if text.count("\n<answer>\n") == 1:
        paid += 0.125 - 0.001 * len(text.rpartition("\n</answer>\n")[2])
    if text.count("\n</answer>") == 1:
        paid += 0.125 - 0.001 * (len(text.rpartition("\n</answer>")[2]) - 1)
    return paid


@reward("willccbb.correctness", version=2, range=(0.0, 2.0), needs=("gold",), source=_SOURCE_V2)
def correctness_v2(item: Item) -> Outcome:
    """2.0 when the committed answer equals the gold as mathematics, else 0.0."""
    gold = v2.read_gold(item.gold or "")
    found = v2.extract(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(2.0 if v2.equal(gold=gold, answer=found.answer) else 0.0, found=found)


@reward("willccbb.int", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def int_v2(item: Item) -> Outcome:
    """0.5 when the last complete answer block holds one whole number (`-5`, `1,000` and `3.0` are), else 0.0."""
    found = last_block_v1(item.completion, tag="answer")
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(0.5 if whole_number_v1(found.answer) is not None else 0.0, found=found)


@reward("willccbb.strict_format", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def strict_format_v2(item: Item) -> float:
    r"""0.5 when the whole text is one reasoning and one answer block, every tag on its own line (`\n`), else 0.0."""
    return 0.5 if is_strict_v1(blocks_v1(item.completion, first="reasoning", second="answer")) else 0.0


@reward("willccbb.soft_format", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def soft_format_v2(item: Item) -> float:
    """0.5 when the text starts with one reasoning block, then white space, then one answer block that is not blank."""
    return 0.5 if is_soft_v1(blocks_v1(item.completion, first="reasoning", second="answer")) else 0.0


@reward("willccbb.xml_count", version=2, range=(0.0, 0.5), source=_SOURCE_V2)
def xml_count_v2(item: Item) -> float:
    """0.125 for each tag that stands once, in order, alone on its line, less 0.001 a character after; never below 0.

    The two answer tags count only around something; a final newline and end-of-turn tokens are no characters after.
    """
    return tag_lines_v1(item.completion, first="reasoning", second="answer")
