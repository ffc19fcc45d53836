"""Held-out accuracy: greedy completions, scored by one reward over the same path as in training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.metrics import Row
from grpo_client.rewards import Manifest
from grpo_client.rollout import Sampler
from grpo_client.types import Prompt, Sampling

_PROMPTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`accuracy` is the share of prompts whose answer got the reward's top value; None when none could be scored."""

    accuracy: float | None
    nulls: int
    records: list[Mapping[str, Any]]


def evaluate(sampler: Sampler, prompts: Sequence[Prompt], sampling: Sampling, manifest: Manifest) -> Evaluation:
    """Sample each prompt once (greedy when the temperature is 0) and score it with the manifest's only reward."""
    (name,) = manifest.names
    top = top_value(manifest)
    records: list[Mapping[str, Any]] = []
    for start in range(0, len(prompts), _PROMPTS_AT_ONCE):
        part = prompts[start : start + _PROMPTS_AT_ONCE]
        for group in sampler.rollouts(part, sampling, manifest, phase="eval").groups:
            value, status = group.scores.values[name][0], group.scores.statuses[name][0]
            records.append(
                {
                    "prompt_index": group.prompt.index,
                    "prompt": list(group.prompt.messages),
                    "gold": group.prompt.gold,
                    "text": group.texts[0],
                    "token_ids": group.rollouts[0].token_ids,
                    "finish_reason": group.rollouts[0].finish_reason,
                    "value": value,
                    "status": status,
                    "right": None if value is None else value >= top,
                }
            )
    scored = [record["right"] for record in records if record["right"] is not None]
    return Evaluation(sum(scored) / len(scored) if scored else None, len(records) - len(scored), records)


class Evaluator:
    """Evaluates when it is time to: before training, every `eval_every` steps, and at the end."""

    def __init__(self, config: TrainConfig, sampler: Sampler, prompts: Sequence[Prompt], manifest: Manifest) -> None:
        self._every = config.eval_every
        self._last = config.steps
        self._sampler = sampler
        self._prompts = prompts
        self._manifest = manifest
        self._sampling = Sampling(
            group_size=1, max_tokens=config.max_completion_length, temperature=0.0, rows=config.sampling_rows
        )

    def metrics(self, step: int, log: Callable[[int, Evaluation], None]) -> Row:
        """`eval/*` of the policy after `step` steps; empty when it is not time. Completions go to `log`."""
        if not self._prompts or not self._every or (step % self._every and step != self._last):
            return {}
        started = time.perf_counter()
        evaluation = evaluate(self._sampler, self._prompts, self._sampling, self._manifest)
        log(step, evaluation)
        (spec,) = self._manifest.rewards
        return {
            "eval/accuracy": evaluation.accuracy,
            "eval/null": evaluation.nulls,
            "eval/reward_id": spec.id,
            "eval/reward_digest": spec.digest,
            "time/eval": time.perf_counter() - started,
        }


def top_value(manifest: Manifest) -> float:
    """The top of an evaluation reward's range. Raises ConfigError for a reward that has none."""
    (spec,) = manifest.rewards
    top = manifest.infos[spec.id].range[1]
    if top is None:
        raise ConfigError(f"--eval-reward {spec.id} has no top value, so no answer is `right` by it; try math.equal@1")
    return top
