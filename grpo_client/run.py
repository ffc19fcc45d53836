"""Everything that a run needs, checked and opened in the order in which it is cheapest to fail."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from grpo_client.backends import load_backend
from grpo_client.backends.base import Backend
from grpo_client.checkpoint import claim_output, save_model
from grpo_client.config import TrainConfig, parse_reward
from grpo_client.data import batches, build_prompts, evaluation_rows, read_few_shot, system_prompt, training_rows
from grpo_client.evaluation import Evaluator, top_value
from grpo_client.losses import LossConfig, LossFn, make_loss
from grpo_client.monitor import Monitor
from grpo_client.rewards import Manifest, RewardClient
from grpo_client.rollout import Sampler
from grpo_client.types import Prompt, Sampling


@dataclass
class Run:
    """The parts of a run, every choice made. `steps_done` counts those that the model has learnt from."""

    config: TrainConfig
    folder: Path
    manifest: Manifest
    backend: Backend
    sampler: Sampler
    evaluator: Evaluator
    monitor: Monitor
    prompts: Sequence[Prompt]
    loss_fn: LossFn
    steps_done: int = 0

    def batches(self) -> Iterator[list[Prompt]]:
        """The prompts of each step."""
        stream = batches(self.prompts, size=self.config.prompts_per_step, seed=self.config.seed)
        return itertools.islice(stream, self.config.steps)

    def sampling(self, step: int) -> Sampling:
        """How a training step samples."""
        return Sampling(
            group_size=self.config.group_size,
            max_tokens=self.config.max_completion_length,
            temperature=self.config.temperature,
            ignore_eos=self.config.ignore_eos,
            seed=self.config.seed,
            step=step,
        )

    def save(self) -> Path:
        """Save the model as it is now, under the step that it has learnt to."""
        return save_model(self.backend, self.folder, f"step-{self.steps_done}")


@contextlib.contextmanager
def prepare(config: TrainConfig, console: Console) -> Iterator[Run]:
    """Resolve rewards, read data, claim the output folder, load the model. Raises ConfigError or RewardServiceError."""
    with RewardClient(
        config.reward_url,
        timeout=config.reward_timeout,
        retry_seconds=config.reward_retry_seconds,
        on_retry=lambda message: console.print(message, markup=False, soft_wrap=True),
    ) as rewards:
        manifest = rewards.resolve(suite=config.suite, rewards=[parse_reward(text) for text in config.reward])
        eval_manifest = rewards.resolve(suite=None, rewards=[(config.eval_reward, 1.0)])
        top_value(eval_manifest)
        rows, eval_rows, few_shot = training_rows(config), evaluation_rows(config), read_few_shot(config.few_shot)
        folder = claim_output(config)
        console.print(f"loading {config.model}", markup=False)
        backend = load_backend(config)
        prompts, eval_prompts = (
            build_prompts(
                some, backend.tokenizer, system=system_prompt(config), few_shot=few_shot, limit=config.max_prompt_length
            )
            for some in (rows, eval_rows)
        )
        sampler = Sampler(backend, rewards, run_id=folder.name)
        evaluator = Evaluator(config, sampler, eval_prompts, eval_manifest)
        monitor = Monitor(
            folder, steps=config.steps, console=console, show_completions_every=config.show_completions_every
        )
        with monitor, contextlib.closing(sampler):
            monitor.say(_opening(config, manifest, prompts, left_out=len(rows) - len(prompts)))
            yield Run(config, folder, manifest, backend, sampler, evaluator, monitor, prompts, make_loss(_loss(config)))


def _loss(config: TrainConfig) -> LossConfig:
    return LossConfig(
        aggregation=config.loss, clip_low=config.clip_low, clip_high=config.clip_high, kl_coef=config.kl_coef
    )


def _opening(config: TrainConfig, manifest: Manifest, prompts: Sequence[Prompt], *, left_out: int) -> str:
    rewards = ", ".join(f"{spec.id} × {spec.weight:g}" for spec in manifest.rewards)
    dropped = f" ({left_out} over --max-prompt-length {config.max_prompt_length} left out)" if left_out else ""
    return (
        f"{len(prompts)} prompts{dropped}, {config.prompts_per_step} × {config.group_size} completions a step; "
        f"rewards from {config.reward_url} (service {manifest.service}): {rewards}"
    )
