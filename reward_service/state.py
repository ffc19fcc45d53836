"""What one application holds: settings, metrics, suites, the pool, and the rewards once the workers have named them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from reward_proto import v1

from reward_service.aliases import AliasStore
from reward_service.errors import ProblemError
from reward_service.locks import LOCKS
from reward_service.metrics import Metrics
from reward_service.pool.jobs import Chunk, Job, Portion
from reward_service.pool.pool import Pool
from reward_service.resolving import Resolved
from reward_service.served import Served
from reward_service.settings import Settings
from reward_service.suites import BUILT_IN, Suites
from reward_service.worker.messages import Completion, PortionContent

log = logging.getLogger("reward_service")

KNOWN_PAIR = ("math.equal@1", "1/2", r"\boxed{\frac{2}{4}}")


class Service:
    """The state behind the endpoints of one application."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.suites = Suites(BUILT_IN, *([settings.suites] if settings.suites else []))
        self.aliases = AliasStore(settings.store) if settings.store else None
        self.pool = Pool(settings, self.metrics)
        self.served = Served(settings, self.pool, check=self._check_suites, on_change=self._on_change)
        self.proven = False
        self.draining = False
        self.metrics.queued.set_function(self.pool.waiting_units)

    def start(self) -> None:
        """Start the processes that score."""
        self.served.start()

    def _on_change(self) -> None:
        """Other rewards are served now. The first time, have the workers grade a known pair before calling it ready."""
        for reward_id, why in self.served.unavailable.items():
            log.info("not served: %s", why if reward_id in why else f"{reward_id}: {why}")
        if not self.proven:
            self._grade_known_pair()

    def _check_suites(self, rewards: Mapping[str, v1.RewardInfo]) -> None:
        """Raise SuiteError when the suites do not fit the rewards that are about to be served."""
        self.suites.check(rewards, elsewhere={reward_id for lock in LOCKS for reward_id in lock.rewards})

    def _grade_known_pair(self) -> None:
        reward_id, gold, completion = KNOWN_PAIR
        content: PortionContent = {
            "rewards": [(reward_id, {})],
            "golds": [gold],
            "prompt": [],
            "metadata": {},
            "completions": [Completion(completion)],
        }
        chunk = Chunk(self.served.fleets[reward_id], [Portion(content, [(0, 0, 0)])])
        self.pool.submit(Job([chunk], 1, on_end=self._prove))

    def _prove(self, job: Job) -> None:
        value, status, _ = job.results[0] or (None, "expired", None)
        if value == 1.0:
            self.proven = True
            log.info("ready: %d rewards, %d workers", len(self.served.rewards), self.settings.workers)
        else:
            log.error("a known pair of %s was graded %s (%s); the service is not ready", KNOWN_PAIR[0], value, status)

    def require_rewards(self) -> None:
        """Raise 503 while there is nothing to serve yet, or no longer."""
        if self.draining:
            raise ProblemError(503, "the service is shutting down; try another replica", retry_after=5)
        if not self.served.rewards:
            raise ProblemError(503, "the workers are starting; this takes a second or two", retry_after=1)

    def admit(self, completions: int, rewards: int) -> None:
        """Raise ProblemError for a request that cannot be taken: 503 not serving, 413 too large, 429 queue full."""
        self.require_rewards()
        limit = self.settings.max_completions
        if completions > limit:
            raise ProblemError(
                413, f"over {limit} completions in one request (REWARD_MAX_COMPLETIONS); send fewer at a time"
            )
        if self.pool.waiting_units() + completions * max(rewards, 1) > self.settings.max_queued_units:
            raise ProblemError(
                429, "the queue is full (REWARD_MAX_QUEUED_UNITS); try again, or add a replica", retry_after=1
            )

    def deadline_ms(self, asked: int | None) -> int:
        """The deadline of a request, within the limit."""
        return min(asked or self.settings.max_deadline_ms, self.settings.max_deadline_ms)

    def count(self, groups: Sequence[v1.GroupScores], rewards: Sequence[Resolved]) -> None:
        """Count the outcomes of an answer, by reward."""
        for reward in rewards:
            scores, values = self.metrics.scores, self.metrics.values.labels(reward=reward.info.id)
            plus, minus = (self.metrics.paid.labels(reward=reward.info.id, sign=sign) for sign in "+-")
            statuses = Counter(status for group in groups for status in group.statuses[reward.name])
            for status, count in statuses.items():
                scores.labels(reward=reward.info.id, status=status).inc(count)
            paid = [value for group in groups for value in group.scores[reward.name] if value is not None]
            plus.inc(sum(value for value in paid if value > 0))
            minus.inc(-sum(value for value in paid if value < 0))
            for value in paid:
                values.observe(value)
