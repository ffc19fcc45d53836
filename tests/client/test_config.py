"""What each setting says of itself, and what `--help`, a resume, the model card and other commands make of it."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
import yaml

from grpo_client import choices
from grpo_client.commands import common
from grpo_client.commands.train import parser
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.evaluation import evaluation_sampling
from grpo_client.learning.kl import KL_ESTIMATORS
from grpo_client.learning.losses import AGGREGATIONS, IMPORTANCE_CORRECTIONS, OBJECTIVES, LossConfig
from grpo_client.options.option import section
from grpo_client.storage.provenance import check_config
from grpo_client.types import Sampling
from tests.client.runs import Run
from tests.conftest import ROOT

TITLES = ["model and data", "rewards", "sampling", "learning", "adapters", "machine", "what is written"]


def configured(**changes: Any) -> TrainConfig:
    return TrainConfig.model_validate({"suite": "r1@1", "output_dir": "run"} | changes)


def headings(help_: str) -> dict[str, set[str]]:
    """The first name of each flag in a help text, under its heading."""
    found: dict[str, set[str]] = {}
    for line in help_.splitlines():
        if heading := re.fullmatch(r"(\w[\w ]*):", line):
            found[heading[1]] = here = set()
        elif flag := re.match(r"  (--?[\w-]+)", line):
            here.add(flag[1])
    return found


# ---- train --help ------------------------------------------------------------------------------------------


def test_every_setting_stands_under_a_title_and_the_titles_come_in_order() -> None:
    assert list(dict.fromkeys(section(TrainConfig, name) for name in TrainConfig.model_fields)) == TITLES
    shown = headings(parser().format_help())
    assert [title for title in shown if title in TITLES] == TITLES
    assert shown["options"] == {"-h", "--config", "--dry-run"}


@pytest.mark.parametrize(
    ("title", "flags"),
    [
        ("model and data", ["--model", "--eval-data", "--epochs", "--max-prompt-length"]),
        ("rewards", ["--reward-url", "--reward", "--eval-reward", "--on-null"]),
        ("sampling", ["--steps", "--group-size", "--temperature", "--dynamic-sampling"]),
        ("learning", ["--loss", "--kl-coef", "--learning-rate", "--checkpoint-activations"]),
        ("adapters", ["--lora-rank", "--adapter"]),
        ("machine", ["--backend", "--device", "--seed"]),
        ("what is written", ["--output-dir", "--eval-every", "--resume", "--metrics-port"]),
    ],
)
def test_help_has_a_setting_where_one_looks_for_it(title: str, flags: list[str]) -> None:
    assert set(flags) <= headings(parser().format_help())[title]


def test_every_setting_has_a_text() -> None:
    assert [name for name, field in TrainConfig.model_fields.items() if not field.description] == []


def test_the_readme_lists_every_setting_in_its_group() -> None:
    text = (ROOT / "grpo_client" / "README.md").read_text(encoding="utf-8")
    listed = {title: re.findall(r"`--([\w-]+)`", text.split(f"\n| {title} |")[1].split("\n")[0]) for title in TITLES}
    fields = [(section(TrainConfig, name), name.replace("_", "-")) for name in TrainConfig.model_fields]
    assert listed == {title: [name for home, name in fields if home == title] for title in TITLES}


# ---- a resume ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"reward_url": "http://127.0.0.1:1"},
        {"reward_timeout": 5.0, "reward_retry_seconds": 1.0},
        {"on_null": "worst", "max_null_fraction": 0.1, "max_not_finite": 2},
        {"suite": None, "reward": ("r1.int@1",), "eval_reward": "r1.int@1", "accept_reward_change": True},
        {"steps": 7, "epochs": 2},
        {"output_dir": "other", "overwrite": True, "resume": "auto"},
        {"save_every": 1, "keep_checkpoints": 1, "eval_every": 1, "show_completions_every": 0},
        {"report_to": ("wandb",), "run_name": "x", "metrics_port": 0},
        {"micro_batch_tokens": 9, "checkpoint_activations": True, "sampling_rows": 64, "device": "cpu"},
        {"eval_data": "x", "eval_prompts": 3, "eval_samples": 2, "eval_temperature": 1.0},
        {"model": "moved", "data": "moved"},  # their content is compared, not their place
    ],
    ids=str,
)
def test_a_resume_may_change_what_moves_no_number_but_by_rounding(change: dict[str, Any]) -> None:
    check_config(configured().model_dump(mode="json"), configured(**change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shuffle": False}, "--shuffle was True, is False"),
        ({"follow": True}, "--follow was False, is True"),
        ({"group_size": 4}, "--group-size was 8, is 4"),
        ({"temperature": 0.5}, "--temperature was 1.0, is 0.5"),
        ({"stop": ("7",)}, "--stop was [], is ['7']"),
        ({"clip_high": 0.2}, "--clip-high was 0.28, is 0.2"),
        ({"max_grad_norm": 2.0}, "--max-grad-norm was 1.0, is 2.0"),
        ({"lora_alpha": 8.0}, "--lora-alpha was 32.0, is 8.0"),
        ({"dtype": "bfloat16"}, "--dtype was float32, is bfloat16"),
        ({"seed": 1, "top_k": 2, "eval_prompts": 1}, "--top-k was 0, is 2; --seed was 0, is 1"),
    ],
    ids=str,
)
def test_a_resume_may_not_change_what_is_learnt_from_what(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_config(configured().model_dump(mode="json"), configured(**change))


def test_a_checkpoint_from_before_a_setting_went_is_gone_on_from() -> None:
    check_config(configured().model_dump(mode="json") | {"max_resample": 5, "metrics_host": "::1"}, configured())


# ---- commands that train nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["eval", "generate", "validate-data"])
def test_other_commands_offer_what_says_which_model_samples_how(command: str, run: Run) -> None:
    shown = headings(run(command, "--help")[1])
    assert shown["model"] == {"--adapter", "--model", "--backend", "--device", "--dtype"}
    assert shown["prompts"] == {
        *("--system-prompt", "--template-arg", "--template-opening", "--few-shot", "--max-prompt-length"),
        *("--data-config", "--question-column", "--gold-column"),
    }
    assert shown["sampling"] == {
        *("--max-completion-length", "--top-p", "--top-k", "--min-p", "--stop", "--sampling-rows", "--seed"),
    }
    service = {"--reward-url", "--reward-timeout", "--reward-retry-seconds"}
    assert shown.get("service") == (service if command == "eval" else None)


@pytest.mark.parametrize(
    "settings",
    [
        {"lora_rank": 4, "lora_alpha": 8.0, "lora_targets": ["q_proj"], "dora": True},
        {"kl_coef": 0.1, "ref_model": "x", "ref_dtype": "bfloat16"},
        {"beta": 0.1, "reference-model-path": "x", "lora-r": 4},
    ],
    ids=str,
)
def test_they_leave_how_a_run_trained_out_of_its_config(settings: dict[str, Any], tmp_path: Any) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings | {"top_k": 5}))
    reader = common.parser("grpo-client generate", TrainConfig, [], service=False, summary="", examples="")
    given = reader.read(["--config", str(tmp_path / "run.yaml"), "--adapter", "mine"])
    config = common.config_of(TrainConfig, given)
    assert (config.top_k, config.lora_rank, config.kl_coef, config.ref_model, config.dora) == (5, 0, 0.0, None, False)


# ---- the loss ----------------------------------------------------------------------------------------------


def test_a_config_and_a_loss_by_themselves_default_to_the_same() -> None:
    assert configured().loss_config() == LossConfig()


@pytest.mark.parametrize(
    ("field", "table"),
    [
        ("loss", AGGREGATIONS),
        ("objective", OBJECTIVES),
        ("kl_estimator", KL_ESTIMATORS),
        ("importance_correction", IMPORTANCE_CORRECTIONS),
    ],
)
def test_every_piece_of_a_loss_can_be_asked_for(field: str, table: dict[str, object]) -> None:
    assert set(get_args(TrainConfig.model_fields[field].annotation)) == set(table)


def test_each_number_of_a_config_reaches_the_loss() -> None:
    numbers: dict[str, Any] = {
        "objective": "gspo",
        "kl_coef": 0.5,
        "kl_estimator": "k2",
        "clip_low": 0.1,
        "clip_high": 0.4,
        "ratio_cap": 3.0,
        "cispo_max_ratio": 2.0,
        "importance_correction": "mask",
        "importance_cap": 4.0,
        "importance_floor": 0.25,
    }
    assert configured(loss="grpo", **numbers).loss_config() == LossConfig(aggregation="grpo", **numbers)


def test_a_kl_in_the_reward_is_not_in_the_loss() -> None:
    assert configured(kl_coef=0.5, kl_in="reward").loss_config() == LossConfig()


# ---- sampling ----------------------------------------------------------------------------------------------

NARROW: dict[str, Any] = {"max_completion_length": 9, "top_k": 5, "top_p": 0.5, "min_p": 0.25, "seed": 3}
NARROWED: dict[str, Any] = {"max_tokens": 9, "top_k": 5, "top_p": 0.5, "min_p": 0.25, "seed": 3}


def test_training_samples_as_it_is_told() -> None:
    config = configured(**NARROW, group_size=4, temperature=0.5, sampling_rows=16, ignore_eos=True)
    asked = Sampling(**NARROWED, group_size=4, temperature=0.5, rows=16, ignore_eos=True, step=2)
    assert choices.sampling(config, step=2) == asked


def test_evaluation_samples_by_its_own_numbers_from_the_same_vocabulary_and_stops_where_answers_end() -> None:
    config = configured(**NARROW, group_size=4, sampling_rows=16, ignore_eos=True, eval_samples=20, eval_temperature=2)
    asked = Sampling(**NARROWED, group_size=20, temperature=2.0, rows=20, stream=1)
    assert evaluation_sampling(config) == asked
