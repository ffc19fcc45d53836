"""What is said, before anything is drawn, of ids that no model has and of turns that end with what stops nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from grpo_client.backends.draws import check_ids, turn_end_note
from grpo_client.data.prompts import Template
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt
from tests.client.tiny import TEMPLATE, tiny_tokenizer

END, ASSISTANT = 256, 259


def tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    made: Any = tiny_tokenizer()
    made.chat_template = template
    one: PreTrainedTokenizerFast = made
    return one


@pytest.mark.parametrize(
    ("template", "stops", "said"),
    [
        (TEMPLATE, {END}, None),
        (TEMPLATE, {1, END}, None),
        (TEMPLATE, {ASSISTANT}, r"ends an answer with '<\|end\|>'.*'<\|assistant\|>'.*--stop '<\|end\|>'"),
        (TEMPLATE, set(), "there is none"),
        (TEMPLATE.replace("<|end|>", "<|end|>\n"), {END}, None),  # as ChatML has it
        (TEMPLATE.replace("<|end|>", "\n<|end|>"), {END}, None),
        (TEMPLATE.replace("<|end|>", "\n"), {END}, None),  # white space alone may stand inside of an answer, too
        (TEMPLATE.replace("<|end|>", "###"), {END}, "'###'"),
        (TEMPLATE.replace("m['content']", "m['content'] | upper"), {END}, None),  # no place to look behind
        ("{{ raise_exception('no assistants here') }}", {END}, None),
        (None, {END}, None),
    ],
)
def test_a_turn_end_that_stops_nothing_is_told_with_what_to_do(
    template: str | None, stops: set[int], said: str | None
) -> None:
    note = turn_end_note(tokenizer(template), frozenset(stops), Template())
    if said is None:
        assert note is None
    else:
        assert note is not None
        assert re.search(said, note)


def test_a_token_that_the_model_has_no_embedding_of_is_refused_with_its_prompt() -> None:
    prompts = [Prompt(0, [], (0, 259), "1"), Prompt(7, [], (3, 260, 2), "1"), Prompt(8, [], (), "1")]
    check_ids(prompts[:1], vocabulary=260)
    with pytest.raises(ConfigError, match="prompt 8 has token 260, and the model embeds 260"):
        check_ids(prompts, vocabulary=260)
