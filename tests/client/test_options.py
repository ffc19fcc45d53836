"""Runs with each option of the loss, the rows, the schedule and the adapters; combinations that are refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from grpo_client.backends import load_backend
from grpo_client.backends.torch import sampling as torch_sampling
from grpo_client.backends.torch.backend import TorchBackend
from grpo_client.backends.torch.ways import WHOLE
from grpo_client.choices import sampling
from grpo_client.config import parse_reward
from grpo_client.data.order import prompt_order
from grpo_client.data.prompts import prompt_builder, training_examples
from grpo_client.errors import ConfigError
from grpo_client.learning.array_ops import Array, ArrayOps
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators, LossInputs
from grpo_client.learning.losses import LossConfig, LossOutputs, make_loss
from grpo_client.learning.schedule import make_schedule
from grpo_client.penalty import kl_penalties
from grpo_client.selfcheck import check_sampler
from grpo_client.train import train
from grpo_client.types import Group, Prompt, Rollout, Scores
from tests.client.failing import edited, proxy
from tests.client.runs import Configure, read
from tests.client.tiny import save_adapter, save_tiny, tiny_config, tiny_model
from tests.conftest import Server

OPTIONS: list[dict[str, Any]] = [
    {"loss": "grpo"},
    {"loss": "dr_grpo"},
    {"loss": "bnpo"},
    {"objective": "cispo"},
    {"objective": "gspo", "loss": "grpo", "clip_low": 3e-4, "clip_high": 4e-4},
    {"objective": "reinforce"},
    {"kl_estimator": "k3+"},
    {"kl_in": "reward"},
    {"advantages": "rloo"},
    {"advantages": "gdpo"},
    {"scale_rewards": "batch"},
    {"ratio_cap": 4.0, "num_iterations": 2, "minibatches": 3},
    {"importance_correction": "truncate"},
    {"mask_truncated": True},
    {"dynamic_sampling": "drop"},
    {"dynamic_sampling": "resample"},
    {"top_p": 0.9, "top_k": 50, "min_p": 0.01, "num_iterations": 2},
    {"temperature": 0.7},
    {"sampling_rows": 4},
    {"lr_schedule": "cosine", "warmup_steps": 2},
    {"dtype": "bfloat16"},
    {"lora_rank": 4},
    {"checkpoint_activations": True},
    {"stop": ("!", "7")},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_run_with_the_option_learns_and_its_numbers_are_finite(options: dict[str, Any], configure: Configure) -> None:
    rows = read(train(configure(eval_every=0, **options)) / "metrics.jsonl")[1:]
    config = configure(**options)
    assert len(rows) == 3
    for row in rows:
        assert row["update/applied"] in (0, config.updates_per_rollout)
        if row["update/applied"]:
            assert row["loss"] is not None
            assert row["grad_norm"] is not None
            assert row["sampling/logp_diff_max"] < (0.5 if config.dtype == "bfloat16" else 1e-3)
    assert any(row["update/applied"] for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "gspo"}, "use aggregation grpo"),
        ({"loss": "dr_grpo", "scale_rewards": "group"}, "unscaled advantages"),
        ({"loss": "dr_grpo", "advantages": "gdpo"}, "unscaled advantages"),
        ({"advantages": "rloo", "scale_rewards": "batch"}, "unscaled by definition"),
        ({"advantages": "gdpo", "scale_rewards": "group"}, "scales each reward"),
        ({"advantages": "gdpo", "kl_in": "reward"}, "no total reward"),
        ({"minibatches": 4}, "raise --prompts-per-step"),
        ({"objective": "reinforce", "num_iterations": 2}, "one update per rollout"),
        ({"ratio_cap": 1.1}, "above 1 \\+ clip_high"),
        ({"clip_low": 1.5}, "offset below 1"),
        ({"importance_floor": 0.5}, "for importance_correction mask"),
        ({"sampling_rows": 3}, "must hold a group"),
        ({"kl_coef": 0, "ref_model": "x"}, "--ref-model is for the KL"),
        ({"lora_rank": 2, "adapter": "x"}, "brings its own rank"),
        ({"top_p": 0}, "greater than 0"),
        ({"seed": 2**63}, "less than"),
        ({"suite": None, "reward": ("r1.int@1", "r1.int@1=2")}, "r1.int@1 is there twice"),
    ],
)
def test_a_combination_that_cannot_be_right_is_refused_with_the_configuration(
    options: dict[str, Any], message: str, configure: Configure
) -> None:
    with pytest.raises(ValidationError, match=message):
        configure(**options)


def test_a_stop_of_several_tokens_is_refused(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="not one token"):
        load_backend(configure(stop=("two",)))


# ---- which rows, which steps ---------------------------------------------------------------------------------


def flat(answer: dict[str, Any]) -> None:
    """The first group of every answer pays all its completions the same."""
    for group in answer["groups"]:
        if int(group["id"]) % 2 == 0:
            size = len(group["totals"])
            group["scores"] = {name: [1.0] * size for name in group["scores"]}
            group["totals"] = [1.0] * size


def test_resampling_replaces_dead_groups_within_its_bound_and_logs_them_all(
    configure: Configure, server: Server
) -> None:
    with proxy(server.url, edited(flat)) as url:
        config = configure(reward_url=url, eval_every=0, dynamic_sampling="resample")
        folder = train(config)
    for step in (1, 2, 3):
        groups = {one["group"]: one for one in read(folder / "rollouts.jsonl") if one["step"] == step}
        assert len(groups) >= 3
        assert len({one["prompt_index"] for one in groups.values()}) == len(groups)
        alive = [one for one in groups.values() if one["prompt_index"] % 2]
        assert 0 < len(alive) <= 3


def test_dead_groups_leave_the_denominators_when_dropped(configure: Configure, server: Server, tmp_path: Path) -> None:
    losses = {}
    with proxy(server.url, edited(flat)) as url:
        for name in ("off", "drop"):
            config = configure(
                reward_url=url, eval_every=0, dynamic_sampling=name, steps=1, kl_coef=0, output_dir=tmp_path / name,
                objective="reinforce",
            )  # fmt: skip
            folder = train(config)
            losses[name] = read(folder / "metrics.jsonl")[1]["loss"]
    rollouts = read(tmp_path / "off" / "rollouts.jsonl")
    tokens = sum(one["token_count"] for one in rollouts)
    living = sum(one["token_count"] for one in rollouts if one["prompt_index"] % 2)
    assert 0 < living < tokens
    assert losses["drop"] == pytest.approx(losses["off"] * tokens / living, rel=1e-4)


def test_old_logprobs_stay_fixed_over_iterations_and_are_computed_only_then(configure: Configure) -> None:
    seen: list[LossInputs] = []
    plain = make_loss(LossConfig(kl_coef=0.1))

    def spy(ops: ArrayOps, inputs: LossInputs, denominators: Denominators) -> LossOutputs:
        seen.append(inputs)
        return plain(ops, inputs, denominators)

    train(configure(steps=1, eval_every=0, num_iterations=3), loss=spy)
    olds: list[Array] = [one.old_logprobs for one in seen]
    assert len(olds) == 3
    assert torch.equal(olds[0], olds[2])
    torch.testing.assert_close(seen[0].logprobs.detach() * seen[0].mask, olds[0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(seen[2].logprobs.detach() * seen[2].mask, olds[2], atol=1e-5)
    seen.clear()
    train(configure(steps=1, eval_every=0, overwrite=True), loss=spy)
    assert [one.old_logprobs for one in seen] == [None]


def test_loss_and_batches_are_callables(configure: Configure) -> None:
    calls: list[int] = []

    def first_only(prompts: Sequence[Prompt], *, size: int, seed: int) -> Iterator[list[Prompt]]:
        for _ in prompt_order(prompts, size=size, seed=seed):
            calls.append(seed)
            yield list(prompts[:size])

    folder = train(configure(steps=2, eval_every=0), prompt_order=first_only, loss=make_loss(LossConfig(kl_coef=0.1)))
    assert {one["prompt_index"] for one in read(folder / "rollouts.jsonl")} == {0, 1, 2}
    assert calls == [0, 0]


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"shuffle": False}, [[0, 1, 2], [3, 4, 5]]),
        ({"shuffle": False, "length_buckets": True}, [[0, 2, 4], [1, 3, 5]]),
        ({"shuffle": False, "prompts_per_step": 2}, [[0, 1], [2, 3]]),
        ({"shuffle": False, "prompts_per_step": 2, "steps": 1}, [[0, 1]]),
        ({"shuffle": False, "epochs": 2, "steps": 100}, [[0, 1, 2], [3, 4, 5]] * 2),
    ],
    ids=str,
)
def test_prompts_come_in_the_order_and_for_as_long_as_asked_for(
    changes: dict[str, Any], steps: list[list[int]], configure: Configure, tmp_path: Path
) -> None:
    """Every other question is long."""
    rows = [{"question": "1 + 1?" + " please" * 9 * (n % 2), "answer": "2"} for n in range(6)]
    (tmp_path / "six.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    short = {"steps": 2, "eval_every": 0, "kl_coef": 0, "max_completion_length": 2, "group_size": 2}
    folder = train(configure(data=str(tmp_path / "six.jsonl"), **(short | changes)))
    found = {(one["step"], one["group"]): one["prompt_index"] for one in read(folder / "rollouts.jsonl")}
    assert [found[key] for key in sorted(found)] == [index for step in steps for index in step]


def test_the_schedule_and_its_warmup_are_in_the_rows(configure: Configure) -> None:
    config = configure(eval_every=0, steps=4, lr_schedule="cosine", warmup_steps=2, max_completion_length=2)
    rows = read(train(config) / "metrics.jsonl")[1:]
    assert [row["learning_rate"] for row in rows] == pytest.approx([5e-4, 1e-3, 1e-3, 5e-4])


@pytest.mark.parametrize(
    ("name", "warmup", "rates"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1]),
        ("linear", 0, [1, 0.75, 0.5, 0.25]),
        ("cosine", 2, [0.5, 1, 1, 0.5]),
    ],
)
def test_schedules(name: str, warmup: int, rates: list[float]) -> None:
    rate = make_schedule(name, peak=1.0, warmup=warmup, steps=4)
    assert [rate(step) for step in (1, 2, 3, 4)] == pytest.approx(rates)


# ---- adapters, references, precision -------------------------------------------------------------------------


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())


def test_an_adapter_leaves_the_base_alone_and_begins_at_kl_0(configure: Configure, tiny: str) -> None:
    folder = train(configure(lora_rank=4, eval_every=0, learning_rate=1e-2))
    rows = read(folder / "metrics.jsonl")
    assert rows[1]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[3]["kl"] > 1e-6
    assert (folder / "final" / "adapter_model.safetensors").exists()
    assert not (folder / "final" / "model.safetensors").exists()


def test_a_continued_adapter_is_its_own_reference(configure: Configure, tmp_path: Path) -> None:
    first = train(configure(lora_rank=4, eval_every=0, learning_rate=1e-2, output_dir=tmp_path / "first"))
    rows = read(train(configure(adapter=first / "final", eval_every=0, learning_rate=1e-2)) / "metrics.jsonl")
    assert rows[1]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[3]["kl"] > 1e-6


def test_another_reference_model_begins_at_another_kl(configure: Configure, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", seed=1)
    assert read(train(configure(ref_model=other, steps=1, eval_every=0)) / "metrics.jsonl")[1]["kl"] > 0.01


def test_the_kl_penalty_is_k1_summed_over_each_completion(configure: Configure, tmp_path: Path) -> None:
    backend = load_backend(configure(kl_in="reward", ref_model=save_tiny(tmp_path / "other", seed=1)))
    assert isinstance(backend, TorchBackend)
    rollouts = [Rollout([5, 6, 7], [-1.0, -2.0, -1.5], "stop"), Rollout([], [], "stop"), Rollout([9], [-0.5], "stop")]
    group = Group(Prompt(0, [], (1, 2, 3), "7"), rollouts, ["", "", ""], Scores([1.0, 1.0, None], {}, {}))
    ((first, empty, unscored),) = kl_penalties(backend, [group])
    counts = Denominators.from_lengths([3], max_completion_length=3)
    row = CompletionRow(0, 0, [5, 6, 7], [0.0] * 3, None, advantage=0.0)
    (answered,) = backend.with_logprobs(Batch([(1, 2, 3)], [row], counts), old=False, ref=True).rows
    assert answered.ref_logprobs is not None
    assert first == pytest.approx(-4.5 - sum(answered.ref_logprobs), rel=1e-5)
    assert (empty, unscored) == (0.0, 0.0)


def test_bfloat16_keeps_float32_weights(configure: Configure, tiny: str) -> None:
    final = train(configure(dtype="bfloat16", steps=1, eval_every=0, learning_rate=1e-6)) / "final"
    before, after = weights(Path(tiny)), weights(final)
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert moved
    assert all((before[name] - after[name]).abs().max() < 1e-5 for name in moved)  # finer than bfloat16 can tell


def shift_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler tells the model wrong positions."""
    right = torch_sampling._prefilled

    def shifted(*arguments: Any) -> Any:
        live = right(*arguments)
        return replace(live, positions=live.positions + 3)

    monkeypatch.setattr(torch_sampling, "_prefilled", shifted)


