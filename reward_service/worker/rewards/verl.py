"""Rewards of verl (verl-project/verl, Apache-2.0), among them the one that DAPO trained with.

Source: verl/utils/reward_score/{gsm8k,math_dapo}.py and verl/workers/reward_manager/dapo.py of release 0.9.1; the
tables of math_dapo come from Minerva (arXiv 2206.14858, appendix D.1) by way of EleutherAI/lm-evaluation-harness (MIT).
Version 1 pays what verl pays. The rewards read the last 300 characters only, as there, so their time is constant.
"""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.rewards.blocks import raw_last_box_v1
from reward_service.worker.types import NO_ANSWER, Found, Item, Outcome

_SOURCE = "verl-project/verl 0.9.1 verl/utils/reward_score (Apache-2.0)"
_READ = 300
_BOX_READ = 100
_AFTER_HASHES = re.compile(r"#### (-?[0-9.,]+)")
_NUMBER = re.compile(r"-?[0-9.,]+")
_MINERVA_ANSWER = re.compile(r"(?i:Answer)\s*:\s*([^\n]+)")
_NOTHING = "[INVALID]"

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
)
_REMOVED = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points"),
    *("feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students"),
    *("childrentickets", "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3"),
    *("\\text{\n}", "\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots"),
)
_REWRITTEN = (
    (re.compile(r".*?\$(.*?)\$.*"), r"$\1$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt([^{])"), r"sqrt{\1}"),
)


@reward("verl.gsm8k", version=1, range=(0.0, 1.0), needs=("gold",), source=_SOURCE)
def gsm8k_v1(item: Item, *, flexible: bool = False, format_score: float = 0.0, score: float = 1.0) -> Outcome:
    """`score` when the last number after `#### ` (flexible: the last number) equals the gold as a string, else 0.0.

    A wrong number gets `format_score`. Commas are dropped from the answer, not from the gold, and only when strict.
    """
    text = item.completion[-_READ:]
    if flexible:
        numbers = _NUMBER.findall(text)
        # The last that is not a lone point; if all are, the first of them.
        answer = next((number for number in reversed(numbers) if number != "."), numbers[0] if numbers else None)
    else:
        numbers = _AFTER_HASHES.findall(text)
        answer = numbers[-1].replace(",", "") if numbers else None
    if answer is None:
        return Outcome(0.0, NO_ANSWER)
    return Outcome(score if answer == item.gold else format_score, found=Found(answer, "last_number", None))


@reward("verl.math_dapo", version=1, range=(-1.0, 1.0), needs=("gold",), source=_SOURCE)
def math_dapo_v1(item: Item, *, strict_box: bool = False) -> Outcome:
    r"""1.0 when what follows the last `Answer:` equals the gold after Minerva's rewriting of both, else -1.0.

    Without an `Answer:`, and with `strict_box` always, the last `\boxed{}` of the last 100 characters must be the gold.
    """
    text, gold = item.completion[-_READ:], item.gold or ""
    written = [] if strict_box else _MINERVA_ANSWER.findall(text)
    answer = _minerva_form_v1(written[-1]) if written else _NOTHING
    if answer != _NOTHING:
        return Outcome(1.0 if answer == _minerva_form_v1(gold) else -1.0, found=Found(answer, "answer_colon", None))
    box = raw_last_box_v1(text[-_BOX_READ:])
    if box is None:
        # verl compares its placeholder, so a gold that reads [INVALID] is "found".
        return Outcome(1.0 if not strict_box and _minerva_form_v1(gold) == _NOTHING else -1.0, NO_ANSWER)
    return Outcome(1.0 if box == gold else -1.0, found=Found(box, "boxed", None))


def _minerva_form_v1(answer: str) -> str:
    answer = answer.rpartition("=")[2]
    for before, after in _REPLACED:
        answer = answer.replace(before, after)
    for removed in _REMOVED:
        answer = answer.replace(removed, "")
    for pattern, replacement in _REWRITTEN:
        answer = pattern.sub(replacement, answer)
    answer = answer.replace("$", "")
    without_commas = answer.replace(",", "")
    return (without_commas if without_commas.isdigit() else answer).strip()


@reward("verl.overlong", version=1, range=(None, 0.0), needs=("token_count",), source=_SOURCE)
def overlong_v1(
    item: Item, *, max_resp_len: int = 20480, overlong_buffer_len: int = 4096, penalty_factor: float = 1.0
) -> float:
    """0.0 up to `max_resp_len - overlong_buffer_len` tokens, then down a line times `penalty_factor`, without end."""
    if not 0 < overlong_buffer_len <= max_resp_len:
        raise ValueError(f"overlong_buffer_len is {overlong_buffer_len}; above 0 and at most {max_resp_len} it must be")
    exceeding = shapes.token_count_v1(item) - (max_resp_len - overlong_buffer_len)
    return min(-exceeding / overlong_buffer_len * penalty_factor, 0.0)
