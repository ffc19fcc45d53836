"""A step as a row of numbers, under the names that people chart. What is unknown is None, never 0."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from reward_proto import v1

from grpo_client.backends.base import UpdateStats
from grpo_client.learning.advantages import Advantages
from grpo_client.rollout import Rollouts
from grpo_client.types import Group, Metrics, Rollout, finite

_MAXIMUM = ("/max", "_max")


def reward_metrics(groups: Sequence[Group], advantages: Advantages) -> Metrics:
    """What a step's rewards were: over scored completions, ddof 1, as TRL names them; nulls counted by status."""
    row: Metrics = {"reward": advantages.reward_mean, "reward_std": advantages.reward_std}
    nulls: Counter[str] = Counter(dict.fromkeys(sorted(v1.NULL_STATUSES), 0))
    for name in groups[0].scores.values:
        values = [value for group in groups for value in group.scores.values[name] if value is not None]
        row[f"rewards/{name}/mean"] = fmean(values) if values else None
        row[f"rewards/{name}/std"] = stdev(values) if len(values) > 1 else None
        for group in groups:
            pairs = zip(group.scores.values[name], group.scores.statuses[name], strict=True)
            nulls.update(status for value, status in pairs if value is None)
    row |= {f"reward/null/{status}": count for status, count in nulls.items()}
    row["reward/unscored"] = sum(total is None for group in groups for total in group.scores.totals)
    nothing = advantages.reward_mean is None
    row["frac_reward_zero_std"] = None if nothing else advantages.frac_reward_zero_std
    return row


def completion_metrics(groups: Sequence[Group]) -> Metrics:
    """How long the completions were, in tokens, which share of them was cut, and the policy's entropy.

    entropy: nats a token, of what was sampled from, temperature included. Minus the logprob of a sampled token is an
    unbiased estimate of it, which costs nothing.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = [len(rollout.token_ids) for rollout in rollouts]
    return {
        "entropy": entropy(rollouts),
        "completions/mean_length": fmean(lengths),
        "completions/min_length": min(lengths),
        "completions/max_length": max(lengths),
        "completions/clipped_ratio": fmean(rollout.finish_reason == "length" for rollout in rollouts),
    }


def entropy(rollouts: Sequence[Rollout]) -> float | None:
    """Minus the mean logprob of all sampled tokens; None where there is none."""
    logprobs = [logprob for rollout in rollouts for logprob in rollout.sampling_logprobs]
    return finite(-fmean(logprobs)) if logprobs else None


def update_metrics(updates: Sequence[UpdateStats], *, learning_rate: float) -> Metrics:
    """Of the step's optimizer steps: means over them, of maxima the maximum; None where nothing was scored."""
    row: Metrics = {"kl": None, "loss": None, "grad_norm": None}
    for name in dict.fromkeys(name for update in updates for name in update.metrics):
        values = [update.metrics[name] for update in updates if name in update.metrics]
        row[name] = finite(max(values) if name.endswith(_MAXIMUM) else fmean(values))
    if updates:
        row |= {
            "loss": finite(fmean(update.loss for update in updates)),
            "grad_norm": finite(fmean(update.grad_norm for update in updates)),
        }
    applied = sum(update.applied for update in updates)
    return row | {"learning_rate": learning_rate, "update/applied": applied}


def read_rows(file: Path) -> list[Metrics]:
    """The rows of a metrics.jsonl. Raises OSError."""
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def time_metrics(rollouts: Rollouts, clock: Stopwatch) -> Metrics:
    """Seconds of the step (evaluation apart), sampled tokens a second, and the suite that scored the step."""
    tokens = sum(len(rollout.token_ids) for group in rollouts.groups for rollout in group.rollouts)
    return {
        "reward/suite": rollouts.suite,
        "time/step": clock.laps["rollout"] + clock.laps["update"],
        "time/rollout": rollouts.sampling_seconds,
        "time/reward_wait": rollouts.waiting_seconds,
        "time/update": clock.laps["update"],
        "tok_per_s/rollout": tokens / rollouts.sampling_seconds,
    }


class Stopwatch:
    """Seconds of named laps; the first one is running from the start."""

    def __init__(self, first: str) -> None:
        self.laps: dict[str, float] = {}
        self._running = first
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        """End the running lap and begin another."""
        now = time.perf_counter()
        self.laps[self._running] = now - self._since
        self._running, self._since = name, now
