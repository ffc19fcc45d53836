"""Rows from records, prompts from rows, the prompts of each step from these."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers.processors import TemplateProcessing

from grpo_client.config import TrainConfig
from grpo_client.data.examples import Columns, Example, to_example
from grpo_client.data.prompts import (
    R1_SYSTEM_PROMPT,
    Template,
    build_prompts,
    evaluation_examples,
    left_out,
    prompt_builder,
    read_few_shot,
    system_prompt,
    training_examples,
)
from grpo_client.errors import ConfigError
from tests.client.tiny import TEMPLATE, tiny_tokenizer

ASKED = {"role": "user", "content": "q"}


def configured(**changes: object) -> TrainConfig:
    return TrainConfig.model_validate({"suite": "r1@1"} | changes)


# ---- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "gold"),
    [
        ({"question": "q", "answer": "7"}, "7"),
        ({"prompt": "q", "gold": 7}, "7"),
        ({"problem": "q", "solution": "3 + 4 = 7\n#### 7"}, "7"),
        ({"question": "q", "answer": "1,000 #### 1,234 "}, "1,234"),
        ({"question": "q", "gold": ["1/2", "0.5", 3]}, ["1/2", "0.5", "3"]),
        ({"question": "q", "gold": 0}, "0"),
        ({"question": "q", "gold": " ", "answer": "7"}, "7"),
        ({"question": "q", "gold": Decimal("1.10")}, "1.10"),
        ({"question": "q", "gold": Decimal("1E+2")}, "100"),
    ],
)
def test_golds_are_found_by_the_usual_names(record: dict[str, object], gold: object) -> None:
    assert to_example(record, where="here").gold == gold


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
        ({"question": " \n", "answer": "7"}, "no question"),
        ({"question": 3, "answer": "7"}, "question holds int, not text or a list of chat messages"),
        ({"messages": "q", "answer": "7"}, "messages holds str, not a list of chat messages"),
        ({"question": "q", "answer": 1.5}, "the gold is a float, which has lost how it was written"),
        ({"question": "q", "answer": True}, "write it as a string"),
        ({"question": "q", "answer": {"value": 1}}, "the gold is a dict, neither a string nor a list of strings"),
        ({"question": "q", "answer": ["7", " "]}, "one of the golds is empty"),
        ({"question": "q", "answer": "see ####"}, "nothing follows the ####"),
        ({"question": "q\ud83d", "answer": "7"}, "hold half of a character"),
        ({"question": "q", "answer": "\ud83d"}, "hold half of a character"),
        ({"messages": [ASKED, {"role": "user"}], "answer": "7"}, "message 2 content: Field required"),
        ({"messages": [ASKED | {"content": [{"type": "image"}]}], "answer": "7"}, "message 1 content: "),
        ({"messages": [ASKED | {"tool_calls": []}], "answer": "7"}, "message 1 tool_calls: Extra inputs"),
        ({"messages": [ASKED, {"role": "assistant", "content": "7"}], "answer": "7"}, "ends with the assistant's turn"),
        ({"messages": [ASKED, {"role": "assistant", "content": "7"}]}, "no gold"),
        ({"messages": ["q"], "answer": "7"}, "messages holds list, not a list of chat messages"),
        ({"\x1b[2Jx": 1}, "keys found: '\\x1b[2Jx'"),
        ([], "a JSON object is expected"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(record: object, message: str, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"question": "q", "answer": "7"}) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        training_examples(configured(data=str(file)))
    assert f"{file}, row 2" in str(error.value)


def test_the_first_of_several_bad_rows_is_told_with_their_number(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"question": "q", "answer": "7"}\nnot JSON\n{"question": "q"}\n{}\n')
    with pytest.raises(ConfigError, match=r"row 2: not JSON .*\n\(and 2 more rows cannot be used"):
        training_examples(configured(data=str(file)))


def test_named_columns_are_read_and_no_other() -> None:
    record = {"question": "usual", "answer": "usual", "q": "named", "g": "7", "level": 3, "tags": ["a", None]}
    columns = Columns("q", "g", ("level", "tags"))
    row = to_example(record, where="here", columns=columns)
    assert (row.question, row.gold, row.metadata) == ("named", "7", {"level": 3, "tags": ["a", None]})
    assert (row.question_column, row.gold_column) == ("q", "g")
    for missing, message in [
        ({"q": "named"} | {"answer": "7"}, "no gold (--gold-column g); keys found: q, answer"),
        ({"question": "q", "g": "7"}, "no question (--question-column q)"),
        ({"q": "named", "g": None}, "no gold: g (--gold-column) is empty"),
        ({"q": "named", "g": "7", "level": 3}, "no column tags (--metadata-column); keys found: q, g, level"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(f"here: {message}")):
            to_example(missing, where="here", columns=columns)


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud83d", 2**64, {"deep": [float("inf")]}])
def test_metadata_that_cannot_be_sent_is_refused_before_training(value: object) -> None:
    with pytest.raises(ConfigError, match=r"here: (extra cannot be sent|.* hold half of a character)"):
        to_example({"question": "q", "answer": "7", "extra": value}, where="here", columns=Columns(metadata=("extra",)))


def test_messages_of_a_table_lose_the_keys_that_are_null() -> None:
    messages = [{"role": "system", "content": "s", "tool_calls": None}, ASKED | {"name": None}]
    row = to_example({"messages": messages, "answer": "7"}, where="here")
    assert row.question == [{"role": "system", "content": "s"}, ASKED]


def test_csv_golds_are_text_as_they_stand_and_messages_are_json(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text('messages,answer\n"[{""role"": ""user"", ""content"": ""q""}]",1.10\n')
    (row,) = training_examples(configured(data=str(file)))
    assert (row.question, row.gold) == ([ASKED], "1.10")


def test_a_line_separator_within_a_string_does_not_end_the_row(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    row = {"question": "a\u2028b\x85c\x0cd", "answer": "7"}
    file.write_text(json.dumps(row, ensure_ascii=False) + "\n")
    (read,) = training_examples(configured(data=str(file)))
    assert read.question == row["question"]


def test_gsm8k_is_read_and_held_out_from_one_folder(shared: Path) -> None:
    config = configured(data=str(shared / "data/gsm8k"), eval_prompts=1_319)
    rows = training_examples(config)
    assert len(rows) == 7473
    assert rows[0].gold == "72"
    assert len(evaluation_examples(config)) == 1_319


@pytest.mark.parametrize(
    ("files", "changes", "expected"),
    [
        (["train", "valid", "test"], {}, ["valid"]),
        (["train", "test"], {}, ["test"]),
        (["train"], {}, []),
        (["train", "test"], {"eval_every": 0}, []),
        (["train", "valid", "test"], {"eval_data": "test.jsonl"}, ["test"]),
    ],
)
def test_the_held_out_file_of_a_folder_is_evaluated_on(
    files: list[str], changes: dict[str, object], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"question": name, "answer": "7"}))
    config = configured(data=str(tmp_path), **changes)
    assert [row.question for row in training_examples(config)] == ["train"]
    assert [row.question for row in evaluation_examples(config)] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gold_column": "g"}, "--data addition has no columns"),
        ({"epochs": 2, "steps": 7}, "--epochs 2 and --steps 7"),
    ],
)
def test_options_that_contradict_each_other_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        training_examples(configured(**changes))


def test_held_out_pairs_are_never_trained_on() -> None:
    def numbers(row: Example) -> list[int]:
        return [int(one) for one in re.findall(r"\d+", str(row.question))]

    def pairs(rows: Any) -> set[tuple[int, ...]]:
        assert all(str(sum(numbers(row))) == row.gold for row in rows)
        return {tuple(sorted(numbers(row))) for row in rows}

    config, other = configured(seed=1, eval_prompts=9_999), configured(seed=2, eval_prompts=9_999)
    assert not pairs(training_examples(config)) & pairs(evaluation_examples(config))
    assert len(evaluation_examples(config)) >= 64
    assert evaluation_examples(config) == evaluation_examples(config)
    assert evaluation_examples(config) != evaluation_examples(other)


def test_the_columns_of_the_config_are_read(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"question": "not this", "answer": "not this", "q": "this", "g": "7", "level": 2}))
    columns = {"question_column": "q", "gold_column": "g", "metadata_column": ("level",)}
    (row,) = training_examples(configured(data=str(file), **columns))
    assert (row.question, row.gold, row.metadata) == ("this", "7", {"level": 2})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a dataset of two configurations; the library finds it in a folder instead of on the hub."""
    datasets = pytest.importorskip("datasets")
    configs = []
    for config in ("main", "socratic"):
        files = []
        for split in ("train", "test", "more", "last"):
            file = tmp_path / "hub" / "someone" / "some" / config / f"{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"question": f"{config} {split}", "answer": "7"}))
            files.append({"split": split, "path": f"{config}/{split}.jsonl"})
        configs.append({"config_name": config, "data_files": files})
    (tmp_path / "hub/someone/some/README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")
    load = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, *rest, **more: load(f"{tmp_path}/hub/{name}", *rest, **more)
    )
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return "someone/some"


