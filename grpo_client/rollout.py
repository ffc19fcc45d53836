"""Sample groups and have them scored: each finished group is on its way to the service while the next is sampled."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from reward_proto import v1

from grpo_client.backends.base import Backend
from grpo_client.config import TrainConfig
from grpo_client.data.prompts import Tokenizer
from grpo_client.errors import BrokenModelError, RewardServiceError
from grpo_client.learning.advantages import dead_groups
from grpo_client.ranks import all_groups, own_places
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.types import Group, Prompt, Rollout, Sampling, Scores

_SCORING_THREADS = 4
_LOOK_UP_SECONDS = 0.5
_RESAMPLING_ROUNDS = 3  # where nearly all groups are dead, a step still ends: it takes four times as long at most
_PATIENCE_SECONDS = 5.0  # with a service that is silent, once the run is asked to end


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The groups of a step in the order of its prompts, and where the time went."""

    groups: list[Group]
    sampling_seconds: float
    waiting_seconds: float  # for the last scores, after the last token
    suite: str | None = None  # the version that scored them; None for rewards named one by one

    def __add__(self, other: Rollouts) -> Rollouts:
        return Rollouts(
            self.groups + other.groups,
            self.sampling_seconds + other.sampling_seconds,
            self.waiting_seconds + other.waiting_seconds,
            self.suite,
        )


def sampling_of(
    config: TrainConfig,
    *,
    group_size: int,
    temperature: float,
    ignore_eos: bool = False,
    step: int = 0,
    stream: int = 0,
) -> Sampling:
    """How completions are sampled: what training, evaluation and generation do alike is the config's to say."""
    return Sampling(
        group_size=group_size,
        max_tokens=config.max_completion_length,
        temperature=temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
        ignore_eos=ignore_eos,
        rows=max(config.sampling_rows, group_size),
        seed=config.seed,
        step=step,
        stream=stream,
    )


class Sampler:
    """Samples from a backend and scores with a reward client."""

    def __init__(self, backend: Backend, rewards: RewardClient, *, run_id: str) -> None:
        self._backend = backend
        self._rewards = rewards
        self._run_id = run_id
        self._threads = ThreadPoolExecutor(_SCORING_THREADS, thread_name_prefix="rewards")

    def close(self) -> None:
        """End the scoring threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)  # a service that has stalled may hold one for long

    def rollouts(self, prompts: Sequence[Prompt], sampling: Sampling, manifest: Manifest, *, phase: str) -> Rollouts:
        """One group a prompt, scored. Raises what the reward client raises; no score is ever made up."""
        run = v1.Run(id=self._run_id, step=sampling.step, phase=phase)
        started = time.perf_counter()
        pending: dict[int, tuple[list[Rollout], list[str], Future[Scores]]] = {}
        places = own_places(self._backend.ranks, len(prompts))
        for i, rollouts in self._backend.sample([prompts[place] for place in places], sampling) if places else ():
            _check_finite(prompts[places[i]], rollouts)
            texts = [completion_text(self._backend.tokenizer, prompts[places[i]], rollout) for rollout in rollouts]
            question = to_wire(prompts[places[i]], rollouts, texts, needs=manifest.needs())
            pending[places[i]] = rollouts, texts, self._threads.submit(self._score, manifest, question, run)
        sampled = time.perf_counter()
        own = {place: Group(prompts[place], *pending[place][:2], self._result(pending[place][2])) for place in places}
        groups = all_groups(self._backend.ranks, own, prompts)
        return Rollouts(groups, sampled - started, time.perf_counter() - sampled, manifest.suite)

    def resampled(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        manifest: Manifest,
        *,
        phase: str,
        spare: Iterator[Prompt],
    ) -> Rollouts:
        """The same, and for each dead group another prompt's, from `spare`, until enough are alive, for three rounds.

        All groups are returned, dead ones too. A prompt is sampled once a step: its noise would be the same again.
        """
        rollouts = self.rollouts(prompts, sampling, manifest, phase=phase)
        for _ in range(_RESAMPLING_ROUNDS):
            missing = len(prompts) - dead_groups([group.scores.totals for group in rollouts.groups]).count(False)
            seen = {group.prompt.index for group in rollouts.groups}
            drawn = {prompt.index: prompt for prompt in itertools.islice(spare, missing) if prompt.index not in seen}
            if not drawn:
                break
            rollouts += self.rollouts(list(drawn.values()), sampling, manifest, phase=phase)
        return rollouts

    def _result(self, scores: Future[Scores]) -> Scores:
        """A group's scores. Raises RewardServiceError when a service is silent while the run is asked to end."""
        while True:
            seconds = _PATIENCE_SECONDS if self._rewards.giving_up else _LOOK_UP_SECONDS
            try:
                return scores.result(timeout=seconds)
            except TimeoutError:
                if seconds == _PATIENCE_SECONDS:
                    raise RewardServiceError(f"{self._rewards.url} does not answer, and the run is to end") from None

    def _score(self, manifest: Manifest, question: v1.Group, run: v1.Run) -> Scores:
        (answer,) = self._rewards.score(manifest, [question], run=run)
        return Scores(answer.totals, answer.scores, answer.statuses)


def _check_finite(prompt: Prompt, rollouts: Sequence[Rollout]) -> None:
    """Raise BrokenModelError for a token drawn from logits that are NaN or infinite: nothing good can come of it."""
    for rollout in rollouts:
        place = next((t for t, one in enumerate(rollout.sampling_logprobs) if not math.isfinite(one)), None)
        if place is not None:
            raise BrokenModelError(
                f"the model's logits are not finite (prompt {prompt.index + 1}, token {place + 1} of a completion): "
                "its weights are broken, by too high a --learning-rate or as they were loaded. Go back to an earlier "
                "checkpoint with a lower rate"
            )


def completion_text(tokenizer: Tokenizer, prompt: Prompt, rollout: Rollout) -> str:
    """What a reader, and a reward, sees of a completion: what the template opened it with, and what was sampled."""
    return prompt.opening + tokenizer.decode(rollout.token_ids, skip_special_tokens=True)


def to_wire(prompt: Prompt, rollouts: Sequence[Rollout], texts: Sequence[str], *, needs: frozenset[str]) -> v1.Group:
    """A group as the service wants it, with only as much as the rewards need."""
    completions = [
        v1.Completion.model_validate(
            {"text": text, "finish_reason": rollout.finish_reason}
            | ({"token_count": len(rollout.token_ids)} if "token_count" in needs else {})
            | ({"token_ids": rollout.token_ids} if "token_ids" in needs else {})
        )
        for rollout, text in zip(rollouts, texts, strict=True)
    ]
    return v1.Group.model_validate(
        {"id": str(prompt.index), "gold": prompt.gold, "completions": completions}
        | ({"prompt": [dict(message) for message in prompt.messages]} if "prompt" in needs else {})
        | ({"metadata": dict(prompt.metadata)} if "metadata" in needs else {})
    )
