"""Held-out evaluation: completions, greedy or several a prompt, judged by one reward over the path of training."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
Measure = Callable[[Sequence[Group]], Metrics]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found, with a record of each completion. What nothing could be scored for is None.

    `accuracy` is the share of scored completions that got the judge's top value; `pass_at[k]` the chance that one of k
    completions of a prompt does, as a mean over prompts.
    """

    accuracy: float | None
    pass_at: Mapping[int, float | None]
    reward: float | None  # mean total
    rewards: Mapping[str, float | None]  # mean of each reward, the judge among them
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
    judge: str,
    on_groups: Callable[[Sequence[Group], Sequence[Record]], None] = lambda groups, records: None,
) -> Evaluation:
    """Sample each prompt `group_size` times and score; right is what has the top value of the reward named `judge`.

    on_groups gets the groups of some prompts at a time, and their records, as they are scored.
    """
    top = top_value(manifest, judge)
    records: list[Record] = []
    for start in range(0, len(prompts), _PROMPTS_AT_ONCE):
        groups = sampler.rollouts(prompts[start : start + _PROMPTS_AT_ONCE], sampling, manifest, phase="eval").groups
        new = [record for group in groups for record in _records(group, judge, top)]
        on_groups(groups, new)
        records += new
    return summarise(records, samples=sampling.group_size)


def _records(group: Group, judge: str, top: float) -> Iterable[Record]:
    values, statuses = group.scores.values[judge], group.scores.statuses[judge]
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
            "scores": {name: scores[sample] for name, scores in group.scores.values.items()},
            "total": group.scores.totals[sample],
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
        reward=_mean([record["total"] for record in records if record["total"] is not None]),
        rewards={
            name: _mean([record["scores"][name] for record in records if record["scores"][name] is not None])
            for name in records[0]["scores"]
        },
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


def judged(manifest: Manifest, judge: Manifest) -> tuple[Manifest, str]:
    """Rewards and a judge in one question, and the judge's name in it: of weight 0 where it is none of them."""
    (spec,) = judge.rewards
    for one in manifest.rewards:
        if (one.id, one.params) == (spec.id, spec.params):
            return manifest, one.name or one.id
    name = spec.id if spec.id not in manifest.names else f"{spec.id} (eval)"
    rewards = (*manifest.rewards, spec.model_copy(update={"name": name, "weight": 0.0}))
    return replace(manifest, rewards=rewards, infos={**manifest.infos, **judge.infos}), name


class Evaluator:
    """Evaluates when it is time to: before training, every `eval_every` steps, and at the end.

    manifest and judge are those of the run's start, so that evaluations compare. A run that follows an alias is given
    the judge alone. `measure` makes numbers of all groups, besides those of their rewards.
    """

    def __init__(
        self,
        config: TrainConfig,
        sampler: Sampler,
        prompts: Sequence[Prompt],
        manifest: Manifest,
        judge: Manifest,
        measure: Measure,
    ) -> None:
        self._every = config.eval_every
        self._last = config.steps
        self._sampler = sampler
        self._prompts = prompts
        self._manifest, self._judge = (judge, judge.names[0]) if config.follow else judged(manifest, judge)
        (self._rule,) = judge.rewards
        self._measure = measure
        self._sampling = evaluation_sampling(config)

    def metrics(self, step: int, log: Callable[[int, Evaluation], None]) -> Metrics:
        """`eval/*` of the policy after `step` steps; empty when it is not time. Completions go to `log`."""
        if not self._prompts or not self._every or (step % self._every and step != self._last):
            return {}
        started = time.perf_counter()
        groups: list[Group] = []
        evaluation = evaluate(
            self._sampler,
            self._prompts,
            self._sampling,
            self._manifest,
            judge=self._judge,
            on_groups=lambda scored, records: groups.extend(scored),
        )
        log(step, evaluation)
        return (
            evaluation_metrics(evaluation)
            | self._measure(groups)
            | {
                "eval/reward_id": self._rule.id,
                "eval/reward_digest": self._rule.digest,
                "time/eval": time.perf_counter() - started,
            }
        )


def evaluation_metrics(evaluation: Evaluation) -> Metrics:
    """The numbers of an evaluation under their names in metrics.jsonl; pass@k where a prompt has several samples."""
    row: Metrics = {
        "eval/accuracy": evaluation.accuracy,
        "eval/reward": evaluation.reward,
        "eval/mean_length": evaluation.mean_length,
        "eval/clipped_ratio": evaluation.clipped_ratio,
        "eval/null": evaluation.nulls,
    }
    row |= {f"eval/rewards/{name}/mean": value for name, value in evaluation.rewards.items()}
    if len(evaluation.pass_at) > 1:
        row |= {f"eval/pass@{k}": value for k, value in evaluation.pass_at.items()}
    return row


def top_value(manifest: Manifest, name: str) -> float:
    """The top of the range of a judge, named as in the manifest. Raises ConfigError for a reward that has none."""
    spec = manifest.rewards[manifest.names.index(name)]
    top = manifest.infos[spec.id].range[1]
    if top is None:
        raise ConfigError(f"--eval-reward {spec.id} has no top value, so no answer is `right` by it; try math.equal@1")
    return top
