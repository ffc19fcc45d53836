"""YAML, flags and defaults to one config: what wins, what a value means, and what is said when it cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_client.commands.train import parser
from grpo_client.config import TrainConfig, load_config
from grpo_client.errors import ConfigError
from grpo_client.options.settings import resolve
from grpo_client.options.spellings import DIFFERENT, spellings
from grpo_client.options.yaml_file import read_yaml


def parsed(*arguments: str, file: Path | None = None) -> TrainConfig:
    """What `grpo-client train` would train."""
    given = parser().read(arguments)
    return resolve(TrainConfig, [*(read_yaml(file) if file else []), *given.settings[TrainConfig]], faults=given.faults)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        file = tmp_path / "run.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_flags_come_before_the_file_and_the_file_before_defaults(write: Any) -> None:
    file = write("suite: r1@1\nlearning_rate: 2e-5\nsteps: 7\n")
    config = parsed("--learning-rate", "1e-5", file=file)
    assert (config.learning_rate, config.steps, config.group_size) == (1e-5, 7, 8)


@pytest.mark.parametrize("arguments", [["--suite", "r1@1"], ["--reward", "r1.int@1"]])
def test_the_merged_settings_are_judged_and_not_the_file_alone(arguments: list[str], write: Any) -> None:
    assert parsed(*arguments, file=write("steps: 7\n")).steps == 7


@pytest.mark.parametrize(
    ("text", "arguments", "suite", "reward"),
    [
        ("suite: r1@1", ["--reward", "r1.int@1"], None, ("r1.int@1",)),
        ("reward: [r1.int@1, r1.accuracy@1]", ["--suite", "r1@1"], "r1@1", ()),
        ("reward: r1.int@1=0.5", [], None, ("r1.int@1=0.5",)),
    ],
)
def test_rewards_named_by_flags_stand_for_those_of_the_file(
    text: str, arguments: list[str], suite: str | None, reward: tuple[str, ...], write: Any
) -> None:
    config = parsed(*arguments, file=write(text))
    assert (config.suite, config.reward) == (suite, reward)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("learning_rate: 1e-5", "learning_rate", 1e-5),
        ("learning_rate: 1E-05", "learning_rate", 1e-5),
        ("learning-rate: 5.0e-7", "learning_rate", 5e-7),
        ("kl_coef: .04", "kl_coef", 0.04),
        ("steps: 010", "steps", 10),
        ("dynamic_sampling: off", "dynamic_sampling", "off"),
        ("dynamic_sampling: no", "dynamic_sampling", "off"),
        ("dynamic_sampling: false", "dynamic_sampling", "off"),
        ("importance-correction: OFF", "importance_correction", None),
        ("overwrite: yes", "overwrite", True),
        ("overwrite: off", "overwrite", False),
        ("overwrite: False", "overwrite", False),
        ("data_config: 1.10", "data_config", "1.10"),
        ("data_config: 2024-01-01", "data_config", "2024-01-01"),
        ("data_config: 12:30", "data_config", "12:30"),
        ("data_config: no", "data_config", "no"),
        ("data_config: null", "data_config", None),
        ("data_config: ~", "data_config", None),
        ("data_config:", "data_config", None),
        ("data_config: 'null'", "data_config", "null"),
        ("scale_rewards: none", "scale_rewards", "none"),
        ("stop: 7", "stop", ("7",)),
        ("stop: [7, '<|end|>', no]", "stop", ("7", "<|end|>", "no")),
        ("output_dir: runs/a b", "output_dir", Path("runs/a b")),
    ],
)
def test_a_value_in_a_file_means_what_it_means_as_a_flag(line: str, field: str, value: object, write: Any) -> None:
    file = write(f"suite: r1@1\n{line}\n")
    if value is None and field == "importance_correction":
        with pytest.raises(ConfigError, match="must be 'off'"):
            parsed(file=file)
    else:
        assert getattr(parsed(file=file), field) == value


@pytest.mark.parametrize(("other", "field"), sorted((a, b) for a, b in spellings(TrainConfig).items() if a != b))
def test_other_trainers_names_mean_the_field_in_files_and_flags(other: str, field: str, write: Any) -> None:
    annotation = TrainConfig.model_fields[field].annotation
    text, more = {"lr_schedule": ("linear", []), "ref_model": ("x", ["--kl-coef", "1"])}.get(field, ("3", []))
    text = "true" if annotation is bool else text
    flags = ["--suite", "r1@1", *more]
    want = getattr(parsed(*flags, f"--{field}", text), field)
    assert want != TrainConfig.model_fields[field].default
    assert getattr(parsed(*flags, f"--{other.replace('_', '-')}", text), field) == want
    assert getattr(parsed(*flags, f"--{other}={text}"), field) == want
    assert getattr(parsed(*flags, file=write(f"{other}: {text}\n")), field) == want
    assert getattr(parsed(*flags, file=write(f"{other.replace('_', '-')}: {text}\n")), field) == want


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("epsilon", ["clips the ratio", "std of advantages"]),
        ("batch_size", ["counts prompts", "completions"]),
        ("per_device_train_batch_size", ["counts completions", "--prompts-per-step"]),
        ("epsilon_high", ["--clip-high", "--cispo-max-ratio"]),
        ("reward_funcs", ["--reward ID@VERSION"]),
        ("max_resample", ["three rounds", "leave it out"]),
        ("metrics_host", ["this machine alone", "proxy"]),
    ],
)
def test_a_name_that_means_two_things_is_refused_with_both(name: str, said: list[str], write: Any) -> None:
    for attempt in (
        lambda: parsed("--suite", "r1@1", f"--{name.replace('_', '-')}", "4"),
        lambda: parsed("--suite", "r1@1", f"--{name}=4"),
        lambda: parsed("--suite", "r1@1", file=write(f"{name}: 4")),
    ):
        with pytest.raises(ConfigError) as error:
            attempt()
        assert all(one in str(error.value) for one in said)
        assert "\n" not in str(error.value)


def test_no_refused_name_is_one_of_ours() -> None:
    assert not DIFFERENT.keys() & spellings(TrainConfig).keys()


def test_every_fault_of_file_and_flags_is_in_one_message_with_its_place(write: Any) -> None:
    file = write("steps: many\nlearing_rate: 1e-5\ndynamic_sampling: on\nsteps: 3\n? [a]\n: b\nseed: {a: 1}\n")
    with pytest.raises(ConfigError) as error:
        parsed("--temperature", "0", "--grup-size", "4", "--max_steps_", "stray", "--group-size", "1.5", file=file)
    lines = str(error.value).split("\n")
    assert lines[0].startswith(f"{len(lines) - 1} faults")
    for place, said in [
        (f"{file}, line 1, steps: ", "must be a valid integer, not 'many'"),
        (f"{file}, line 2, learing_rate: ", "the nearest is learning_rate"),
        (f"{file}, line 3, dynamic_sampling: ", "must be 'off', 'drop' or 'resample', not 'on'"),
        (f"{file}, line 4, steps: ", f"is set already ({file}, line 1, steps)"),
        (f"{file}, line 7, seed: ", "must be a valid integer"),
        ("--temperature: ", "must be greater than 0, not '0'"),
        ("--grup-size: ", "the nearest is --group-size"),
        ("--max-steps-: ", "the nearest is --max-steps"),
        ("--group-size: ", "must be a valid integer, not '1.5'"),
        ("name the rewards", "--suite NAME@VERSION"),
    ]:
        assert any(place in line and said in line for line in lines), (place, said, lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b\n", "one `name: value` a line"),
        ("suite: r1@1\nsteps: [1, 2\n", "line 3: not YAML"),
        ("suite: 'r1@1\n", "not YAML"),
        ("suite: !!python/object:os.system x\n", "not YAML"),
        ("\x00", "not YAML"),
        ("a: " + "[" * 5000, "too deep"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_with_its_name(text: str, said: str, write: Any) -> None:
    file = write(text)
    with pytest.raises(ConfigError, match=said) as error:
        parsed(file=file)
    assert str(file) in str(error.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_yaml(tmp_path / "nowhere.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="not a UTF-8 text"):
        read_yaml(tmp_path / "bad.yaml")


def test_a_long_value_is_cut_in_a_message(write: Any) -> None:
    with pytest.raises(ConfigError) as error:
        parsed("--suite", "r1@1", "--steps", "x" * 10_000)
    assert len(str(error.value)) < 200


def test_an_empty_file_sets_nothing(write: Any) -> None:
    for text in ("", "# nothing\n", "---\n"):
        assert parsed("--suite", "r1@1", "--output-dir", "a", file=write(text)) == parsed(
            "--suite", "r1@1", "--output-dir", "a"
        )


def test_the_saved_config_of_a_run_can_be_given_back(write: Any) -> None:
    config = parsed(
        *[
            "--reward",
            "a@1=2",
            "b@1",
            "--reward",
            "c@1",
            "--learning-rate",
            "3e-7",
            "--stop",
            "7",
            "--output-dir",
            "a/b",
        ],
        *["--overwrite", "--no-shuffle", "--few-shot", "x.jsonl", "--scale-rewards", "none", "--eval-data", "1.10"],
    )
    saved = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    assert parsed(file=write(saved)) == config
    assert load_config(write(saved)) == config
    assert load_config(write(saved), seed=3, stop=("8",)) == config.model_copy(update={"seed": 3, "stop": ("8",)})


@pytest.mark.parametrize("given", [["--overwrite"], ["--overwrite", "true"], ["--overwrite=yes"], ["--over_write"]])
def test_a_switch_may_be_bare_or_spelt_out(given: list[str]) -> None:
    if given == ["--over_write"]:
        with pytest.raises(ConfigError, match="nearest is --overwrite"):
            parsed("--suite", "r1@1", *given)
        return
    assert parsed("--suite", "r1@1", *given).overwrite
    assert not parsed("--suite", "r1@1", *given, "--no-overwrite").overwrite


def test_abbreviations_are_refused() -> None:
    with pytest.raises(ConfigError, match="nearest is --learning-rate"):
        parsed("--suite", "r1@1", "--learning-rat", "1e-5")


def test_a_flag_without_its_value_is_said() -> None:
    with pytest.raises(ConfigError, match=r"--steps.* expected one argument"):
        parsed("--suite", "r1@1", "--steps")


def test_every_field_is_in_the_help_with_its_names_and_default() -> None:
    text = " ".join(parser().format_help().split())
    for name in spellings(TrainConfig):
        assert f"--{name.replace('_', '-')}" in text
    assert "(default: 1e-06)" in text
    assert "--loss {dapo,grpo,dr_grpo,bnpo}" in text
    assert "examples:" in text
