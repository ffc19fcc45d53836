"""Golds with the `####` of GSM8K: what follows the last one, however many there are."""

from __future__ import annotations

import pytest

from grpo_client.data.examples import to_example
from grpo_client.errors import ConfigError


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("#### 7", "7"),
        ("first #### 5, then more\n#### 7", "7"),
        ("#### 5\n#### 6\n#### 7", "7"),
        ("a table ######## 5 #### 7", "7"),
        ("##### 7", "7"),
        ("#### 5\n\n  #### x = 1, y = 2 \n", "x = 1, y = 2"),
        (["#### 5", "#### 6 #### 7"], ["#### 5", "#### 6 #### 7"]),  # a list names its golds as they are
    ],
)
def test_the_gold_is_what_follows_the_last_mark(answer: object, gold: object) -> None:
    assert to_example({"question": "q", "answer": answer}, where="here").gold == gold


@pytest.mark.parametrize("answer", ["#### 7 ####", "#### 7\n####  \n", "####"])
def test_nothing_behind_the_last_mark_is_no_gold_whatever_stands_before_it(answer: str) -> None:
    with pytest.raises(ConfigError, match="nothing follows the ####"):
        to_example({"question": "q", "answer": answer}, where="here")