@pytest.mark.parametrize(
    ("changes", "train", "held_out"),
    [
        ({"data_config": "main"}, "main train", "main test"),
        ({"data_config": "socratic"}, "socratic train", "socratic test"),
        ({"data_config": "main", "data_split": "more", "eval_split": "last"}, "main more", "main last"),
    ],
)
def test_of_a_hugging_face_dataset_the_named_configuration_and_splits_are_read(
    changes: dict[str, object], train: str, held_out: str, hub: str
) -> None:
    config = configured(data=hub, eval_data=hub, **changes)
    assert [row.question for row in training_examples(config)] == [train]
    assert [row.question for row in evaluation_examples(config)] == [held_out]


# ---- prompts -----------------------------------------------------------------------------------------------


def test_prompts_go_through_the_template_once_and_long_ones_are_left_out() -> None:
    tokenizer = tiny_tokenizer()
    rows = [
        to_example({"question": "2+2?", "answer": "4", "level": 1}, where="", columns=Columns(metadata=("level",))),
        to_example({"question": "x" * 99, "answer": "4"}, where="", number=5),
    ]
    few_shot = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    prompts = build_prompts(rows, tokenizer, system="Add.", few_shot=few_shot, limit=80)
    assert [(one.index, one.metadata) for one in prompts] == [(0, {"level": 1})]
    text = tokenizer.decode(prompts[0].token_ids)
    assert text == "<|system|>Add.<|end|><|user|>1+1?<|end|><|assistant|>2<|end|><|user|>2+2?<|end|><|assistant|>"
    assert left_out(rows, prompts, limit=80) == "1 over --max-prompt-length 80 left out: row 5"
    assert left_out(rows[:1], prompts, limit=80) == ""
    with pytest.raises(ConfigError, match="the shortest has"):
        build_prompts(rows, tokenizer, system=None, few_shot=[], limit=3)


