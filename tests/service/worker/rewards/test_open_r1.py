"""open_r1.*@1 pays what open-r1's own rules pay; the rules stand here as patterns and library calls."""

from __future__ import annotations

import math
import re

import pytest
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify

from reward_service.worker.evaluate import evaluate
from reward_service.worker.rewards import open_r1
from reward_service.worker.types import BAD_GOLD, Item
from tests.service.worker.rewards.samples import ONE_WAY, generated

FORMAT = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
STEPS = r"(Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,)"
# Completions and golds: of all kinds, and some whose verdict depends on which of the two comes first.
TEXTS = [generated(seed) for seed in range(400)] + [
    (f"so $\\boxed{{{answer}}}$", f"${gold}$") for one, two in ONE_WAY for gold, answer in ((one, two), (two, one))
]


def test_the_format_is_paid_where_the_pattern_matches() -> None:
    matched = 0
    for seed in range(5000):
        completion = generated(seed)[0].replace("reasoning>", "think>")
        expected = 1.0 if re.match(FORMAT, completion, re.DOTALL | re.MULTILINE) else 0.0
        matched += expected > 0

        assert evaluate(open_r1.format_v1, Item(completion), golds=None, params={}).value == expected, completion
    assert matched > 50


def test_steps_are_counted_as_the_pattern_counts_them() -> None:
    for seed in range(1000):
        completion = generated(seed)[0]
        expected = min(1.0, len(re.findall(STEPS, completion)) / 3)

        assert evaluate(open_r1.reasoning_steps_v1, Item(completion), golds=None, params={}).value == expected


def in_latex(text: str, *, boxed: str | bool) -> list[object]:
    normalization = NormalizationConfig(
        nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed=boxed, units=True
    )
    config = LatexExtractionConfig(
        normalization_config=normalization, boxed_match_priority=0, try_extract_without_anchor=False
    )
    return list(parse(text, extraction_config=[config], extraction_mode="first_match", parsing_timeout=None))


def test_accuracy_passes_the_gold_first() -> None:
    for completion, gold in TEXTS:
        read_gold = parse(gold, extraction_mode="first_match", parsing_timeout=None)
        ours = evaluate(open_r1.accuracy_v1, Item(completion), golds=[gold], params={})
        if not read_gold:
            assert ours.status == BAD_GOLD
        else:
            theirs = verify(read_gold, in_latex(completion, boxed="all"), timeout_seconds=None)
            assert ours.value == float(theirs), (completion, gold)


def test_the_cosine_passes_the_answer_first_and_turns_back_beyond_its_length() -> None:
    for completion, gold in TEXTS:
        read_gold = parse(
            gold, extraction_mode="first_match", extraction_config=[LatexExtractionConfig()], parsing_timeout=None
        )
        ours = evaluate(open_r1.cosine_v1, Item(completion), golds=[gold], params={"max_len": 50})
        if not read_gold:
            assert ours.status == BAD_GOLD
        else:
            correct = verify(in_latex(completion, boxed=True), read_gold, timeout_seconds=None)
            low, high = (0.5, 1.0) if correct else (-0.5, -1.0)
            expected = low + 0.5 * (high - low) * (1.0 + math.cos(len(completion) / 50 * math.pi))
            assert ours.value == pytest.approx(expected), (completion, gold)
