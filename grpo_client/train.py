"""The training page: sample and score groups, advantages, one update, a row of metrics; again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from grpo_client.config import TrainConfig
from grpo_client.data.order import PromptOrder
from grpo_client.errors import (
    BrokenModelError,
    ConfigError,
    InterruptedRun,
    NotFiniteError,
    NothingLearntError,
    RewardServiceError,
    StorageError,
)
from grpo_client.interruption import Interruption, interruption
from grpo_client.learning.losses import LossFn
from grpo_client.opening import prepare
from grpo_client.ranks import anyone
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.metrics import Stopwatch, completion_metrics, reward_metrics, time_metrics, update_metrics
from grpo_client.run import Run


def train(
    config: TrainConfig,
    console: Console | None = None,
    *,
    loss: LossFn | None = None,
    prompt_order: PromptOrder | None = None,
    callbacks: Sequence[Callback] = (),
) -> Path:
    """Run a training, or go on with one. Returns the output folder, whose `final` holds the model.

    loss is called in place of the config's, with its arguments (`losses.make_loss`); prompt_order in place of
    `data.order.prompt_order`, with prompts, size and seed; callbacks hear of steps, evaluations and saves.

    Raises ConfigError before anything is trained; RewardServiceError, NotFiniteError, NothingLearntError and
    InterruptedRun after saving a checkpoint; BrokenModelError and StorageError without: nothing to save, or no room.
    """
    with (
        interruption() as interrupted,
        prepare(
            config,
            console or Console(),
            loss=loss,
            prompt_order=prompt_order,
            callbacks=callbacks,
            interrupted=interrupted,
        ) as run,
    ):
        try:
            _loop(run, interrupted)
            run.finish()
        except BrokenModelError as error:
            error.add_note(f"its weights were not saved; {run.last_checkpoint()}")
            raise
        except (RewardServiceError, NotFiniteError, NothingLearntError, ConfigError) as error:
            where = run.where_to_go_on()
            if interrupted.requested:
                raise InterruptedRun(f"interrupted while the reward service was away; {where}") from error
            error.add_note(where)
            raise
        except StorageError as error:
            error.add_note(f"make room; {run.last_checkpoint()}")
            raise
        return run.folder


def _loop(run: Run, interrupted: Interruption) -> None:
    config = run.config
    run.report()  # before training, or of the step whose evaluation did not come to its end
    while run.steps_done < config.steps:
        if anyone(run.backend.ranks, interrupted.requested):
            raise InterruptedRun(f"interrupted; {run.where_to_go_on()}")
        step = run.steps_done + 1
        clock = Stopwatch("rollout")
        rollouts = run.collect(run.prompts.take(), step)
        groups = rollouts.groups
        clock.lap("update")
        advantages = run.advantages(groups)
        batches = run.batches(groups, advantages)  # one an optimizer step; none where nothing was scored
        rate = run.learning_rate(step)
        updates = [
            run.backend.update(batch, run.loss_fn, learning_rate=rate)
            for _ in range(config.num_iterations)
            for batch in batches
        ]
        clock.lap("rest")
        run.monitor.log_rollouts(step, groups, advantages)
        row = (
            {"step": step}
            | reward_metrics(groups, advantages)
            | completion_metrics(groups)
            | update_metrics(updates, learning_rate=rate)
            | time_metrics(rollouts, clock)
            | {"peak_mem_gb": run.backend.peak_memory_gb()}
        )
        run.done(step, row, tokens=sum(batch.denominators.tokens for batch in batches))
        must_stop = run.watch(groups, advantages, batches, updates)
        run.report()
        if must_stop is not None:
            raise must_stop
        run.save_if_due()
