"""Which answer a completion commits to, by which rule, and where it stands."""

from __future__ import annotations

import time

import pytest

from reward_service.worker.verify.v2 import extract

FOUND = [
    # completion, answer, rule
    ("<think>7</think><answer>8</answer>", "8", "answer_tag"),
    ("<answer>44</answer><think>no</think><answer>45</answer>", "45", "answer_tag"),
    ("<answer>\nThe answer is 42.\n</answer>", "42", "answer_tag"),
    (r"<answer>so \boxed{3}</answer> \boxed{4}", "3", "answer_tag"),
    ("<answer>5</answer><think>later doubts</think>", "5", "answer_tag"),
    ("<answer>\n3", "3", "answer_tag"),
    (r"The answer is 99. \boxed{42}", "42", "boxed"),
    (r"\boxed{2}. wait, actually \boxed{3}", "3", "boxed"),
    (r"\boxed   {  x^2 } trailing", "x^2", "boxed"),
    (r"\boxed 7", "7", "boxed"),
    (r"\fbox{\frac{1}{2}}", r"\frac{1}{2}", "boxed"),
    (r"roots \boxed{2}, \boxed{3}", r"\boxed{2}, \boxed{3}", "boxed"),
    (r"$\boxed{28}$ percent", r"\boxed{28}$ percent", "boxed"),
    (r"\boxed{5}. That is wrong; the answer is 7.", "7", "marker"),
    (r"cut off \boxed{42", "42", "boxed"),
    ("x = 5", "x = 5", "whole"),
    ("2 1/4", "2 1/4", "whole"),
    ("The answer is b because the image shows a dog.", "b", "marker"),
    ("Answer: It is not B, the answer is D", "D", "marker"),
    ("Answer: I think it is C", "C", "marker"),
    ("The answer is 18. Check: 3+4 = 7", "18", "marker"),
    ("So the answer is 7 (since 3+4 = 7 and 2*5 = 10).", "7", "marker"),
    ("Q: earlier\n#### 5\n\n9*2=18\n#### 18", "18", "marker"),
    ("#### 42\nand the reasoning above confirms this", "42", "marker"),
    ("9 * 2 = 18\nA: 18", "18", "marker"),
    ("所以答案是 42。", "42", "marker"),
    ('The final answer is "$12 $ and $13 $". I hope it is correct.', "$12 $ and $13 $", "marker"),
    ("Final Answer: The largest $n$ is 34.", "34", "marker"),
    ("✅ Final Answer: **73**", "73", "marker"),
    ("B. a yellow bus", "B. a yellow bus", "label"),
    ("After all this I choose C.", "C", "stated_choice"),
    ("He made a profit of $200,000 - $130,000 = $70,000.", "$70,000", "final_expression"),
    (r"Therefore $x \geq 5$ is the solution.", r"$x \geq 5$", "final_expression"),
    ("The change is -3 degrees.", "-3 degrees", "final_statement"),
    ("The roots are 2 and 3.", "2 and 3", "final_statement"),
    ("The capital is Paris.", "Paris", "final_words"),
    ("So it is $\\boxed{8}$.<|im_end|><|im_start|>user more \\boxed{9}", "8", "boxed"),
]
NOTHING = [
    "", "   \n\t ", "<think>42</think>", r"<think> cut off \boxed{42}", r"The answer is \boxed{}.",
    "<answer></answer>5",
    "The answer is not 5.",
]  # fmt: skip


@pytest.mark.parametrize(("completion", "answer", "rule"), FOUND)
def test_the_committed_answer_is_found_by_its_rule(completion: str, answer: str, rule: str) -> None:
    found = extract(completion)
    assert found is not None
    assert (found.answer, found.by) == (answer, rule)


@pytest.mark.parametrize(("completion", "answer", "rule"), FOUND)
def test_the_span_holds_the_answer(completion: str, answer: str, rule: str) -> None:
    found = extract(completion)
    assert found is not None
    assert found.span is not None
    start, end = found.span
    assert completion[start:end].strip() == found.answer


@pytest.mark.parametrize("completion", NOTHING)
def test_no_commitment_is_no_answer(completion: str) -> None:
    assert extract(completion) is None


def test_spans_count_code_points() -> None:
    found = extract("🦆🦆 答案：\\boxed{18}")
    assert found is not None
    assert found.span == (13, 15)


LONG = [
    "$", "$5 ", "{", "}", r"\boxed{", r"\boxed{1},", r"\boxed 1 ", r"$\boxed{1 ", "<think>", "</think>", "<answer>",
    "</answer>",
    "answer is ", "answer to ", "answer ", "####", "#### 1\n", "A:\n", "答案", "1", "1,", "1+", "1 ", "-", ".5", "1/",
    r"\(", r"\[",
    " ", "\n", "(", "**", "is ", "choose option ", "½", r"\text{", "<|im_end|>", "a", "not ", "and ", '"', "\\", "é",
]  # fmt: skip


@pytest.mark.parametrize("piece", LONG)
def test_a_megabyte_costs_ten_times_a_tenth_of_it(piece: str) -> None:
    """Linear: ten times the time for the tenfold text, where a quadratic rule would take a hundred times as long."""
    short, long = piece * (100_000 // len(piece)), piece * (1_000_000 // len(piece))
    quick, slow = (min(_seconds(text) for _ in range(3)) for text in (short, long))
    assert slow < 10
    assert slow < 30 * quick + 0.1


def _seconds(text: str) -> float:
    began = time.process_time()
    extract(text)
    return time.process_time() - began