def test_a_sampler_that_is_wrong_for_a_model_is_passed_over_and_said(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift_positions(monkeypatch)
    said = io.StringIO()
    train(configure(steps=1, eval_every=0), Console(file=said, width=200))
    assert f"slower passes for this model, {WHOLE.name}" in said.getvalue()
    assert "sampler and trainer agree" in said.getvalue()


def test_a_sampler_that_disagrees_with_the_trainer_is_found_before_training(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure()
    backend = load_backend(config)
    prompts = prompt_builder(config)(training_examples(config), backend.tokenizer)
    shift_positions(monkeypatch)
    with pytest.raises(ConfigError, match="sampler and trainer disagree"):
        check_sampler(backend, prompts, sampling(config, step=0))


def test_a_reference_in_bfloat16_gives_a_kl_that_begins_near_0(configure: Configure, tmp_path: Path) -> None:
    exact = read(train(configure(output_dir=tmp_path / "a", eval_every=0)) / "metrics.jsonl")
    rough = read(train(configure(output_dir=tmp_path / "b", eval_every=0, ref_dtype="bfloat16")) / "metrics.jsonl")
    assert exact[1]["kl"] == pytest.approx(0, abs=1e-6)
    assert 1e-6 < rough[1]["kl"] < 1e-2
    assert rough[3]["kl"] == pytest.approx(exact[3]["kl"], abs=0.02)


@pytest.mark.parametrize("text", ["r1.int@1=nan", "r1.int@1=inf", "r1.int@1=x", "=1", "../v1", "r1.int@1?x=1"])
def test_a_reward_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--reward "):
        parse_reward(text)


def other_shapes(tiny: str, folder: Path) -> None:
    del tiny
    other = folder.with_name("other")
    tiny_model(tiny_config(intermediate_size=32)).save_pretrained(other)
    save_adapter(str(other), folder)


def cut_short(tiny: str, folder: Path) -> None:
    weights = Path(save_adapter(tiny, folder)) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])


