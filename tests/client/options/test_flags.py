"""Arguments as they are written: `-` and `_` are alike in the name of a flag, and nothing is done to its value."""

from __future__ import annotations

import pytest

from grpo_client.config import TrainConfig
from grpo_client.options.flags import Parser, all_flags


@pytest.mark.parametrize("value", ["my_run", "my-run", "_a-b_", "a=b_c", "x--y_z", "./some_folder/--odd_name"])
@pytest.mark.parametrize("name", ["--run-name", "--run_name"])
@pytest.mark.parametrize("joint", ["=", " "])
def test_a_value_keeps_its_dashes_and_underscores(name: str, joint: str, value: str) -> None:
    parser = Parser("train", description="")
    parser.add_flags(all_flags(TrainConfig))
    given = parser.read([f"{name}={value}"] if joint == "=" else [name, value])
    assert given.faults == []
    assert [(one.name, one.value, one.where) for one in given.settings[TrainConfig]] == [
        ("run_name", value, "--run-name")
    ]
