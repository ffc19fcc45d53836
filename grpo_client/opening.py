"""Open a run: everything checked and opened in the order in which it is cheapest to fail.

A resumed run is prepared like a new one, then takes up what its checkpoint holds.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_client import choices
from grpo_client.backends import backend_name, join_ranks, load_backend
from grpo_client.backends.base import Backend
from grpo_client.config import TrainConfig, parse_reward
from grpo_client.data import order
from grpo_client.data.order import PromptOrder, with_steps
from grpo_client.data.prompts import evaluation_examples, left_out, prompt_builder, training_examples
from grpo_client.data.stream import PromptStream
from grpo_client.errors import ConfigError
from grpo_client.evaluation import Evaluator, top_value
from grpo_client.guards import Guards
from grpo_client.interruption import Interruption
from grpo_client.learning.losses import LossFn, make_loss
from grpo_client.ranks import Ranks
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.metrics import read_rows
from grpo_client.reports.model_card import model_card
from grpo_client.reports.monitor import Monitor, say
from grpo_client.reports.reporters import observers
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.rollout import Sampler
from grpo_client.run import Run
from grpo_client.selfcheck import check_sampler
from grpo_client.storage.checkpoint import Checkpoint, find_checkpoint, restore_random
from grpo_client.storage.output import METRICS, claim_output, locked
from grpo_client.storage.provenance import check_config, data_fingerprint, record, reward_changes, versions
from grpo_client.types import Prompt


@contextlib.contextmanager
def prepare(
    config: TrainConfig,
    console: Console,
    *,
    loss: LossFn | None = None,
    prompt_order: PromptOrder | None = None,
    callbacks: Sequence[Callback] = (),
    interrupted: Interruption | None = None,
) -> Iterator[Run]:
    """Resolve rewards, read data, claim the output folder, load the model. Raises ConfigError or RewardServiceError.

    loss replaces the one that the config describes, prompt_order the order in which prompts come.
    """
    config = config.model_copy(update={"backend": backend_name(config)})
    ranks = join_ranks(config)
    if ranks.rank:  # the first process alone shows and reports
        console, config = Console(quiet=True), config.model_copy(update={"report_to": (), "metrics_port": None})
    checkpoint = _checkpoint(config, console)
    with contextlib.ExitStack() as opened:
        rewards = opened.enter_context(_client(config, console, interrupted))
        manifest, eval_manifest, changes = _manifests(config, rewards, checkpoint)
        watching = opened.enter_context(observers(config, partial(say, console)))
        examples, eval_examples = training_examples(config), evaluation_examples(config)
        build = prompt_builder(config)
        folder = opened.enter_context(_folder(config, checkpoint, ranks, console))
        say(console, f"loading {config.model}")
        backend = load_backend(config)
        prompts, eval_prompts = build(examples, backend.tokenizer), build(eval_examples, backend.tokenizer)
        config = with_steps(config, prompts)
        stream = PromptStream(_order(config, prompt_order)(prompts), prompts)
        sampler = Sampler(backend, rewards, run_id=folder.name)
        monitor = _monitor(config, folder, console, [*watching, *callbacks], checkpoint)

        loss_fn = loss or make_loss(config.loss_config())
        measure = choices.held_out(config, backend, manifest, loss_fn)

        def changed(what: str) -> None:
            monitor.say(what)
            changes.append(what)

        run = Run(
            config=config,
            folder=folder,
            backend=backend,
            evaluator=Evaluator(config, sampler, eval_prompts, manifest, eval_manifest, measure),
            monitor=monitor,
            prompts=stream,
            collect=choices.collect(config, sampler, choices.manifests(config, rewards, manifest, changed), stream),
            advantages=choices.advantages(config, backend, manifest),
            batches=choices.batches(config, backend, every_row=loss is not None),
            learning_rate=choices.learning_rate(config),
            loss_fn=loss_fn,
            guards=Guards(
                max_null_fraction=config.max_null_fraction,
                max_not_finite=config.max_not_finite,
                max_idle_steps=config.max_idle_steps,
                mask_truncated=config.mask_truncated,
            ),
            card=lambda step: model_card(config, manifest, read_rows(folder / METRICS), step=step, versions=versions()),
            fixed=_fixed(config, manifest, eval_manifest, prompts, backend),
            changes=changes,
        )
        if checkpoint is not None:
            _take_up(run, checkpoint)
        opened.enter_context(monitor)
        opened.enter_context(contextlib.closing(sampler))
        monitor.say(_opening(config, manifest, len(prompts), len(eval_prompts)))
        for message in (left_out(examples, prompts, limit=config.max_prompt_length), *_proven(run, eval_prompts)):
            if message:
                monitor.say(message)
        yield run


def _monitor(
    config: TrainConfig, folder: Path, console: Console, callbacks: Sequence[Callback], checkpoint: Checkpoint | None
) -> Monitor:
    return Monitor(
        folder,
        steps=config.steps,
        console=console,
        show_completions_every=config.show_completions_every,
        callbacks=callbacks,
        config=config,
        resumed_at=checkpoint.step if checkpoint else 0,
    )


def _proven(run: Run, eval_prompts: Sequence[Prompt]) -> Iterator[str | None]:
    """That the model's numbers are right, in words. Raises ConfigError where they are not."""
    yield from run.backend.notes
    everyone = [*run.prompts.prompts, *eval_prompts]
    yield run.backend.settle(everyone, max_completion_length=run.config.max_completion_length)
    yield check_sampler(run.backend, run.prompts.prompts, choices.sampling(run.config, step=0))


