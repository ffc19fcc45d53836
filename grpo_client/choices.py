"""What the config chooses between, chosen once: how groups are collected, compared, and cut into batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from grpo_client.backends.base import Backend
from grpo_client.config import TrainConfig
from grpo_client.data.stream import PromptStream
from grpo_client.evaluation import Measure
from grpo_client.learning.advantages import Advantages, gdpo_advantages, group_advantages
from grpo_client.learning.batch import Batch, build_batch, optimizer_batches
from grpo_client.learning.losses import LossFn
from grpo_client.learning.schedule import make_schedule
from grpo_client.penalty import kl_penalties
from grpo_client.ranks import own_rows
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.rewards.nulls import ON_NULL
from grpo_client.rollout import Rollouts, Sampler, sampling_of
from grpo_client.storage.provenance import record, reward_changes
from grpo_client.types import Group, Metrics, Prompt, Sampling, finite

Collect = Callable[[Sequence[Prompt], int], Rollouts]  # (prompts, step) -> groups, scored
Compare = Callable[[Sequence[Group]], Advantages]
Cut = Callable[[Sequence[Group], Advantages], list[Batch]]  # -> the batches of the optimizer steps, with logprobs


def sampling(config: TrainConfig, *, step: int) -> Sampling:
    """How completions are sampled in a step."""
    return sampling_of(
        config, group_size=config.group_size, temperature=config.temperature, ignore_eos=config.ignore_eos, step=step
    )


def collect(config: TrainConfig, sampler: Sampler, manifests: Iterator[Manifest], prompts: PromptStream) -> Collect:
    """Groups sampled and scored, dead ones sampled anew where that is asked for, nulls judged by --on-null."""
    sample = partial(sampler.rollouts, phase="train")
    if config.dynamic_sampling == "resample":
        sample = partial(sampler.resampled, phase="train", spare=prompts.spare())
    judge = ON_NULL[config.on_null]

    def collected(asked: Sequence[Prompt], step: int) -> Rollouts:
        rollouts = sample(asked, sampling(config, step=step), manifest=next(manifests))
        return replace(rollouts, groups=[judge(group) for group in rollouts.groups])

    return collected


def manifests(
    config: TrainConfig, rewards: RewardClient, first: Manifest, changed: Callable[[str], None]
) -> Iterator[Manifest]:
    """The rewards of each step: those of the start, or, following, those that the alias names as the step begins.

    `changed` hears of a move of the alias, and of a reward that is another one under the same name.
    """
    if not config.follow:
        yield from itertools.repeat(first)
    current = first
    while True:
        now = rewards.resolve(suite=config.suite, rewards=[])
        if now.suite != current.suite:
            changed(f"{config.suite} has moved from {current.suite} to {now.suite}")
        for what in reward_changes(record(current), now):
            changed(what)
        current = now
        yield current


def learning_rate(config: TrainConfig) -> Callable[[int], float]:
    """The rate of each step."""
    return make_schedule(config.lr_schedule, peak=config.learning_rate, warmup=config.warmup_steps, steps=config.steps)


def advantages(config: TrainConfig, backend: Backend, manifest: Manifest) -> Compare:
    """How completions are compared, less what the KL costs them where it is part of the reward."""
    if config.kl_in != "reward" or not config.kl_coef:
        return by_rewards(config, manifest)
    compare = _standardised(config)
    return lambda groups: compare(_totals(groups), kl_P_G=kl_penalties(backend, groups), kl_coef=config.kl_coef)


def by_rewards(config: TrainConfig, manifest: Manifest) -> Compare:
    """How completions are compared by their rewards alone."""
    if config.advantages == "gdpo":
        weights = [spec.weight for spec in manifest.rewards]
        return lambda groups: gdpo_advantages(
            [list(zip(*(group.rewards.values[name] for name in manifest.names), strict=True)) for group in groups],
            weights=weights,
            std_epsilon=config.std_epsilon,
        )
    compare = _standardised(config)
    return lambda groups: compare(_totals(groups))


def _standardised(config: TrainConfig) -> Callable[..., Advantages]:
    return partial(group_advantages, scale=config.scale, estimator=config.advantages, std_epsilon=config.std_epsilon)


def _totals(groups: Sequence[Group]) -> list[list[float | None]]:
    return [group.rewards.totals for group in groups]


def batches(config: TrainConfig, backend: Backend, *, every_row: bool) -> Cut:
    """Which completions each optimizer step learns from, with the logprobs that its loss needs."""
    kl_in_loss = config.loss_config().kl_coef > 0
    # A row of advantage 0 has gradient 0, unless the KL has one; bnpo divides by what shares its pass.
    skip_flat = not (kl_in_loss or every_row or config.loss == "bnpo")

    def cut(groups: Sequence[Group], compared: Advantages) -> list[Batch]:
        step = build_batch(
            groups,
            compared,
            max_completion_length=config.max_completion_length,
            mask_truncated=config.mask_truncated,
            drop_dead=config.dynamic_sampling != "off",
        )
        parts = optimizer_batches(step, count=config.minibatches, skip_flat=skip_flat)
        parts = [own_rows(backend.ranks, part) for part in parts]
        return [backend.with_logprobs(part, old=config.updates_per_rollout > 1, ref=kl_in_loss) for part in parts]

    return cut


def held_out(config: TrainConfig, backend: Backend, manifest: Manifest, loss_fn: LossFn) -> Measure:
    """`eval/loss`, where prompts have several samples to compare, and `eval/kl`, where there is a reference.

    Of held-out completions, as if the policy had just sampled them at the temperature of training: ratios are 1. All of
    them are one optimizer step; a KL in the reward is left out of it.
    """
    compares, has_reference = config.eval_samples > 1 and not config.follow, config.kl_coef > 0
    if backend.ranks.rank or not (compares or has_reference):
        return lambda groups: {}
    compare = by_rewards(config, manifest) if compares else _all_equal

    def measured(groups: Sequence[Group]) -> Metrics:
        batch = build_batch(
            groups,
            compare(groups),
            max_completion_length=config.max_completion_length,
            mask_truncated=config.mask_truncated,
        )
        found = backend.loss(backend.with_logprobs(batch, old=False, ref=has_reference), loss_fn)
        row: Metrics = {}
        if compares:
            row["eval/loss"] = finite(found.loss) if batch.rows else None
        if has_reference:
            row["eval/kl"] = finite(found.metrics["kl"]) if batch.rows else None
        return row

    return measured


def _all_equal(groups: Sequence[Group]) -> Advantages:
    """Advantage 0 for each completion: one of a prompt alone compares with nothing, and is no worse for a null."""
    return Advantages(
        values_P_G=[[0.0] * len(group.rollouts) for group in groups],
        dead_P=[True] * len(groups),
        frac_reward_zero_std=1.0,
        reward_mean=None,
        reward_std=None,
    )
