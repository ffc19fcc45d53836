"""The training page: sample and score groups, advantages, one update, a row of metrics; again."""

from __future__ import annotations

import itertools
from pathlib import Path

from rich.console import Console

from grpo_client.checkpoint import save_model
from grpo_client.config import TrainConfig
from grpo_client.data import batches as shuffled_batches
from grpo_client.errors import InterruptedRun, NotFiniteError, RewardServiceError
from grpo_client.interruption import Interruption, interruption
from grpo_client.losses import LossFn
from grpo_client.metrics import Stopwatch, completion_metrics, reward_metrics, time_metrics, update_metrics
from grpo_client.plots import plot_run
from grpo_client.run import Batches, Run, prepare

FINAL = "final"
_MOST_SKIPPED_IN_A_ROW = 5


def train(
    config: TrainConfig,
    console: Console | None = None,
    *,
    loss: LossFn | None = None,
    batches: Batches = shuffled_batches,
) -> Path:
    """Run a training. Returns the output folder, whose `final` holds the model.

    loss is called in place of the config's, with its arguments (`losses.make_loss`); batches in place of
    `data.batches`, with prompts, size and seed.

    Raises ConfigError before anything is trained; RewardServiceError, NotFiniteError and InterruptedRun after saving
    what there is.
    """
    with prepare(config, console or Console(), loss=loss, batches=batches) as run, interruption() as interrupted:
        try:
            _loop(run, interrupted)
        except RewardServiceError as error:
            error.add_note(f"the model after step {run.steps_done} is in {run.save()}")
            raise
        run.monitor.say(f"saved {save_model(run.backend, run.folder, FINAL)}; plot in {plot_run(run.folder)}")
        return run.folder


def _loop(run: Run, interrupted: Interruption) -> None:
    config, monitor = run.config, run.monitor
    skipped_in_a_row = 0
    monitor.log({"step": 0} | run.evaluator.metrics(0, monitor.log_evaluation))
    for step, prompts in enumerate(itertools.islice(run.stream, config.steps), start=1):
        clock = Stopwatch("rollout")
        rollouts = run.collect(prompts, step)
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
        run.steps_done = step
        monitor.log_rollouts(step, groups, advantages)
        monitor.log(
            {"step": step}
            | reward_metrics(groups, advantages)
            | completion_metrics(groups)
            | update_metrics(updates, learning_rate=rate)
            | time_metrics(rollouts, clock)
            | {"peak_mem_gb": run.backend.peak_memory_gb()}
            | run.evaluator.metrics(step, monitor.log_evaluation)
        )
        skipped_in_a_row = skipped_in_a_row + 1 if not all(update.applied for update in updates) else 0
        if skipped_in_a_row == _MOST_SKIPPED_IN_A_ROW:
            raise NotFiniteError(
                f"loss or gradient were not finite {skipped_in_a_row} steps in a row; the model is in {run.save()}"
            )
        if interrupted.requested:
            raise InterruptedRun(f"interrupted; the model after step {step} is in {run.save()}")
        if config.save_every and step % config.save_every == 0:
            monitor.say(f"saved {run.save()}")
