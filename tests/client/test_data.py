"""Rows from files and the generator, prompts from rows, batches from prompts."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from grpo_client.data import addition_rows, batches, build_prompts, load_rows, read_few_shot, to_row
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt
from tests.client.tiny import tiny_tokenizer


@pytest.mark.parametrize(
    ("record", "gold"),
    [
        ({"question": "q", "answer": "7"}, "7"),
        ({"prompt": "q", "gold": 7}, "7"),
        ({"problem": "q", "solution": "3 + 4 = 7\n#### 7"}, "7"),
        ({"question": "q", "answer": "1,000 #### 1,234 "}, "1,234"),
        ({"question": "q", "gold": ["1/2", "0.5"]}, ["1/2", "0.5"]),
        ({"question": "q", "gold": 0}, "0"),
    ],
)
def test_golds_are_found_by_the_usual_names(record: dict[str, object], gold: object) -> None:
    assert to_row(record, where="here").gold == gold


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"question": "q"},
            "row 2: no gold (gold or answer or solution or target or ground_truth); keys found: question",
        ),
        ({"question": "q", "answer": ""}, "no gold"),
        ({"question": "q", "answer": None}, "no gold"),
        ({"answer": "7"}, "no question"),
        ({"question": "q", "answer": 1.5}, "write it as a string"),
        ({"question": "q", "answer": "see ####"}, "nothing follows the ####"),
        ([], "a JSON object is expected"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(record: object, message: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"question": "q", "answer": "7"}) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        load_rows(str(file), config=None, split="train", seed=0, held_out=False)
    assert str(file) in str(error.value)
    assert "row 2" in str(error.value)


def test_a_line_separator_within_a_string_does_not_end_the_row(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    row = {"question": "a\u2028b\x85c\x0cd", "answer": "7"}
    file.write_text(json.dumps(row, ensure_ascii=False) + "\n")
    (read,) = load_rows(str(file), config=None, split="train", seed=0, held_out=False)
    assert read.question == row["question"]


def test_gsm8k_is_read(shared: Path) -> None:
    rows = load_rows(str(shared / "data/gsm8k/train.jsonl"), config=None, split="train", seed=0, held_out=False)
    assert len(rows) == 7473
    assert rows[0].gold == "72"


def test_held_out_pairs_are_never_trained_on() -> None:
    def pairs(held_out: bool) -> set[tuple[int, ...]]:
        rows = addition_rows(seed=1, held_out=held_out)
        assert all(str(sum(numbers(row.question))) == row.gold for row in rows)
        return {tuple(sorted(numbers(row.question))) for row in rows}

    def numbers(text: object) -> list[int]:
        return [int(one) for one in re.findall(r"\d+", str(text))]

    assert not pairs(True) & pairs(False)
    assert len(addition_rows(seed=1, held_out=True)) >= 64
    assert addition_rows(seed=1, held_out=True) == addition_rows(seed=1, held_out=True)
    assert addition_rows(seed=2, held_out=True) != addition_rows(seed=1, held_out=True)


def test_prompts_go_through_the_template_once_and_long_ones_are_left_out() -> None:
    tokenizer = tiny_tokenizer()
    rows = [
        to_row({"question": "2+2?", "answer": "4"}, where=""),
        to_row({"question": "x" * 99, "answer": "4"}, where=""),
    ]
    few_shot = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    prompts = build_prompts(rows, tokenizer, system="Add.", few_shot=few_shot, limit=80)
    assert [one.index for one in prompts] == [0]
    text = tokenizer.decode(prompts[0].token_ids)
    assert text == "<|system|>Add.<|end|><|user|>1+1?<|end|><|assistant|>2<|end|><|user|>2+2?<|end|><|assistant|>"
    with pytest.raises(ConfigError, match="the shortest has"):
        build_prompts(rows, tokenizer, system=None, few_shot=[], limit=3)


def test_few_shot_lines_have_a_question_and_a_completion(tmp_path: Path) -> None:
    file = tmp_path / "shots.jsonl"
    file.write_text('{"question": "q", "completion": "c"}\n\n{"question": "q"}\n')
    with pytest.raises(ConfigError, match="line 3"):
        read_few_shot(file)


def test_each_epoch_holds_every_prompt_once_in_an_order_of_its_own() -> None:
    prompts = [Prompt(i, [], (i,), "") for i in range(10)]
    stream = list(itertools.islice(batches(prompts, size=4, seed=0), 10))
    order = [one.index for batch in stream for one in batch]
    epochs = [order[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert stream == list(itertools.islice(batches(prompts, size=4, seed=0), 10))
