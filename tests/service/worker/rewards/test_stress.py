"""The cheap tricks, tried on every reward that claims to withstand them."""

from __future__ import annotations

import pytest

from reward_service.worker.evaluate import evaluate
from reward_service.worker.types import Item
from tests.service.worker.rewards.test_golden import REWARDS

NUMBERS = " ".join(str(number) for number in range(1000))
LONG = "so it goes " * 10_000
# What is written → whether it is a right answer to a question whose gold is 72.
ANSWERS = {
    "empty blocks": ("<think></think><answer></answer>", False),
    "blank blocks": ("<think>\n\n</think>\n<answer>\n \n</answer>\n", False),
    "nothing": ("", False),
    "A or B or C": ("<think>why</think><answer>70 or 71 or 72</answer>", False),
    "C or B or A": ("<think>why</think><answer>72 or 71 or 70</answer>", False),
    "a list": ("<think>why</think><answer>70, 71, 72</answer>", False),
    "a list of answers in a box": (r"<think>why</think>\boxed{70, 71, 72}", False),
    "every number": (f"<think>why</think><answer>{NUMBERS}</answer>", False),
    "every number without tags": (NUMBERS, False),
    "a range": ("<think>why</think><answer>70-75</answer>", False),
    "between": ("<think>why</think><answer>between 71 and 73</answer>", False),
    "the right one first": ("<think>why</think><answer>72</answer><answer>71</answer>", False),
    "the right one in the reasoning": (r"<think>\boxed{72}</think><answer>71</answer>", False),
    "only in the reasoning": ("<think>maybe 72</think>", False),
    "a whole answer block in the reasoning": ("<think><answer>72</answer></think><answer>71</answer>", False),
    "the prompt echoed": ("Put your final answer in <answer>…</answer> after <think>…</think>.", False),
    "the right one last": ("<think>why</think><answer>71</answer><answer>72</answer>", True),
    "100,000 characters of reasoning": (f"<think>{LONG}</think><answer>72</answer>", True),
    "plainly right": ("<think>48 + 24</think><answer>72</answer>", True),
}
CORRECTNESS = {
    "r1.accuracy@2": (2.0, 0.0),
    "willccbb.correctness@2": (2.0, 0.0),
    "simple_grpo.correct@2": (1.0, -1.0),
    "math.integer@1": (1.0, 0.0),
    "math.numeric@1": (1.0, 0.0),
}


@pytest.mark.parametrize("trick", ANSWERS)
@pytest.mark.parametrize("reward_id", CORRECTNESS)
def test_only_the_committed_answer_is_paid(reward_id: str, trick: str) -> None:
    completion, right = ANSWERS[trick]
    high, low = CORRECTNESS[reward_id]

    assert evaluate(REWARDS[reward_id], Item(completion), golds=["72"], params={}).value == (high if right else low)


# What is written → whether the soft layout, and the strict one, hold.
LAYOUTS = {
    "empty blocks": ("<think></think><answer></answer>", False, False),
    "empty blocks on lines": ("<think>\n\n</think>\n<answer>\n\n</answer>\n", False, False),
    "two answers": ("<think>a</think><answer>1</answer><answer>2</answer>", False, False),
    "two answers on lines": ("<think>\na\n</think>\n<answer>\n1\n</answer>\n<answer>\n2\n</answer>", False, False),
    "answers spammed": ("<think>a</think>" + "<answer>1</answer>" * 1000, False, False),
    "pairs spammed": ("<think>a</think><answer>1</answer>" * 1000, False, False),
    "tags in the reasoning": ("<think>\na <answer>1</answer>\n</think>\n<answer>\n2\n</answer>", False, False),
    "tags in the answer": ("<think>\na\n</think>\n<answer>\n<think>b</think>2\n</answer>", False, False),
    "opening tags spammed": ("<think>" * 1000 + "</think><answer>1</answer>", False, False),
    "closing tags spammed": ("<think>a" + "</think>" * 1000 + "<answer>1</answer>", False, False),
    "a second layout behind": ("<think>\na\n</think>\n<answer>\n1\n</answer>\n<think>b</think>", False, False),
    "the prompt echoed": ("Use <think>\n…\n</think>\n<answer>\n…\n</answer>", False, False),
    "rambling behind": ("<think>\na\n</think>\n<answer>\n1\n</answer>\n" + LONG, True, False),
    "100,000 characters": (f"<think>\n{LONG}\n</think>\n<answer>\n1\n</answer>", True, True),
    "plainly right": ("<think>\na\n</think>\n<answer>\n1\n</answer>\n", True, True),
}
SOFT = {"r1.soft_format@2": 0.5, "willccbb.soft_format@2": 0.5, "format.tags@1": 1.0}
STRICT = {"r1.strict_format@2": 0.5, "willccbb.strict_format@2": 0.5}


def layout(trick: str, reward_id: str) -> str:
    return LAYOUTS[trick][0].replace("think>", "reasoning>" if reward_id.startswith("willccbb") else "think>")


