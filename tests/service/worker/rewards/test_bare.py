"""How much of a text math-verify is given: all of it, unless that would take more than linear time."""

from __future__ import annotations

import pytest

from reward_service.worker.verify.v1 import bare
from tests.service.worker.rewards.samples import generated, hostile


def test_ordinary_completions_are_read_whole() -> None:
    texts = [generated(seed)[0] for seed in range(1000)]
    solution = "\n".join(f"Step {step}: we have $x_{step} = \\frac{{{step}}}{{2}}$ and \\(y\\)." for step in range(500))

    assert all(bare.readable(text) == text for text in texts)
    assert bare.readable(solution + r" \boxed{72}") == solution + r" \boxed{72}"


@pytest.mark.parametrize("name", ["open boxes", "open formulas", "dollars", "digits", "numbers", "sum"])
def test_of_a_hostile_text_only_the_end_is_read_and_an_answer_there_counts(name: str) -> None:
    text = hostile(name, length=100_000) + r" so \boxed{72}"

    assert len(bare.readable(text)) <= 2048
    assert bare.verdict(bare.gold_in("72"), bare.answer_in(text, bare.TRL, first_match=True))
