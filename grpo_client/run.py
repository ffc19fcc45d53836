"""The parts of a run, and what happens to them as steps go by: reported, watched, saved, finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_client import choices
from grpo_client.backends.base import Backend, UpdateStats
from grpo_client.config import TrainConfig
from grpo_client.data.stream import PromptStream
from grpo_client.errors import HallmarkError, StorageError
from grpo_client.evaluation import Evaluator
from grpo_client.guards import Guards
from grpo_client.learning.advantages import Advantages
from grpo_client.learning.batch import Batch
from grpo_client.learning.losses import LossFn
from grpo_client.reports.monitor import Monitor
from grpo_client.reports.plots import PLOT
from grpo_client.storage.checkpoint import checkpoint_folders, prune, save_checkpoint, save_model
from grpo_client.storage.output import FINAL, save_for_study, storage_errors
from grpo_client.types import Group, Metrics


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
    pending: Metrics | None = field(default_factory=lambda: Metrics(step=0))  # that is to be reported
    best: dict[str, float] = field(default_factory=dict)  # step and accuracy of the best evaluation
    trained_tokens: int = 0  # that counted in the losses of these steps
    changes: list[str] = field(default_factory=list)  # of the rewards, until a row tells them

    # ---- of a step ------------------------------------------------------------------------------------------

    def done(self, step: int, row: Metrics, *, tokens: int) -> None:
        """The model has learnt from this step, whose row is to be reported: a checkpoint made from now on goes on here.

        Also when the next step, or this one's evaluation, fails halfway.
        """
        self.trained_tokens += tokens
        self.steps_done, self.pending = step, row | {"trained_tokens": self.trained_tokens}
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

    def _reward_change(self) -> Metrics:
        """What of the rewards is not as it was, in the next row."""
        told, self.changes[:] = list(self.changes), []
        return {"reward/changed": "; ".join(told)} if told else {}

    def watch(
        self,
        groups: Sequence[Group],
        advantages: Advantages,
        batches: Sequence[Batch],
        updates: Sequence[UpdateStats],
    ) -> HallmarkError | None:
        """Keep what was not finite for study, say what somebody should see. The reason to stop, where there is one."""
        if not all(update.applied for update in updates):
            with storage_errors(self.folder):
                kept = save_for_study(self.folder, self.steps_done, batches)
            self.monitor.say(f"not finite, step skipped; kept {kept}")
        try:
            for warning in self.guards.watch(groups, advantages, updates):
                self.monitor.say(warning)
        except HallmarkError as error:
            return error
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
            "trained_tokens": self.trained_tokens,
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
