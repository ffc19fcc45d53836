"""The rewards of open-r1 (huggingface/open-r1, Apache-2.0), which TRL scripts copy.

Source: src/open_r1/rewards.py, read at 0056faa and ed89dd9 (2025); what came later (accuracy with the gold first and a
bad gold as null, soft_overlong) in public copies of the file. Lengths are characters, in soft_overlong tokens.
Version 1 pays what the original pays, two things apart: where the original turns a gold that it cannot read into 1.0
(cosine) or into "correct" (len), here it is a bad gold and no number; and a text that math-verify could not read within
its timers is cut to its end (see verify/v1/bare.py). The length rewards pass (answer, gold) to a verdict that expects
(gold, answer), as the original still does. Left out: the code rewards, which need a sandbox.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards import shapes
from reward_service.worker.types import Item, Outcome
from reward_service.worker.verify.v1 import MATH_VERIFY_0_9, bare

_SOURCE = "huggingface/open-r1 src/open_r1/rewards.py (2025, Apache-2.0)"
_ANSWER_END = re.compile(r"\n</answer>$", re.MULTILINE)
_STEP = re.compile(r"Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,")


@reward("open_r1.accuracy", version=1, range=(0.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def accuracy_v1(item: Item) -> Outcome:
    """1.0 when math-verify holds the first answer in LaTeX, boxed first, equal to the gold, else 0.0."""
    gold = bare.gold_in(item.gold or "", first_match=True)
    answer = bare.answer_in(item.completion, bare.OPEN_R1, first_match=True)
    return Outcome(float(bare.verdict(gold, answer)), found=bare.found(answer))


@reward("open_r1.format", version=1, range=(0.0, 1.0), source=_SOURCE)
def format_v1(item: Item) -> float:
    r"""1.0 for `<think>\n…\n</think>\n<answer>\n…\n</answer>` from the start to the end of some line, else 0.0."""
    text = item.completion
    border = text.find("\n</think>\n<answer>\n", len("<think>\n")) if text.startswith("<think>\n") else -1
    # The earliest border leaves the most room for the end.
    return 1.0 if border >= 0 and _ANSWER_END.search(text, border + len("\n</think>\n<answer>\n")) else 0.0


@reward("open_r1.tag_count", version=1, range=(0.0, 1.0), source=_SOURCE)
def tag_count_v1(item: Item) -> float:
    r"""0.25 for each of `<think>\n`, `\n</think>\n`, `\n<answer>\n`, `\n</answer>` that stands exactly once."""
    tags = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return sum(0.25 for tag in tags if item.completion.count(tag) == 1)


@reward("open_r1.reasoning_steps", version=1, range=(0.0, 1.0), source=_SOURCE)
def reasoning_steps_v1(item: Item) -> float:
    """A third for each sign of a step (`Step 1:`, a bullet, `First,`, …), at most 1.0. Trivially gameable."""
    return min(1.0, sum(1 for _ in _STEP.finditer(item.completion)) / 3)


@reward("open_r1.swapped_accuracy", version=1, range=(0.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def swapped_accuracy_v1(item: Item) -> Outcome:
    """Correctness as open-r1's two length rewards decide it: math-verify with gold and answer exchanged."""
    return _swapped_v1(item)


def _swapped_v1(item: Item) -> Outcome:
    gold = bare.gold_in(item.gold or "", first_match=True, latex_only=True)
    answer = bare.answer_in(item.completion, bare.OPEN_R1_LENGTH, first_match=True)
    return Outcome(float(bare.verdict(answer, gold)), found=bare.found(answer))


@reward(
    "open_r1.len", version=1, range=(-0.5, 0.5), needs=("group",), uses=("open_r1.swapped_accuracy@1",), source=_SOURCE
)
def len_v1(items: Sequence[Item], used: Mapping[str, Sequence[Outcome]]) -> list[float | Outcome]:
    """0.5 for the group's shortest completion down to -0.5 for its longest, in characters; wrong ones get no plus."""
    lengths = [len(item.completion) for item in items]
    return shapes.shorter_is_better_v1(lengths, correct=used["open_r1.swapped_accuracy@1"])


@reward("open_r1.cosine", version=1, range=(-1.0, 1.0), needs=("gold",), source=_SOURCE, lock=MATH_VERIFY_0_9)
def cosine_v1(
    item: Item,
    *,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    max_len: int = 1000,
) -> Outcome:
    """A half cosine over `max_len` characters: correct 1.0 down to 0.5, wrong -1.0 up to -0.5; beyond it turns."""
    outcome = _swapped_v1(item)
    low, high = (min_value_correct, max_value_correct) if outcome.value else (max_value_wrong, min_value_wrong)
    cosine = math.cos(len(item.completion) / max_len * math.pi)
    return Outcome(low + 0.5 * (high - low) * (1.0 + cosine), found=outcome.found)


@reward("open_r1.repetition", version=1, range=(-1.0, 0.0), source=_SOURCE)
def repetition_v1(item: Item, *, ngram_size: int = 3, max_penalty: float = -1.0) -> float:
    """The share of repeated n-grams of lower-cased words, times `max_penalty`; 0.0 for fewer than n words."""
    return shapes.repetition_penalty_v1(item.completion.lower().split(), ngram=ngram_size, max_penalty=max_penalty)


@reward("open_r1.soft_overlong", version=1, range=(-1.0, 0.0), needs=("token_count",), source=_SOURCE)
def soft_overlong_v1(item: Item, *, max_completion_len: int = 20480, soft_punish_cache: int = 4096) -> float:
    """0.0 up to the soft limit, then down a line to -1.0 at `max_completion_len` tokens, and -1.0 beyond."""
    return shapes.soft_overlong_v1(shapes.token_count_v1(item), most=max_completion_len, cache=soft_punish_cache)
