"""The README.md of a saved model: read by the hub, safe to render, and enough to make the model again."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from markdown_it.token import Token

from grpo_client.commands.train import parser
from grpo_client.config import TrainConfig
from grpo_client.options.settings import resolve
from grpo_client.reports.model_card import code, command, front_matter, model_card, public_settings
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.types import Metrics
from tests.conftest import Server

RIGHT: Metrics = {"eval/reward_id": "math.equal@1", "eval/reward_digest": "sha256:e"}
ROWS: list[Metrics] = [
    {"step": 0, "eval/accuracy": 0.25, "eval/null": 1, **RIGHT},
    {"step": 1, "reward": 0.5, "rewards/r1.int@1/mean": 0.125, "reward/null/timeout": 2, "reward/suite": "r1@1"},
    {"step": 2, "reward": 0.75, "rewards/r1.int@1/mean": 0.25, "reward/null/timeout": 0, "reward/suite": "r1@1",
     "eval/accuracy": 0.875, "eval/null": 0, **RIGHT},
    {"step": 3, "reward": 1.0, "rewards/r1.int@1/mean": 0.5, "reward/null/timeout": 1, "reward/suite": "r1@1",
     "eval/accuracy": 0.5, "eval/null": 0, **RIGHT},
]  # fmt: skip
VERSIONS = {"hallmark-rl": "0.1.0", "torch": "2.13.0"}


@pytest.fixture
def manifest(server: Server) -> Manifest:
    with RewardClient(server.url) as rewards:
        return rewards.resolve(suite="r1@1", rewards=[])


def configured(**changes: Any) -> TrainConfig:
    return TrainConfig.model_validate({"suite": "r1@1", "output_dir": "runs/first"} | changes)


def parsed(text: str) -> list[Token]:
    return MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, as a renderer reads them."""
    found: list[list[list[str]]] = []
    for token in parsed(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and found and token.level > 2:
            found[-1][-1].append("".join(child.content for child in token.children or []))
    return found


def test_a_card_tells_what_paid_the_model_and_how_it_fared(manifest: Manifest) -> None:
    text = model_card(configured(), manifest, ROWS, step=3, versions=VERSIONS)
    rewards, training, evaluation, settings = tables(text)
    assert [row[:2] for row in rewards[1:]] == [[spec.id, spec.id] for spec in manifest.rewards]
    assert [row[2] for row in rewards[1:]] == ["0.2"] * 5
    assert [row[4:] for row in rewards[1:]] == [["released", spec.digest] for spec in manifest.rewards]
    assert f"`{manifest.service}`, as the suite `r1@1`" in text
    assert training[:3] == [
        ["mean over a step", "step 1", "step 3"],
        ["reward", "0.5", "1"],
        ["r1.int@1", "0.125", "0.5"],
    ]
    assert ["kl", "unknown", "unknown"] in training
    assert "left out of the learning: 3." in text
    assert evaluation[1:] == [["0", "0.25", "1"], ["2", "0.875", "0"], ["3", "0.5", "0"]]
    assert "right by `math.equal@1`, `sha256:e`" in text
    assert {"setting": "value", "loss": "dapo", "scale_rewards": "group"}.items() <= {
        row[0]: row[1] for row in settings
    }.items()
    assert {row[0] for row in settings[1:]} == {
        *("loss", "objective", "advantages", "scale_rewards", "kl_coef", "kl_estimator", "kl_in", "num_iterations"),
        *("minibatches", "prompts_per_step", "group_size", "max_completion_length", "temperature", "learning_rate"),
        *("lr_schedule", "lora_rank", "dtype", "seed"),
    }
    assert "`torch` `2.13.0`" in text
    assert "moved during the training" not in text


def test_a_card_of_a_model_that_was_never_evaluated_or_trained_says_nothing_of_it(manifest: Manifest) -> None:
    text = model_card(configured(steps=0), manifest, [{"step": 0}], step=0, versions={})
    assert len(tables(text)) == 2
    assert "## Evaluation" not in text


def test_a_card_says_that_the_rewards_moved(manifest: Manifest) -> None:
    rows: list[Metrics] = [{"step": n, "reward": 0.0, "reward/suite": f"mine@{1 + (n > 2)}"} for n in range(1, 5)]
    rows[3]["reward/changed"] = "math.equal@1: weight was 1, is 2"
    text = model_card(configured(suite="mine@stable", follow=True), manifest, rows, step=4, versions={})
    assert "moved during the training: `mine@1` scored steps 1 to 2; `mine@2` scored steps 3 to 4." in text
    assert "Other rewards than before were accepted on resuming at step 4." in text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model": "smollm2"}, {"base_model": "HuggingFaceTB/SmolLM2-135M-Instruct", "library_name": "transformers"}),
        ({"model": "Qwen/Qwen3-0.6B"}, {"base_model": "Qwen/Qwen3-0.6B", "datasets": None}),
        ({"data": "openai/gsm8k"}, {"datasets": ["openai/gsm8k"]}),
        ({"model": "/models/mine", "data": "/data/a.jsonl"}, {"base_model": None, "datasets": None}),
        ({"model": "tests/client", "data": "tests/client"}, {"base_model": None, "datasets": None}),
        ({"model": "models/x.gguf", "data": "data/train.jsonl"}, {"base_model": None, "datasets": None}),
        ({"lora_rank": 8}, {"library_name": "peft", "tags": ["grpo", "reinforcement-learning", "hallmark", "lora"]}),
    ],
)  # fmt: skip
def test_the_front_matter_names_hub_ids_only_and_the_hub_reads_it(
    settings: dict[str, Any], expected: dict[str, Any], manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    config = configured(**settings)
    read = ModelCard(model_card(config, manifest, ROWS, step=3, versions=VERSIONS)).data.to_dict()
    assert {key: read.get(key) for key in expected} == expected
    assert read["pipeline_tag"] == "text-generation"
    assert read == front_matter(config)


HOSTILE = "a``b`|<script>alert(1)</script>\n\n# Owned\n\n![x](http://evil.test/y) **z** ---"


def test_no_value_becomes_markup(manifest: Manifest) -> None:
    config = configured(model=HOSTILE, data=HOSTILE, run_name=HOSTILE, system_prompt=HOSTILE, stop=["```\n# Owned\n"])
    specs = tuple(spec.model_copy(update={"name": HOSTILE, "params": {"x": HOSTILE}}) for spec in manifest.rewards)
    rows = [row | {"reward/suite": f"{HOSTILE}{row['step']}", f"rewards/{HOSTILE}/mean": 1.0} for row in ROWS]
    text = model_card(config, Manifest(HOSTILE, specs, manifest.infos, HOSTILE), rows, step=3, versions={"x": HOSTILE})
    tokens = parsed(text.partition("\n---\n")[2])
    inline = [child for token in tokens for child in token.children or []]
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens + inline}
    assert kinds == {
        *("heading", "paragraph", "inline", "text", "code_inline", "fence"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert headings[1:] == ["Rewards", "Training", "Evaluation", "Settings"]
    for table in tables(text):
        assert len({len(row) for row in table}) == 1
    assert ModelCard(text).data.to_dict()["library_name"] == "transformers"


@pytest.mark.parametrize("text", ["a", "`", "``a`", " a ", "a|b", "\\|", ""])
def test_a_code_span_reads_as_its_text(text: str) -> None:
    (token,) = [child for one in parsed(f"x {code(text)} y") for child in one.children or [] if child.type != "text"]
    assert token.type == "code_inline"
    assert token.content.strip() == text.strip()


def test_the_command_makes_the_same_configuration_again() -> None:
    config = configured(
        suite=None, reward=["math.equal@1=2", "r1.int@1"], model="it's \"mine\" $HOME", few_shot="few.jsonl",
        system_prompt="line\nline `x`", steps=7, learning_rate=2.5e-6, ignore_eos=True, shuffle=False,
        stop=["</s>", "--end", "2"], scale_rewards="batch",
        report_to=["wandb"], metrics_port=9000, overwrite=True, run_name="x",
    )  # fmt: skip
    words = shlex.split(command(config))
    assert words[:2] == ["grpo-client", "train"]
    assert not {"--output-dir", "--overwrite", "--run-name", "--report-to", "--metrics-port"} & set(words)
    given = parser().read(words[2:])
    again = resolve(TrainConfig, given.settings[TrainConfig], faults=given.faults)
    kept = {"output_dir": config.output_dir, "overwrite": True, "run_name": "x", "metrics_port": 9000}
    assert again.model_copy(update=kept | {"report_to": ("wandb",)}) == config


def test_what_is_shown_of_a_config_holds_no_password(manifest: Manifest) -> None:
    config = configured(reward_url="http://ada:secret@rewards.test:8000/x")
    assert public_settings(config)["reward_url"] == "http://rewards.test:8000/x"
    assert "secret" not in model_card(config, manifest, ROWS, step=3, versions={})