def _order(config: TrainConfig, given: PromptOrder | None) -> PromptOrder:
    order_of = given or partial(order.prompt_order, shuffle=config.shuffle, length_buckets=config.length_buckets)
    return partial(order_of, size=config.prompts_per_step, seed=config.seed)


def _client(config: TrainConfig, console: Console, interrupted: Interruption | None) -> RewardClient:
    return RewardClient(
        config.reward_url,
        timeout=config.reward_timeout,
        retry_seconds=config.reward_retry_seconds,
        on_retry=lambda message: say(console, message),
        give_up=interrupted.event if interrupted else None,
    )


def _fixed(
    config: TrainConfig, manifest: Manifest, eval_manifest: Manifest, prompts: Sequence[Prompt], backend: Backend
) -> dict[str, Any]:
    """What all checkpoints of a run say, and a resume compares."""
    return {
        "config": config.model_dump(mode="json"),
        "rewards": record(manifest),
        "eval_rewards": record(eval_manifest),
        "data": data_fingerprint(prompts),
        "model": backend.fingerprint,
        "versions": versions(),
    }


@contextlib.contextmanager
def _folder(config: TrainConfig, checkpoint: Checkpoint | None, ranks: Ranks, console: Console) -> Iterator[Path]:
    """Where the run is kept; for all but the first of its processes a place that is gone with it."""
    if ranks.rank == 0:
        with locked(config.output_dir):
            for message in claim_output(config, checkpoint):
                say(console, message)
            yield config.output_dir
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)


def _checkpoint(config: TrainConfig, console: Console) -> Checkpoint | None:
    """What to go on from, its configuration checked."""
    if config.resume is None:
        return None
    checkpoint, passed_over = find_checkpoint(config.resume, config.output_dir)
    for message in passed_over:
        say(console, message)
    if checkpoint is not None:
        check_config(checkpoint.state["config"], config)
        say(console, f"going on from {checkpoint.path}, after step {checkpoint.step} of {config.steps}")
    return checkpoint


def _manifests(
    config: TrainConfig, rewards: RewardClient, checkpoint: Checkpoint | None
) -> tuple[Manifest, Manifest, list[str]]:
    """The rewards to learn from and to evaluate by, and how they differ from those of the checkpoint.

    An alias is resolved once, as the run begins: a resumed run asks for the suite version that it named then.
    """
    suite = config.suite
    if checkpoint is not None and suite is not None and not config.follow:
        same_name = checkpoint.state["config"]["suite"] == suite
        suite = checkpoint.state["rewards"]["suite"] if same_name else suite
    manifest = rewards.resolve(suite=suite, rewards=[parse_reward(text) for text in config.reward])
    eval_manifest = rewards.resolve(suite=None, rewards=[(config.eval_reward, 1.0)])
    top_value(eval_manifest, config.eval_reward)
    if "metadata" in manifest.needs() and not config.metadata_column:
        raise ConfigError("the rewards need metadata of each row; name its columns with --metadata-column")
    if checkpoint is None:
        return manifest, eval_manifest, []
    changes = reward_changes(checkpoint.state["rewards"], manifest)
    refused = [] if config.follow else list(changes)
    of_evaluation = [f"eval {one}" for one in reward_changes(checkpoint.state["eval_rewards"], eval_manifest)]
    changes, refused = changes + of_evaluation, refused + of_evaluation
    if refused and not config.accept_reward_change:
        raise ConfigError(
            f"the rewards at {config.reward_url} are not those that {checkpoint.path} learnt from: "
            f"{'; '.join(refused)}. Serve those again, or go on with these: --accept-reward-change"
        )
    return manifest, eval_manifest, changes


def _take_up(run: Run, checkpoint: Checkpoint) -> None:
    """Put a prepared run where its checkpoint is. Raises ConfigError for one of another model or other data."""
    for key, what in (("model", f"--model {run.config.model}"), ("data", f"--data {run.config.data}")):
        if checkpoint.state[key] != run.fixed[key]:
            raise ConfigError(f"{what} is not what {checkpoint.path} was trained on: its content has changed")
    was, now = checkpoint.state["config"]["steps"], run.config.steps
    if now < checkpoint.step:
        raise ConfigError(f"{checkpoint.path} is past --steps {now}; name more steps, or an earlier checkpoint")
    if was != now and run.config.lr_schedule != "constant":
        raise ConfigError(f"--lr-schedule {run.config.lr_schedule} ends at the last step, which was {was} and is {now}")
    run.backend.load_state(checkpoint.path)
    run.prompts.skip_to(checkpoint.state["prompts"])
    run.guards.restore(checkpoint.state["guards"])
    run.best = dict(checkpoint.state["best"])
    run.steps_done, run.pending = checkpoint.step, checkpoint.state["pending"]
    run.position = checkpoint.state["prompts"]
    run.trained_tokens = checkpoint.state.get("trained_tokens", 0)  # checkpoints of before 2026-12 did not count
    restore_random(checkpoint.state["random"])


def _opening(config: TrainConfig, manifest: Manifest, prompts: int, eval_prompts: int) -> str:
    rewards = ", ".join(f"{spec.id} × {spec.weight:g}" for spec in manifest.rewards)
    held_out = (
        f"held-out accuracy of {eval_prompts} prompts every {config.eval_every} steps, by {config.eval_reward}"
        if eval_prompts and config.eval_every
        else "no evaluation"
    )
    return (
        f"{prompts} prompts, {config.prompts_per_step} × {config.group_size} completions a step; {held_out}; "
        f"rewards from {config.reward_url} (service {manifest.service}): {rewards}"
    )