def half_gone(tiny: str, folder: Path) -> None:
    file = Path(save_adapter(tiny, folder)) / "adapter_model.safetensors"
    save_file({name: one for name, one in load_file(file).items() if "layers.1" not in name}, file)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (other_shapes, "does not fit"),
        (cut_short, "cannot be read"),
        (half_gone, r"14 weights are missing in it, such as .*layers.1"),
    ],
)
def test_an_adapter_that_cannot_be_put_on_is_refused(
    make: Callable[[str, Path], None], said: str, configure: Configure, tiny: str, tmp_path: Path
) -> None:
    make(tiny, tmp_path / "adapter")
    with pytest.raises(ConfigError, match=said):
        train(configure(adapter=tmp_path / "adapter"))


def test_the_scheduled_rate_is_the_one_that_moves_the_weights_of_a_run(
    configure: Configure, tiny: str, tmp_path: Path
) -> None:
    """Of plain gradient descent a step is as long as its rate, and the first has the same rollouts in both runs."""
    plain = {"optimizer": "sgd", "max_grad_norm": 1e9, "learning_rate": 0.02, "kl_coef": 0, "eval_every": 0}
    start = weights(Path(tiny))
    moves = []
    for warmup in (0, 4):
        folder = train(configure(steps=1, warmup_steps=warmup, output_dir=tmp_path / str(warmup), **plain))
        moves.append({name: one - start[name] for name, one in weights(folder / "final").items()})
        assert read(folder / "metrics.jsonl")[1]["learning_rate"] == (0.005 if warmup else 0.02)
    assert any(one.abs().max() > 1e-4 for one in moves[0].values())
    for name, one in moves[0].items():
        torch.testing.assert_close(moves[1][name], one / 4, atol=2e-7, rtol=0)