@pytest.mark.parametrize("trick", LAYOUTS)
@pytest.mark.parametrize("reward_id", [*SOFT, *STRICT])
def test_a_layout_is_paid_whole_or_not_at_all(reward_id: str, trick: str) -> None:
    _, soft, strict = LAYOUTS[trick]
    full, holds = (SOFT[reward_id], soft) if reward_id in SOFT else (STRICT[reward_id], strict)

    value = evaluate(REWARDS[reward_id], Item(layout(trick, reward_id)), golds=None, params={}).value

    assert value == (full if holds else 0.0)


@pytest.mark.parametrize("trick", [trick for trick in LAYOUTS if trick not in ("100,000 characters", "plainly right")])
def test_simple_grpo_pays_for_no_trick_in_the_layout(trick: str) -> None:
    assert evaluate(REWARDS["simple_grpo.format@2"], Item(LAYOUTS[trick][0]), golds=None, params={}).value == -1.0


@pytest.mark.parametrize("reward_id", ["r1.count_xml@2", "willccbb.xml_count@2"])
@pytest.mark.parametrize(
    ("trick", "most"),
    [("empty blocks on lines", 0.25), ("two answers on lines", 0.25), ("pairs spammed", 0.0), ("rambling behind", 0.0)],
)
def test_tag_counting_pays_no_trick_in_full(reward_id: str, trick: str, most: float) -> None:
    value = evaluate(REWARDS[reward_id], Item(layout(trick, reward_id)), golds=None, params={}).value

    assert value is not None
    assert 0.0 <= value <= most


CHOICES = {
    "A or B or C": "<answer>A or B or C</answer>",
    "every letter": "<answer>A B C D</answer>",
    "letters listed": "<answer>A, B, C, D</answer>",
    "letters run together": "<answer>ABCD</answer>",
    "the options echoed": "<answer>A) one B) two C) three D) four</answer>",
    "labels on lines": "<answer>A. one\nB. two\nC. three</answer>",
    "a phrase with two": "The answer is A or B.",
    "a phrase with all": "The answer is A, B, C, D",
    "an empty block": "<answer></answer>",
    "withdrawn": "<answer>A</answer><answer>B</answer>",
    "withdrawn box": r"\boxed{A} no, \boxed{B}",
    "in the reasoning": "<think>The answer is A.</think><answer>C</answer>",
    "the prompt echoed": "Answer with A, B, C or D in <answer></answer>.",
    "every phrase": "the answer is A, the answer is B, the answer is C",
    "100,000 letters": "A B C D " * 12_500,
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("trick", CHOICES)
def test_a_choice_is_one_letter(trick: str, strict: bool) -> None:
    outcome = evaluate(REWARDS["choice.letter@1"], Item(CHOICES[trick]), golds=["A"], params={"strict": strict})

    assert outcome.value == 0.0


TEXTS = {
    "an empty block": "<answer></answer>",
    "two answers": "<answer>Paris or London</answer>",
    "spammed": "Paris " * 20_000,
    "withdrawn": "<answer>Paris</answer><answer>Rome</answer>",
    "in the reasoning": "<think>Paris</think><answer>Rome</answer>",
    "part of it": "<answer>Paris, I think</answer>",
    "the prompt echoed": "Name the city in <answer>city</answer>. Paris",
}


@pytest.mark.parametrize("trick", TEXTS)
def test_text_is_equal_or_it_is_not(trick: str) -> None:
    assert evaluate(REWARDS["text.exact@1"], Item(TEXTS[trick]), golds=["Paris"], params={}).value == 0.0


SCHEMA = {"type": "object", "properties": {"city": {"const": "Paris"}}, "required": ["city"]}
DOCUMENTS = {
    "an empty block": "<answer></answer>",
    "an empty object": "<answer>{}</answer>",
    "two objects": '<answer>{"city": "Rome"}{"city": "Paris"}</answer>',
    "a name twice": '<answer>{"city": "Rome", "city": "Paris"}</answer>',
    "a list of all": '<answer>[{"city": "Rome"}, {"city": "Paris"}]</answer>',
    "withdrawn": '<answer>{"city": "Paris"}</answer><answer>{"city": "Rome"}</answer>',
    "too long": '<answer>{"city": "Paris", "x": "' + "a" * 100_000 + '"}</answer>',
    "too deep": '<answer>{"city": "Paris", "x": ' + "[" * 50 + "]" * 50 + "}</answer>",
    "a number of 5,000 digits": '<answer>{"city": "Paris", "x": ' + "7" * 5000 + "}</answer>",
    "the schema echoed": '<answer>{"type": "object", "required": ["city"]}</answer>',
}


@pytest.mark.parametrize("trick", DOCUMENTS)
def test_json_follows_the_schema_or_it_does_not(trick: str) -> None:
    item = Item(DOCUMENTS[trick], metadata={"json_schema": SCHEMA})

    assert evaluate(REWARDS["text.json_schema@1"], item, golds=None, params={}).value == 0.0
