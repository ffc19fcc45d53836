"""What one application holds: settings, metrics, suites, the pool, and the rewards once the workers have named them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_proto import v1

from reward_service.errors import ProblemError
from reward_service.jobs import Chunk, Job
from reward_service.metrics import Metrics
from reward_service.pool import Pool
from reward_service.resolving import Resolved
from reward_service.settings import Settings
from reward_service.suites import BUILT_IN, Suites

log = logging.getLogger("reward_service")

RELEASED = Path(__file__).with_name("released.json")
KNOWN_PAIR = ("math.equal@1", "1/2", r"\boxed{\frac{2}{4}}")


class Service:
    """The state behind the endpoints of one application."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.suites = Suites(BUILT_IN, *([settings.suites] if settings.suites else []))
        self.pool = Pool(settings, self.metrics, self._on_hello)
        self.rewards: Mapping[str, v1.RewardInfo] = {}
        self.unavailable: Mapping[str, str] = {}
        self.proven = False
        self.draining = False
        self.metrics.queued.set_function(self.pool.waiting_units)

    def _on_hello(self, hello: Mapping[str, Any]) -> None:
        """Take over the catalogue that the workers serve, and have them grade a known pair before calling it ready."""
        rewards: Sequence[Mapping[str, Any]] = hello["rewards"]
        released = read_released()
        described = {one["id"]: _describe(one, released) for one in rewards}
        self.unavailable = {one["id"]: why for one in rewards if (why := self._why_not(one, released)) is not None}
        self.rewards = {id: info for id, info in described.items() if id not in self.unavailable}
        for reward_id, why in self.unavailable.items():
            log.error("%s is not served: %s", reward_id, why)
        self.suites.check(described)
        reward_id, gold, completion = KNOWN_PAIR
        content = {
            "rewards": [[reward_id, {}]],
            "golds": [gold],
            "prompt": [],
            "metadata": {},
            "completions": [[completion, None, None, None]],
        }
        job = Job([Chunk(content, [(0, 0, 0)])], 1, on_end=self._prove)
        self.pool.submit(job)

    def _prove(self, job: Job) -> None:
        value, status, _ = job.results[0] or (None, "expired", None)
        if value == 1.0:
            self.proven = True
            log.info("ready: %d rewards, %d workers", len(self.rewards), self.settings.workers)
        else:
            log.error("a known pair of %s was graded %s (%s); the service is not ready", KNOWN_PAIR[0], value, status)

    def _why_not(self, one: Mapping[str, Any], released: Mapping[str, Any]) -> str | None:
        if one["broken_lock"]:
            return (
                f"{one['id']} promises its numbers on other packages than are installed "
                f"({'; '.join(one['broken_lock'])}); run: pip install 'hallmark-rl[service]'"
            )
        if one["id"] in released and one["digest"] not in released[one["id"]]["digests"]:
            return f"{one['id']} is released, but its source here is not what was released; add a new version instead"
        if one["id"] not in released and not self.settings.allow_drafts:
            return f"{one['id']} is a draft, whose numbers may still move; REWARD_ALLOW_DRAFTS=1 serves it"
        return None

    def require_rewards(self) -> None:
        """Raise 503 while there is nothing to serve yet, or no longer."""
        if self.draining:
            raise ProblemError(503, "the service is shutting down; try another replica", retry_after=5)
        if not self.rewards:
            raise ProblemError(503, "the workers are starting; this takes a second or two", retry_after=1)

    def admit(self, completions: int, rewards: int) -> None:
        """Raise ProblemError when a request cannot be taken: 503 not serving, 413 too many items, 429 queue full."""
        self.require_rewards()
        limit = self.settings.max_items
        if completions > limit:
            raise ProblemError(413, f"over {limit} completions in one request (REWARD_MAX_ITEMS); send fewer at a time")
        if self.pool.waiting_units() + completions * max(rewards, 1) > self.settings.max_queued_items:
            raise ProblemError(
                429, "the queue is full (REWARD_MAX_QUEUED_ITEMS); try again, or add a replica", retry_after=1
            )

    def deadline_ms(self, asked: int | None) -> int:
        """The deadline of a request, within the limit."""
        return min(asked or self.settings.max_deadline_ms, self.settings.max_deadline_ms)

    def count(self, groups: Sequence[v1.GroupScores], rewards: Sequence[Resolved]) -> None:
        """Count the outcomes of an answer, by reward."""
        for reward in rewards:
            items, values = self.metrics.items, self.metrics.values.labels(reward=reward.info.id)
            plus, minus = (self.metrics.paid.labels(reward=reward.info.id, sign=sign) for sign in "+-")
            for group in groups:
                for value, status in zip(group.scores[reward.name], group.statuses[reward.name], strict=True):
                    items.labels(reward=reward.info.id, status=status).inc()
                    if value is not None:
                        values.observe(value)
                        (plus if value >= 0 else minus).inc(abs(value))


def read_released() -> dict[str, Any]:
    """`released.json`: id → digests (newest last), lock, date. Nothing else says what is released."""
    released: dict[str, Any] = json.loads(RELEASED.read_text(encoding="utf-8"))
    return released


def _describe(one: Mapping[str, Any], released: Mapping[str, Any]) -> v1.RewardInfo:
    return v1.RewardInfo.model_validate({**one, "status": "released" if one["id"] in released else "draft"})
