"""What is told about the data of a run before it starts."""

from __future__ import annotations

import importlib.metadata
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_client.config import TrainConfig
from grpo_client.data.prompts import build_prompts, training_examples
from grpo_client.data.tokenizers import SMOLLM2_PACKAGE, load_tokenizer
from grpo_client.data.validation import Report, render, validate
from grpo_client.errors import ConfigError
from tests.client.tiny import tiny_tokenizer
from tests.conftest import missing


def write(file: Path, *rows: object) -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    file.write_text("\n".join(lines))
    return str(file)


def report_on(folder: Path, *rows: object, held_out: list[object] | None = None, **changes: object) -> Report:
    settings: dict[str, object] = {"data": write(folder / "data.jsonl", *rows), "reward": ("r1.int@1",)}
    if held_out is not None:
        settings["eval_data"] = write(folder / "held_out.jsonl", *held_out)
    config = TrainConfig.model_validate(settings | {"prompts_per_step": 1} | changes)
    return validate(config, tiny_tokenizer())


def shown(report: Report) -> str:
    console = Console(file=io.StringIO(), width=120)
    render(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def asked(question: str, answer: object = "7") -> dict[str, object]:
    return {"question": question, "answer": answer}


def test_every_bad_row_is_told_and_none_hides_another(tmp_path: Path) -> None:
    report = report_on(tmp_path, asked("a"), "not JSON", {"question": "b"}, asked("c"), asked("d", 1.5))
    assert report.train.records == 5
    assert report.train.prompts == 2
    assert [problem.split(": ")[0].rpartition(", ")[2] for problem in report.train.problems] == [
        "row 2",
        "row 3",
        "row 5",
    ]
    assert not report.ok
    text = shown(report)
    assert "not JSON" in text
    assert "keys found: question" in text
    assert "a run would refuse this data" in text


def test_many_problems_are_shown_up_to_a_limit_and_counted(tmp_path: Path) -> None:
    text = shown(report_on(tmp_path, asked("a"), *[{"n": n} for n in range(50)]))
    assert "50 rows cannot be used" in text
    assert "row 21:" in text
    assert "row 22:" not in text
    assert "… and 30 more" in text


def test_questions_that_come_again_are_told_by_row(tmp_path: Path) -> None:
    report = report_on(
        tmp_path, asked("2 + 2?"), asked("3?"), asked("2 +\n2?"), asked("3?", "8"),
        held_out=[asked("4?"), asked(" 3?")],
    )  # fmt: skip
    assert report.train.repeated == [[1, 3], [2, 4]]
    assert report.train.contradicting == [[2, 4]]
    assert report.overlap == [([2, 4], [2])]
    assert report.held_out is not None
    assert report.held_out.repeated == []
    assert report.ok
    text = shown(report)
    assert "the same question with different golds, rows 2, 4" in text
    assert "held-out questions that are trained on" in text


def test_lengths_are_counted_through_the_template_and_over_long_rows_named(tmp_path: Path) -> None:
    report = report_on(tmp_path, asked("x"), asked("x" * 100), asked("x" * 11), max_prompt_length=20)
    assert report.train.token_counts == [4, 103, 14]  # <|user|> … <|end|> <|assistant|>
    assert report.train.over_long == [2]
    assert report.train.prompts == 2
    assert report.ok
    assert "1 (row 2)" in shown(report)
    assert "4, 14, 103, 103, 103" in shown(report)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"max_prompt_length": 3}, "every prompt is over --max-prompt-length 3 tokens (the shortest has 4)"),
        ({"prompts_per_step": 3}, "2 prompts, and --prompts-per-step takes 3 different ones"),
    ],
)
def test_data_that_a_run_would_refuse_as_a_whole_is_refused(
    changes: dict[str, Any], refusal: str, tmp_path: Path
) -> None:
    report = report_on(tmp_path, asked("a"), asked("b"), **changes)
    assert any(refusal in one for one in report.refusals)
    assert not report.ok
    assert refusal[:40] in shown(report)


