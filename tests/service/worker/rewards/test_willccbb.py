"""willccbb.*@1 pays what the demo's own patterns pay."""

from __future__ import annotations

import re

import pytest

from reward_service.worker.catalogue import Reward
from reward_service.worker.evaluate import evaluate
from reward_service.worker.rewards import willccbb
from reward_service.worker.types import Item
from tests.service.worker.rewards.samples import generated

PATTERNS = {
    "strict": (willccbb.strict_format_v1, r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"),
    "soft": (willccbb.soft_format_v1, r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"),
}


def paid(reward: Reward, completion: str, gold: str = "72") -> float | None:
    return evaluate(reward, Item(completion, gold=gold), golds=[gold], params={}).value


@pytest.mark.parametrize("name", PATTERNS)
def test_a_layout_is_paid_where_the_pattern_of_the_demo_matches(name: str) -> None:
    reward, pattern = PATTERNS[name]
    matched = 0
    for seed in range(5000):
        completion = generated(seed)[0].replace("think>", "reasoning>")
        expected = 0.5 if re.match(pattern, completion) else 0.0
        matched += expected > 0

        assert paid(reward, completion) == expected, completion
    assert matched > 10


def test_the_tag_count_has_no_lower_bound_in_version_1_and_one_in_version_2() -> None:
    rambling = "<reasoning>\nx\n</reasoning>\n<answer>\n72\n</answer>\n" + "on and on " * 1000

    assert paid(willccbb.xml_count_v1, rambling) == pytest.approx(0.5 - 0.001 * 10_000 * 2)
    assert paid(willccbb.xml_count_v2, rambling) == 0.0


@pytest.mark.parametrize("seed", range(200))
def test_the_tag_count_of_version_2_stays_within_its_range(seed: int) -> None:
    assert 0.0 <= (paid(willccbb.xml_count_v2, generated(seed)[0].replace("think>", "reasoning>")) or 0.0) <= 0.5
