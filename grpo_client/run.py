"""Everything that a run needs, checked and opened in the order in which it is cheapest to fail.

What the config chooses between (how groups are collected, compared and learnt from) is chosen in `choices`, once: the
training page calls what it finds. A resumed run is prepared like a new one, then takes up what its checkpoint holds.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_client import choices, data
from grpo_client.backends import backend_name, join_ranks, load_backend
from grpo_client.backends.base import Backend, UpdateStats
from grpo_client.batch import Batch
from grpo_client.callbacks import Callback
from grpo_client.checkpoint import (
    Checkpoint,
    checkpoint_folders,
    find_checkpoint,
    prune,
    restore_random,
    save_checkpoint,
    save_model,
)
from grpo_client.config import TrainConfig, parse_reward
from grpo_client.errors import ConfigError, HallmarkError, StorageError
from grpo_client.evaluation import Evaluator, top_value
from grpo_client.guards import Guards
from grpo_client.interruption import Interruption
from grpo_client.losses import LossFn, make_loss
from grpo_client.metrics import Row, read_rows
from grpo_client.model_card import model_card
from grpo_client.monitor import Monitor, say
from grpo_client.output import FINAL, METRICS, claim_output, locked, save_for_study, storage_errors
from grpo_client.plots import PLOT
from grpo_client.provenance import check_config, data_fingerprint, record, reward_changes, versions
from grpo_client.ranks import Ranks
from grpo_client.reporters import observers
from grpo_client.rewards import Manifest, RewardClient
from grpo_client.rollout import Sampler
from grpo_client.schedule import make_schedule
from grpo_client.selfcheck import check_sampler
from grpo_client.stream import Batches, PromptStream
from grpo_client.types import Group, Prompt


@dataclass
class Run:
    """The parts of a run, every choice made. `steps_done` counts those that the model has learnt from."""

    config: TrainConfig
    folder: Path
    backend: Backend
    evaluator: Evaluator
    monitor: Monitor
    prompts: PromptStream
    collect: choices.Collect
    advantages: choices.Compare
    batches: choices.Cut
    learning_rate: Callable[[int], float]
    loss_fn: LossFn
    guards: Guards
    card: Callable[[int], str]  # of the model after a step
    fixed: Mapping[str, Any]  # what every checkpoint says: config, rewards, data, model
    steps_done: int = 0
    position: Mapping[str, Any] = field(default_factory=dict)  # of the prompts, after those steps
    pending: Row | None = field(default_factory=lambda: Row(step=0))  # that is to be reported
    best: dict[str, float] = field(default_factory=dict)  # step and accuracy of the best evaluation
    changes: list[str] = field(default_factory=list)  # of the rewards, until a row tells them

    # ---- of a step ------------------------------------------------------------------------------------------

    def done(self, step: int, row: Row) -> None:
        """The model has learnt from this step, whose row is to be reported: a checkpoint made from now on goes on here.

        Also when the next step, or this one's evaluation, fails halfway.
        """
        self.steps_done, self.pending = step, row
        self.position = self.prompts.position()

    def report(self) -> None:
        """Evaluate, where it is time to, and log the row of the step; nothing where that has been done."""
        if self.pending is None:
            return
        evaluation = self.evaluator.metrics(self.steps_done, self.monitor.log_evaluation)
        row = self.pending | self._reward_change() | evaluation
        accuracy = row.get("eval/accuracy")
        if isinstance(accuracy, float) and self.steps_done and accuracy > self.best.get("accuracy", -1.0):
            self.best = {"step": self.steps_done, "accuracy": accuracy}
        self.pending = None
        self.monitor.log(row)

    def _reward_change(self) -> Row:
        """What of the rewards is not as it was, in the next row."""
        told, self.changes[:] = list(self.changes), []
        return {"reward/changed": "; ".join(told)} if told else {}

    def watch(
        self, groups: Sequence[Group], batches: Sequence[Batch], updates: Sequence[UpdateStats]
    ) -> HallmarkError | None:
        """Keep what was not finite for study, warn of nulls. The reason to stop, where there is one."""
        if not all(update.applied for update in updates):
            with storage_errors(self.folder):
                kept = save_for_study(self.folder, self.steps_done, batches)
            self.monitor.say(f"not finite, step skipped; kept {kept}")
        try:
            warning = self.guards.watch(groups, updates)
        except HallmarkError as error:
            return error
        if warning:
            self.monitor.say(warning)
        return None

    # ---- saving ---------------------------------------------------------------------------------------------

    def save_if_due(self) -> None:
        """A checkpoint, every so many steps, at the end, and of the best evaluation."""
        every, step = self.config.save_every, self.steps_done
        if every and (step % every == 0 or step == self.config.steps or self.best.get("step") == step):
            self.monitor.say(f"saved {self.save()}")

    def save(self) -> Path:
        """A checkpoint of the run as it is now, by the first of its processes. Raises StorageError."""
        if self.backend.ranks.rank:
            return self.folder
        state = {
            **self.fixed,
            "prompts": self.position,
            "pending": self.pending,
            "guards": self.guards.state(),
            "best": self.best,
        }
        with storage_errors(self.folder):
            path = save_checkpoint(self.backend, self.folder, self.steps_done, state, card=self.card(self.steps_done))
            best = self.best.get("step")
            prune(self.folder, keep=self.config.keep_checkpoints, best=None if best is None else int(best))
        self.monitor.saved(self.steps_done, path)
        return path

    def where_to_go_on(self) -> str:
        """Save, where there is something to save, and say where and how to go on."""
        if not self.steps_done:
            return "no step was taken, nothing to save"
        try:
            path = self.save()
        except StorageError as error:
            return f"saving failed: {error}; {self.last_checkpoint()}"
        return f"the run after step {self.steps_done} is in {path}; go on with --resume auto"

    def last_checkpoint(self) -> str:
        """The last whole checkpoint, in words."""
        paths = checkpoint_folders(self.folder)
        return f"{paths[-1]} is whole; go on with --resume auto" if paths else "there is no checkpoint to go on from"

    def finish(self) -> None:
        """Save the final model."""
        if self.backend.ranks.rank:
            return
        with storage_errors(self.folder):
            path = save_model(self.backend, self.folder, FINAL, card=self.card(self.steps_done))
        self.monitor.saved(self.steps_done, path)
        self.monitor.say(f"saved {path}; plot in {self.folder / PLOT}")


@contextlib.contextmanager
def prepare(
    config: TrainConfig,
    console: Console,
    *,
    loss: LossFn | None = None,
    batches: Batches | None = None,
    callbacks: Sequence[Callback] = (),
    interrupted: Interruption | None = None,
) -> Iterator[Run]:
    """Resolve rewards, read data, claim the output folder, load the model. Raises ConfigError or RewardServiceError.

    loss replaces the one that the config describes; batches the order in which prompts come.
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
        rows, eval_rows = data.training_rows(config), data.evaluation_rows(config)
        build = data.prompt_builder(config)
        folder = opened.enter_context(_folder(config, checkpoint, ranks, console))
        say(console, f"loading {config.model}")
        backend = load_backend(config)
        prompts, eval_prompts = build(rows, backend.tokenizer), build(eval_rows, backend.tokenizer)
        config = data.with_steps(config, prompts)
        order = batches or partial(data.batches, shuffle=config.shuffle, length_buckets=config.length_buckets)
        stream = PromptStream(order(prompts, size=config.prompts_per_step, seed=config.seed), prompts)
        sampler = Sampler(backend, rewards, run_id=folder.name)
        monitor = Monitor(
            folder,
            steps=config.steps,
            console=console,
            show_completions_every=config.show_completions_every,
            callbacks=[*watching, *callbacks],
            config=config,
            resumed_at=checkpoint.step if checkpoint else 0,
        )

        def changed(what: str) -> None:
            monitor.say(what)
            changes.append(what)

        run = Run(
            config=config,
            folder=folder,
            backend=backend,
            evaluator=Evaluator(config, sampler, eval_prompts, eval_manifest),
            monitor=monitor,
            prompts=stream,
            collect=choices.collect(config, sampler, choices.manifests(config, rewards, manifest, changed), stream),
            advantages=choices.advantages(config, backend, manifest),
            batches=choices.batches(config, backend, every_row=loss is not None),
            learning_rate=make_schedule(
                config.lr_schedule, peak=config.learning_rate, warmup=config.warmup_steps, steps=config.steps
            ),
            loss_fn=loss or make_loss(config.loss_config()),
            guards=Guards(max_null_fraction=config.max_null_fraction, max_not_finite=config.max_not_finite),
            card=lambda step: model_card(config, manifest, read_rows(folder / METRICS), step=step, versions=versions()),
            fixed=_fixed(config, manifest, eval_manifest, prompts, backend),
            changes=changes,
        )
        if checkpoint is not None:
            _take_up(run, checkpoint)
        opened.enter_context(monitor)
        opened.enter_context(contextlib.closing(sampler))
        for message in (
            _opening(config, manifest, len(prompts), len(eval_prompts)),
            data.left_out(rows, prompts, limit=config.max_prompt_length),
            *backend.notes,
            check_sampler(backend, prompts, choices.sampling(config, step=0)),
        ):
            if message:
                monitor.say(message)
        yield run


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
    top_value(eval_manifest)
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