def test_messages_that_the_template_refuses_are_named() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    )
    row = to_example({"question": "2+2?", "answer": "4"}, where="", number=3)
    with pytest.raises(
        ConfigError, match=r"row 3: .* refuses the messages \(system, user\): System role not supported"
    ):
        build_prompts([row], tokenizer, system="Add.", few_shot=[], limit=80)


@pytest.mark.parametrize("line", ['{"question": "q"}', '{"question": "q", "completion": 7}', "not JSON", "[]"])
def test_few_shot_rows_have_a_question_and_a_completion(line: str, tmp_path: Path) -> None:
    file = tmp_path / "shots.jsonl"
    good = '{"question": "q", "completion": "c"}\n\n'
    file.write_text(good)
    assert read_few_shot(file) == [ASKED, {"role": "assistant", "content": "c"}]
    assert read_few_shot(None) == []
    file.write_text(good + line)
    with pytest.raises(ConfigError, match=r"--few-shot .*, row 3: "):
        read_few_shot(file)


def test_the_prompts_of_a_config_have_its_system_message_its_examples_and_its_limit(tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text(json.dumps({"question": "1+1?", "completion": "2"}))
    rows = [to_example({"question": text, "answer": "4"}, where="") for text in ("2+2?", "x" * 99)]
    build = prompt_builder(configured(system_prompt="Add.", few_shot=few, max_prompt_length=80))
    (prompt,) = build(rows, tiny_tokenizer())
    assert [message["content"] for message in prompt.messages] == ["Add.", "1+1?", "2", "2+2?"]
    assert len(prompt_builder(configured())(rows, tiny_tokenizer())) == 2


def test_the_suites_of_the_ancestors_come_with_their_system_message_unless_another_is_named() -> None:
    assert [system_prompt(configured(suite=suite)) for suite in ("r1@1", "simple_grpo@1", "mine@1")] == [
        *(R1_SYSTEM_PROMPT, R1_SYSTEM_PROMPT),
        None,
    ]
    assert system_prompt(configured(system_prompt="")) == ""


# ---- what a template opens ----------------------------------------------------------------------------------

OPENS = TEMPLATE.replace("<|assistant|>{% endif", "<|assistant|>{{ opened }}{% endif")
THINKING = TEMPLATE.replace(
    "<|assistant|>{% endif",
    "<|assistant|>{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif",
)


@pytest.mark.parametrize(
    ("opened", "opening"),
    [
        ("", ""),
        ("<think>\n", "<think>\n"),
        ("\n<think>\n", "<think>\n"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("<start_of_turn>model\n", ""),
        ("<start_of_turn>model\n<reasoning>", "<reasoning>"),
        ("a < b > c", ""),
    ],
)
def test_what_the_template_opens_of_the_answer_is_told_from_its_header(opened: str, opening: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<start_of_turn>"]})
    tokenizer.chat_template = OPENS
    built = partial(build_prompts, [Example("1 + 1?", "2")], tokenizer, system=None, few_shot=[], limit=99)
    (prompt,) = built(template=Template({"opened": opened}))
    assert prompt.opening == opening
    assert tokenizer.decode(prompt.token_ids).endswith(f"<|assistant|>{opened}")
    (prompt,) = built(template=Template({"opened": opened}, keeps_opening=False))
    assert prompt.opening == ""


def test_arguments_reach_the_template() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = THINKING
    for given, opening in ([], "<think>\n"), (["enable_thinking=false"], "<think>\n\n</think>\n\n"):
        build = prompt_builder(configured(template_arg=given))
        (prompt,) = build([Example("1 + 1?", "2")], tokenizer)
        assert prompt.opening == opening
        assert tokenizer.decode(prompt.token_ids).endswith(opening)


@pytest.mark.parametrize("text", ["enable_thinking", "=false", "tokenize=true", "a b=1"])
def test_a_template_argument_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--template-arg"):
        prompt_builder(configured(template_arg=[text]))


def test_a_prompt_does_not_end_with_a_token_that_the_tokenizer_adds() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    tokenizer._tokenizer.post_processor = TemplateProcessing(single="$A <|end|>", special_tokens=[("<|end|>", 256)])
    assert tokenizer.encode("x")[-1] == tokenizer.eos_token_id
    (prompt,) = build_prompts([Example("x", "2")], tokenizer, system=None, few_shot=[], limit=99)
    assert tokenizer.decode(prompt.token_ids) == "x\n"