def test_the_first_prompt_is_shown_as_the_model_gets_it(tmp_path: Path) -> None:
    rows = [asked("x" * 99), asked("2\n\x1b[2J\u202e+ [bold]2")]
    report = report_on(tmp_path, *rows, system_prompt="Add.", max_prompt_length=60)
    first = report.train.first
    assert first is not None
    assert first.row == 2
    assert first.text == "<|system|>Add.<|end|><|user|>2\n\x1b[2J\u202e+ [bold]2<|end|><|assistant|>"
    assert first.token_count == report.train.token_counts[1]
    text = shown(report)
    assert "<|user|>2\\n" in text
    assert "\\x1b[2J\\u202e+ [bold]2<|end|><|assistant|>" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert f"row 2, {first.token_count} tokens" in text


def test_what_the_report_counts_is_what_a_run_trains_on(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", asked("a"), asked("b" * 99))
    config = TrainConfig(data=data, suite="r1@1", max_prompt_length=50, system_prompt="s", prompts_per_step=1)
    tokenizer = tiny_tokenizer()
    prompts = build_prompts(training_examples(config), tokenizer, system="s", few_shot=[], limit=50)
    assert validate(config, tokenizer).train.prompts == len(prompts) == 1


def test_a_second_bos_and_a_missing_template_are_warned_of(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<|system|>"})
    config = TrainConfig(data=write(tmp_path / "a.jsonl", asked("a")), reward=("r1.int@1",), prompts_per_step=1)
    assert not any("BOS" in one for one in validate(config, tokenizer).warnings)
    tokenizer.chat_template = "<|system|><|system|>{{ messages[0]['content'] }}"
    assert any("two BOS" in one for one in validate(config, tokenizer).warnings)
    tokenizer.chat_template = None
    assert any("no chat template" in one for one in validate(config, tokenizer).warnings)


def test_a_template_that_refuses_a_row_is_a_problem_of_that_row(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% if 'bad' in messages[0]['content'] %}{{ raise_exception('no') }}{% endif %}x"
    config = TrainConfig(
        data=write(tmp_path / "a.jsonl", asked("a"), asked("bad")), reward=("r1.int@1",), prompts_per_step=1
    )
    report = validate(config, tokenizer)
    assert report.train.prompts == 1
    (problem,) = report.train.problems
    assert problem.startswith("row 2: the chat template refuses")


def test_the_chosen_columns_and_golds_that_look_wrong_are_told(tmp_path: Path) -> None:
    report = report_on(tmp_path, asked("a"), asked("b", "so " * 100), {"prompt": "c", "target": "7"})
    assert report.train.columns == {"question": {"question": 2, "prompt": 1}, "gold": {"answer": 2, "target": 1}}
    assert report.train.long_golds == [2]
    text = " ".join(shown(report).split())
    assert "the gold is answer in 2 rows, target in 1 rows; name one with --gold-column" in text
    assert "golds of more than 200 characters" in text
    named = report_on(tmp_path, {"a": "q", "b": "7", "answer": "8"}, question_column="a", gold_column="b")
    assert named.train.columns == {"question": {"a": 1}, "gold": {"b": 1}}
    assert named.warnings == []


def test_the_generator_has_nothing_to_complain_of() -> None:
    report = validate(TrainConfig(suite="r1@1"), tiny_tokenizer())
    assert report.ok
    assert report.held_out is not None
    assert report.overlap == []
    assert "a run would start with this data" in shown(report)


def test_a_file_that_cannot_be_opened_is_an_error_and_no_report() -> None:
    with pytest.raises(ConfigError, match=r"cannot read nowhere\.csv"):
        validate(TrainConfig(data="nowhere.csv", suite="r1@1"), tiny_tokenizer())


def test_a_tokenizer_is_loaded_without_weights(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    tokenizer = load_tokenizer(str(tmp_path / "tokenizer"))
    assert tokenizer.encode("<|user|>a") == tiny_tokenizer().encode("<|user|>a")
    (tmp_path / "empty").mkdir()
    for name, message in [
        (str(tmp_path / "empty"), "cannot load the tokenizer of --model"),
        (str(tmp_path / "nothing"), "there is no such folder"),
        (str(tmp_path / "nothing.gguf"), "there is no such file"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_tokenizer(name)


@pytest.mark.model
def test_the_embedded_model_has_a_tokenizer_with_a_template() -> None:
    try:
        importlib.metadata.version(SMOLLM2_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        missing(f"the package {SMOLLM2_PACKAGE}")
    tokenizer = load_tokenizer("smollm2")
    report = validate(TrainConfig(suite="r1@1"), tokenizer)
    assert report.train.first is not None
    assert report.train.first.text.startswith("<|im_start|>system\nA conversation between")
    assert report.warnings == []
