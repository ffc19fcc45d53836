"""Everything that a run needs, checked and opened in the order in which it is cheapest to fail.

What the config chooses between (how groups are collected, compared and learnt from) is chosen here, once: the training
page calls what it finds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from grpo_client import data
from grpo_client.advantages import Advantages, gdpo_advantages, group_advantages
from grpo_client.backends import load_backend
from grpo_client.backends.base import Backend
from grpo_client.batch import Batch, build_batch, optimizer_batches
from grpo_client.checkpoint import claim_output, save_model
from grpo_client.config import TrainConfig, parse_reward
from grpo_client.evaluation import Evaluator, top_value
from grpo_client.losses import LossFn, make_loss
from grpo_client.monitor import Monitor
from grpo_client.penalty import kl_penalties
from grpo_client.rewards import Manifest, RewardClient
from grpo_client.rollout import Rollouts, Sampler
from grpo_client.schedule import make_schedule
from grpo_client.selfcheck import check_sampler
from grpo_client.types import Group, Prompt, Sampling

Batches = Callable[..., Iterator[list[Prompt]]]  # (prompts, *, size, seed) -> the prompts of each step, without end
Collect = Callable[[Sequence[Prompt], int], Rollouts]  # (prompts, step) -> groups, scored
Compare = Callable[[Sequence[Group]], Advantages]
Cut = Callable[[Sequence[Group], Advantages], list[Batch]]  # -> the batches of the optimizer steps, with logprobs


@dataclass
class Run:
    """The parts of a run, every choice made. `steps_done` counts those that the model has learnt from."""

    config: TrainConfig
    folder: Path
    backend: Backend
    evaluator: Evaluator
    monitor: Monitor
    stream: Iterator[list[Prompt]]
    collect: Collect
    advantages: Compare
    batches: Cut
    learning_rate: Callable[[int], float]
    loss_fn: LossFn
    steps_done: int = 0

    def save(self) -> Path:
        """Save the model as it is now, under the step that it has learnt to."""
        return save_model(self.backend, self.folder, f"step-{self.steps_done}")


@contextlib.contextmanager
def prepare(
    config: TrainConfig, console: Console, *, loss: LossFn | None = None, batches: Batches = data.batches
) -> Iterator[Run]:
    """Resolve rewards, read data, claim the output folder, load the model. Raises ConfigError or RewardServiceError.

    loss replaces the one that the config describes; batches the order in which prompts come.
    """
    with RewardClient(
        config.reward_url,
        timeout=config.reward_timeout,
        retry_seconds=config.reward_retry_seconds,
        on_retry=lambda message: console.print(message, markup=False, soft_wrap=True),
    ) as rewards:
        manifest = rewards.resolve(suite=config.suite, rewards=[parse_reward(text) for text in config.reward])
        eval_manifest = rewards.resolve(suite=None, rewards=[(config.eval_reward, 1.0)])
        top_value(eval_manifest)
        rows, eval_rows = data.training_rows(config), data.evaluation_rows(config)
        build = partial(
            data.build_prompts,
            system=data.system_prompt(config),
            few_shot=data.read_few_shot(config.few_shot),
            limit=config.max_prompt_length,
        )
        folder = claim_output(config)
        console.print(f"loading {config.model}", markup=False)
        backend = load_backend(config)
        prompts, eval_prompts = build(rows, backend.tokenizer), build(eval_rows, backend.tokenizer)
        sampler = Sampler(backend, rewards, run_id=folder.name)
        monitor = Monitor(
            folder, steps=config.steps, console=console, show_completions_every=config.show_completions_every
        )
        with monitor, contextlib.closing(sampler):
            monitor.say(_opening(config, manifest, prompts, left_out=len(rows) - len(prompts)))
            for message in [*backend.notes, check_sampler(backend, prompts, _sampling(config, step=0))]:
                monitor.say(message)
            stream = batches(prompts, size=config.prompts_per_step, seed=config.seed)
            yield Run(
                config=config,
                folder=folder,
                backend=backend,
                evaluator=Evaluator(config, sampler, eval_prompts, eval_manifest),
                monitor=monitor,
                stream=stream,
                collect=_collect(config, sampler, _manifests(config, rewards, manifest, monitor.say), stream),
                advantages=_advantages(config, backend, manifest),
                batches=_batches(config, backend, every_row=loss is not None),
                learning_rate=make_schedule(
                    config.lr_schedule, peak=config.learning_rate, warmup=config.warmup_steps, steps=config.steps
                ),
                loss_fn=loss or make_loss(config.loss_config()),
            )


def _sampling(config: TrainConfig, *, step: int) -> Sampling:
    return Sampling(
        group_size=config.group_size,
        max_tokens=config.max_completion_length,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
        ignore_eos=config.ignore_eos,
        rows=config.sampling_rows,
        seed=config.seed,
        step=step,
    )


def _collect(
    config: TrainConfig, sampler: Sampler, manifests: Iterator[Manifest], stream: Iterator[list[Prompt]]
) -> Collect:
    sample = partial(sampler.rollouts, phase="train")
    if config.dynamic_sampling == "resample":
        spare = itertools.chain.from_iterable(stream)
        sample = partial(sampler.resampled, phase="train", spare=spare, rounds=config.max_resample)
    return lambda prompts, step: sample(prompts, _sampling(config, step=step), manifest=next(manifests))


def _manifests(
    config: TrainConfig, rewards: RewardClient, first: Manifest, say: Callable[[str], None]
) -> Iterator[Manifest]:
    """The rewards of each step: those of the start, or, following, those that the alias names as the step begins."""
    if not config.follow:
        yield from itertools.repeat(first)
    current = first
    while True:
        now = rewards.resolve(suite=config.suite, rewards=[])
        if now.suite != current.suite:
            say(f"{config.suite} has moved from {current.suite} to {now.suite}")
        current = now
        yield current


def _advantages(config: TrainConfig, backend: Backend, manifest: Manifest) -> Compare:
    if config.advantages == "gdpo":
        weights = [spec.weight for spec in manifest.rewards]
        return lambda groups: gdpo_advantages(
            [list(zip(*(group.scores.values[name] for name in manifest.names), strict=True)) for group in groups],
            weights=weights,
        )
    compare = partial(group_advantages, scale=config.scale, estimator=config.advantages)
    if config.kl_in == "reward" and config.kl_coef:
        return lambda groups: compare(_totals(groups), kl_P_G=kl_penalties(backend, groups), kl_coef=config.kl_coef)
    return lambda groups: compare(_totals(groups))


def _totals(groups: Sequence[Group]) -> list[list[float | None]]:
    return [group.scores.totals for group in groups]


def _batches(config: TrainConfig, backend: Backend, *, every_row: bool) -> Cut:
    kl_in_loss = config.loss_config().kl_coef > 0
    # A row of advantage 0 has gradient 0, unless the KL has one; bnpo divides by what shares its pass.
    skip_flat = not (kl_in_loss or every_row or config.loss == "bnpo")

    def cut(groups: Sequence[Group], advantages: Advantages) -> list[Batch]:
        step = build_batch(
            groups,
            advantages,
            max_completion_length=config.max_completion_length,
            mask_truncated=config.mask_truncated,
            drop_dead=config.dynamic_sampling != "off",
        )
        parts = optimizer_batches(step, count=config.minibatches, skip_flat=skip_flat)
        return [backend.with_logprobs(part, old=config.updates_per_rollout > 1, ref=kl_in_loss) for part in parts]

    return cut


def _opening(config: TrainConfig, manifest: Manifest, prompts: Sequence[Prompt], *, left_out: int) -> str:
    rewards = ", ".join(f"{spec.id} × {spec.weight:g}" for spec in manifest.rewards)
    dropped = f" ({left_out} over --max-prompt-length {config.max_prompt_length} left out)" if left_out else ""
    return (
        f"{len(prompts)} prompts{dropped}, {config.prompts_per_step} × {config.group_size} completions a step; "
        f"rewards from {config.reward_url} (service {manifest.service}): {rewards}"
    )
