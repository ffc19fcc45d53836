"""Held-out evaluation: completions, greedy or several a prompt, scored by one reward over the path of training."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.rewards.client import Manifest
from grpo_client.rollout import Sampler, sampling_of
from grpo_client.types import Group, Metrics, Prompt, Sampling

_PROMPTS_AT_ONCE = 64
_NOISE_STREAM = 1  # training draws from stream 0

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found, with a record of each completion. What nothing could be scored for is None.

    `accuracy` is the share of scored completions that got the reward's top value; `pass_at[k]` the chance that one of k
    completions of a prompt does, as a mean over prompts.
    """

    accuracy: float | None
    pass_at: Mapping[int, float | None]
    reward: float | None  # mean score
    nulls: int
    null_statuses: Mapping[str, int]
    mean_length: float  # tokens
    clipped_ratio: float
    records: list[Record]


def evaluation_sampling(config: TrainConfig) -> Sampling:
    """How evaluation samples: with the same noise at each step, which no step of training draws."""
    return sampling_of(
        config, group_size=config.eval_samples, temperature=config.eval_temperature, stream=_NOISE_STREAM
    )


def evaluate(
    sampler: Sampler,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    manifest: Manifest,
    *,
    on_records: Callable[[Sequence[Record]], None] = lambda records: None,
) -> Evaluation:
    """Sample each prompt `group_size` times and score with the manifest's only reward.

    on_records gets the records of some prompts at a time, as they are scored.
    """
    (name,) = manifest.names
    top = top_value(manifest)
    records: list[Record] = []
    for start in range(0, len(prompts), _PROMPTS_AT_ONCE):
        part = prompts[start : start + _PROMPTS_AT_ONCE]
        new = [
            record
            for group in sampler.rollouts(part, sampling, manifest, phase="eval").groups
            for record in _records(group, name, top)
        ]
        on_records(new)
        records += new
    return summarise(records, samples=sampling.group_size)


def _records(group: Group, name: str, top: float) -> Iterable[Record]:
    values, statuses = group.scores.values[name], group.scores.statuses[name]
    for sample, (rollout, text) in enumerate(zip(group.rollouts, group.texts, strict=True)):
        value = values[sample]
        yield {
            "prompt_index": group.prompt.index,
            "sample": sample,
            "prompt": list(group.prompt.messages),
            "gold": group.prompt.gold,
            "text": text,
            "token_ids": rollout.token_ids,
            "finish_reason": rollout.finish_reason,
            "value": value,
            "status": statuses[sample],
            "right": None if value is None else value >= top,
        }


def summarise(records: list[Record], *, samples: int) -> Evaluation:
    """The numbers of an evaluation, from its records, of which there must be one at least."""
    scored = [record for record in records if record["value"] is not None]
    nulls = Counter(record["status"] for record in records if record["value"] is None)
    of_prompt: dict[int, list[bool]] = {}
    for record in scored:
        of_prompt.setdefault(record["prompt_index"], []).append(record["right"])
    return Evaluation(
        accuracy=_mean([float(record["right"]) for record in scored]),
        pass_at={
            k: _mean([pass_at_k(len(right), sum(right), k) for right in of_prompt.values() if len(right) >= k])
            for k in reported_ks(samples)
        },
        reward=_mean([record["value"] for record in scored]),
        nulls=nulls.total(),
        null_statuses=dict(sorted(nulls.items())),
        mean_length=fmean(len(record["token_ids"]) for record in records),
        clipped_ratio=fmean(record["finish_reason"] == "length" for record in records),
        records=records,
    )


def pass_at_k(n: int, right: int, k: int) -> float:
    """The chance that k of a prompt's n completions, drawn without putting back, hold a right one.

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, eq. 1), in whole numbers.
    """
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def reported_ks(samples: int) -> list[int]:
    """1, 2, 4, … and the number of samples."""
    return sorted({2**power for power in range(samples.bit_length())} | {samples})


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


class Evaluator:
    """Evaluates when it is time to: before training, every `eval_every` steps, and at the end."""

    def __init__(self, config: TrainConfig, sampler: Sampler, prompts: Sequence[Prompt], manifest: Manifest) -> None:
        self._every = config.eval_every
        self._last = config.steps
        self._sampler = sampler
        self._prompts = prompts
        self._manifest = manifest
        self._sampling = evaluation_sampling(config)

    def metrics(self, step: int, log: Callable[[int, Evaluation], None]) -> Metrics:
        """`eval/*` of the policy after `step` steps; empty when it is not time. Completions go to `log`."""
        if not self._prompts or not self._every or (step % self._every and step != self._last):
            return {}
        started = time.perf_counter()
        evaluation = evaluate(self._sampler, self._prompts, self._sampling, self._manifest)
        log(step, evaluation)
        (spec,) = self._manifest.rewards
        return evaluation_metrics(evaluation) | {
            "eval/reward_id": spec.id,
            "eval/reward_digest": spec.digest,
            "time/eval": time.perf_counter() - started,
        }


def evaluation_metrics(evaluation: Evaluation) -> Metrics:
    """The numbers of an evaluation under their names in metrics.jsonl; pass@k where a prompt has several samples."""
    row: Metrics = {
        "eval/accuracy": evaluation.accuracy,
        "eval/reward": evaluation.reward,
        "eval/mean_length": evaluation.mean_length,
        "eval/clipped_ratio": evaluation.clipped_ratio,
        "eval/null": evaluation.nulls,
    }
    if len(evaluation.pass_at) > 1:
        row |= {f"eval/pass@{k}": value for k, value in evaluation.pass_at.items()}
    return row


def top_value(manifest: Manifest) -> float:
    """The top of an evaluation reward's range. Raises ConfigError for a reward that has none."""
    (spec,) = manifest.rewards
    top = manifest.infos[spec.id].range[1]
    if top is None:
        raise ConfigError(f"--eval-reward {spec.id} has no top value, so no answer is `right` by it; try math.equal@1")
    return top
