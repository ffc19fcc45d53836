"""`grpo-client train --dry-run`: everything checked and one tiny step taken for real; nothing is left behind."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from reward_proto import v1
from rich.console import Console

from grpo_client.backends import device_of
from grpo_client.backends.base import Backend, UpdateStats
from grpo_client.commands import machine
from grpo_client.config import TrainConfig, parse_reward
from grpo_client.data.order import prompt_order, with_steps
from grpo_client.data.prompts import prompt_builder, training_examples
from grpo_client.errors import ConfigError
from grpo_client.learning.losses import make_loss
from grpo_client.memory import estimate
from grpo_client.opening import prepare
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.rollout import to_wire
from grpo_client.run import Run
from grpo_client.storage.checkpoint import CHECKPOINTS
from grpo_client.storage.output import METRICS
from grpo_client.terminal import columns, one_line, printable
from grpo_client.types import Group, Prompt, Rollout

_PROMPTS, _COMPLETIONS, _TOKENS = 2, 2, 8
_GB = 1e9


def dry_run(config: TrainConfig) -> None:
    """Print what a run would do. Raises what the run would raise before its first step is over."""
    print(f"configuration:\n{_indented(yaml.safe_dump(config.model_dump(mode='json'), sort_keys=False))}")
    _check_output(config)
    free = _free_memory(config)
    with tempfile.TemporaryDirectory(prefix="grpo-client-dry-run-") as scratch:
        tiny = _tiny(config, Path(scratch) / "run")
        with prepare(tiny, Console(file=io.StringIO()), loss=make_loss(config.loss_config())) as run:
            prompts = _prompts(config, run.backend)
            full = with_steps(config, prompts)
            next(prompt_order(prompts, size=config.prompts_per_step, seed=config.seed))
            _show("model", [*run.backend.notes, *_memory(full, run.backend, prompts, free=free)])
            with RewardClient(config.reward_url, timeout=config.reward_timeout, retry_seconds=0.0) as rewards:
                wanted = [parse_reward(text) for text in config.reward]
                manifest = rewards.resolve(suite=config.suite, rewards=wanted)
                _show(f"rewards of {config.reward_url} ({manifest.service})", _resolved(manifest))
                _show("a right and a wrong completion", _known_pair(rewards, manifest, prompts[0], run.backend))
            _show(f"one step of {_PROMPTS} prompts × {_COMPLETIONS} completions × {_TOKENS} tokens", _step(run))
            _show("a full run", _outlook(full, prompts))


def _show(title: str, lines: Sequence[str] | Iterator[str]) -> None:
    print(f"{printable(title)}:")
    print("\n".join(f"  {line}" for line in lines) + "\n", flush=True)


def _indented(text: str) -> str:
    return printable("".join(f"  {line}\n" for line in text.splitlines()))


def _check_output(config: TrainConfig) -> None:
    """Raise ConfigError where the run would: without touching the folder."""
    folder = config.output_dir
    holds_run = (folder / METRICS).exists() or (folder / CHECKPOINTS).exists()
    if holds_run and not (config.overwrite or config.resume):
        raise ConfigError(f"{folder} holds a run already; choose another --output-dir, or --overwrite it")


def _tiny(config: TrainConfig, folder: Path) -> TrainConfig:
    """The smallest run that goes through all that the full one does, in a folder of its own."""
    return config.model_copy(
        update={
            "output_dir": folder,
            "overwrite": False,
            "resume": None,
            "steps": 1,
            "epochs": None,
            "prompts_per_step": _PROMPTS,
            "group_size": _COMPLETIONS,
            "minibatches": 1,
            "max_completion_length": _TOKENS,
            "dynamic_sampling": "off",
            "eval_every": 0,
            "save_every": 0,
            "show_completions_every": 0,
        }
    )


def _prompts(config: TrainConfig, backend: Backend) -> list[Prompt]:
    return prompt_builder(config)(training_examples(config), backend.tokenizer)


# ---- memory ------------------------------------------------------------------------------------------------


def _free_memory(config: TrainConfig) -> float | None:
    """Bytes free where the model goes, before it is there."""
    device = device_of(config)
    return machine.free_memory() if device is None else device.free


def _memory(config: TrainConfig, backend: Backend, prompts: Sequence[Prompt], *, free: float | None) -> list[str]:
    sizes = backend.sizes()
    longest = max(len(prompt.token_ids) for prompt in prompts)
    found = estimate(sizes, config, prompt_tokens=longest)
    phases = {f"at most in {name}": value for name, value in found.phases.items()}
    named = {**found.parts, **phases, "holes of the allocator": found.allocator, "peak": found.peak}
    rows = [[name, f"{value / _GB:.3f} GB"] for name, value in named.items() if value]
    lines = [f"memory, an estimate for {sizes.weights:,} weights, {sizes.trained:,} of them trained:", *columns(rows)]
    if free is None:
        return lines
    lines.append(f"  {free / _GB:.1f} GB were free before the model was loaded")
    if found.peak > free:
        lines.append(
            "  that is too little: lower --micro-batch-tokens, --sampling-rows or --max-completion-length, use "
            "--checkpoint-activations, or train an adapter (--lora-rank)"
        )
    return lines


# ---- rewards -----------------------------------------------------------------------------------------------


def _resolved(manifest: Manifest) -> list[str]:
    rows = [
        [one_line(spec.name or spec.id), f"weight {spec.weight:g}", one_line(spec.digest or "")[:19],
         manifest.infos[spec.id].status, one_line(manifest.infos[spec.id].doc.partition("\n")[0])]
        for spec in manifest.rewards
    ]  # fmt: skip
    return ([f"suite {manifest.suite}"] if manifest.suite else []) + columns(rows, indent="")


def _known_pair(rewards: RewardClient, manifest: Manifest, prompt: Prompt, backend: Backend) -> list[str]:
    """The gold of the first prompt as a completion, in the usual places, and a wrong answer; each reward's score."""
    gold = prompt.gold if isinstance(prompt.gold, str) else prompt.gold[0]
    wrong = "0" if gold.strip() != "0" else "1"
    texts = [
        f"<think>\nSo it is.\n</think>\n<answer>\n{gold}\n</answer>\n",
        f"So it is \\boxed{{{gold}}}.",
        f"<think>\nSo it is.\n</think>\n<answer>\n{wrong}\n</answer>\n",
    ]
    encoded = [backend.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    rollouts = [Rollout(ids, [0.0] * len(ids), "stop") for ids in encoded]
    question = to_wire(prompt, rollouts, texts, needs=manifest.needs())
    (scored,) = rewards.score(manifest, [question], run=v1.Run(phase="dry-run"))
    rows = [["", "gold in an answer tag", "gold in a box", "wrong, in an answer tag"]]
    rows += [
        [one_line(name), *(_score(*pair) for pair in zip(scored.scores[name], scored.statuses[name], strict=True))]
        for name in manifest.names
    ]
    rows.append(["total", *(_score(total, "") for total in scored.totals)])
    lines = [one_line(f"gold {gold!r}, wrong answer {wrong!r}")[:200], *columns(rows, indent="")]
    right, against = [one for one in scored.totals[:2] if one is not None], scored.totals[2]
    if not right or against is None or max(right) <= against:
        lines.append("warning: the right completion is paid no more than the wrong one; look at golds and rewards")
    return lines


def _score(value: float | None, status: str) -> str:
    shown = "null" if value is None else f"{value:g}"
    return one_line(shown if status in ("", "scored") else f"{shown} ({status})")


# ---- the step ----------------------------------------------------------------------------------------------


def _step(run: Run) -> list[str]:
    """Sample, score and learn, with the config's own loss, optimizer and advantages."""
    rollouts = run.collect(run.prompts.take(), 1)
    advantages = run.advantages(rollouts.groups)
    batches = run.batches(rollouts.groups, advantages)
    updates = [run.backend.update(batch, run.loss_fn, learning_rate=run.config.learning_rate) for batch in batches]
    rows = [row for group in rollouts.groups for row in _completions(group)]
    return [
        *columns(rows, indent=""),
        f"{rollouts.sampling_seconds:.2f} s to sample, {rollouts.waiting_seconds:.2f} s more to score",
        *_updates(updates),
        f"{run.backend.peak_memory_gb():.3f} GB of memory at most, so far",
    ]


def _completions(group: Group) -> Iterator[list[str]]:
    for rollout, text, total in zip(group.rollouts, group.texts, group.scores.totals, strict=True):
        yield [f"total {_score(total, '')}", f"{len(rollout.token_ids)} tokens", one_line(text)]


def _updates(updates: Sequence[UpdateStats]) -> Iterator[str]:
    if not updates:
        yield "no completion was scored, so there was nothing to learn from"
    for update in updates:
        applied = "applied" if update.applied else "NOT APPLIED, since not finite"
        yield f"update {applied}: loss {update.loss:.3g}, gradient norm {update.grad_norm:.3g}"


def _outlook(config: TrainConfig, prompts: Sequence[Prompt]) -> Iterator[str]:
    sampled = config.prompts_per_step * config.group_size
    epochs = config.steps * config.prompts_per_step / len(prompts)
    yield f"{config.steps} steps of {config.prompts_per_step} prompts × {config.group_size} completions"
    yield f"{config.steps * sampled:,} completions of at most {config.max_completion_length} tokens"
    yield f"{len(prompts)} prompts, {epochs:.2g} epochs; {config.updates_per_rollout} optimizer steps a step"
    yield f"evaluation every {config.eval_every} steps" if config.eval_every else "no evaluation"
    yield one_line(f"kept in {config.output_dir}; nothing has been written there now")
