"""The reward service, seen from a trainer: resolve once, score groups, never invent a number.

What may pass (no connection, 429, 503, other 5xx) is tried again with growing, jittered pauses; what will not (4xx) is
not. Every answer is checked: ids, lengths, names, digests.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from reward_proto import v1
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_exponential_jitter,
)

from grpo_client.errors import ConfigError, RewardServiceError

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_CHANGED = ". Serve the rewards that the run began with, or resume with --accept-reward-change"
_WORKERS_METRIC = "hallmark_workers"


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The rewards of a run, resolved once: what is asked of the service in every step, digests included."""

    suite: str | None
    rewards: tuple[v1.RewardSpec, ...]
    infos: Mapping[str, v1.RewardInfo]  # by reward id
    service: str

    @property
    def names(self) -> list[str]:
        """The names under which scores come back, in the order that totals are added up in."""
        return [spec.name or spec.id for spec in self.rewards]

    def needs(self) -> frozenset[str]:
        """What the rewards need to be sent, besides completions and golds."""
        return frozenset(need for spec in self.rewards for need in self.infos[spec.id].needs)


class _Transient(Exception):
    """A failure that may pass, with the pause that the service asked for."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RewardClient:
    """A connection to a reward service. Safe to use from several threads.

    Every method raises RewardServiceError with the URL, what happened and what now; ConfigError for what the service
    does not know. `on_retry` hears when the service goes away and when it is back; once `give_up` is set, nothing is
    tried again.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 60.0,
        retry_seconds: float = 120.0,
        on_retry: Callable[[str], None] = lambda message: None,
        give_up: threading.Event | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._retry_seconds = retry_seconds
        self._on_retry = on_retry
        self._give_up = give_up or threading.Event()
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._timeout = timeout
        try:
            asked = httpx.URL(url.rstrip("/"))
            self._http = httpx.Client(base_url=asked, timeout=timeout, transport=transport)
        except httpx.InvalidURL as error:
            raise ConfigError(f"--reward-url {url} is not a URL ({error}); write http://host:port") from error
        if asked.scheme not in ("http", "https"):
            raise ConfigError(f"--reward-url {url}: write http://host:port")
        self.url = str(asked.copy_with(userinfo=b""))  # as it is shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def giving_up(self) -> bool:
        """Whether the run is asked to end, so that nobody should wait long for an answer."""
        return self._give_up.is_set()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ---- what there is --------------------------------------------------------------------------------------

    def info(self) -> v1.ServiceInfo:
        """The service's version and limits. Does not wait for a service that is not there."""
        try:
            return v1.ServiceInfo.model_validate(self._once("GET", v1.ROOT_PATH, None))
        except _Transient as error:
            raise RewardServiceError(
                f"no reward service answers at {self.url} ({error}). Start one with `reward-service serve`, "
                "or name another with --reward-url"
            ) from error
        except ValidationError as error:
            raise RewardServiceError(f"{self.url} answers, but not as a reward service does: {error}") from error

    def resolve(self, *, suite: str | None, rewards: Sequence[tuple[str, float]]) -> Manifest:
        """The rewards of a suite, or those named with their weights, with their digests as they are served now."""
        service = self.info()
        resolved = None
        if suite is not None:
            found = self.suite(suite)
            wanted = [v1.RewardSpec.model_validate(entry.model_dump()) for entry in found.rewards]
            resolved = found.id  # of an alias, the version that it points at now: a later move does not change this run
        else:
            wanted = [v1.RewardSpec(id=reward_id, weight=weight) for reward_id, weight in rewards]
        infos = {spec.id: self.reward(spec.id) for spec in wanted}
        pinned = tuple(spec.model_copy(update={"digest": infos[spec.id].digest}) for spec in wanted)
        return Manifest(resolved, pinned, infos, service.service)

    def reward(self, reward_id: str) -> v1.RewardInfo:
        """One reward as it is served. Raises ConfigError with the nearest ids."""
        return self._get(v1.RewardInfo, f"{v1.REWARDS_PATH}/{reward_id}")

    def suite(self, name: str) -> v1.SuiteInfo:
        """One suite, by version or alias. Raises ConfigError with the nearest ids."""
        return self._get(v1.SuiteInfo, f"{v1.SUITES_PATH}/{name}")

    def rewards(self) -> list[v1.RewardInfo]:
        """Every served version."""
        return self._get(v1.RewardList, v1.REWARDS_PATH).rewards

    def suites(self) -> list[v1.SuiteInfo]:
        """Every suite."""
        return self._get(v1.SuiteList, v1.SUITES_PATH).suites

    def aliases(self) -> list[v1.AliasInfo]:
        """Every alias of a suite; none where the service keeps no aliases."""
        try:
            return self._get(v1.AliasList, v1.ALIASES_PATH).aliases
        except ConfigError:
            return []

    def why_not_ready(self) -> str | None:
        """None when the service can score, else what it says. Asked once."""
        try:
            self._once("GET", v1.READY_PATH, None)
        except _Transient as error:
            return str(error)
        return None

    def workers(self) -> int | None:
        """Live workers, by the service's metrics; None where it does not say. Asked once."""
        try:
            lines = self._http.get(v1.METRICS_PATH).text.splitlines()
            return int(next(float(line.split()[1]) for line in lines if line.startswith(_WORKERS_METRIC + " ")))
        except (httpx.TransportError, StopIteration, ValueError):
            return None

    # ---- scoring --------------------------------------------------------------------------------------------

    def score(
        self, manifest: Manifest, groups: Sequence[v1.Group], *, run: v1.Run | None = None
    ) -> list[v1.GroupScores]:
        """One answer a group, in order, checked against what was asked. Raises ConfigError for lone surrogates."""
        request = v1.ScoreRequest(
            rewards=list(manifest.rewards), groups=list(groups), run=run, deadline_ms=int(self._timeout * 900)
        )
        try:
            body = request.model_dump_json(exclude_unset=True, exclude_none=True)
        except PydanticSerializationError as error:
            raise ConfigError(
                f"a prompt, gold or completion is not Unicode text and cannot be sent: {error}"
            ) from error
        answer = self._call("POST", v1.SCORE_PATH, body)
        try:
            scored = v1.ScoreResponse.model_validate(answer)
            self._check_digests(scored, manifest)
            _check(scored, manifest, groups)
        except (ValidationError, ValueError) as error:
            raise RewardServiceError(f"{self.url} broke the contract: {error}") from error
        return scored.groups

    def _check_digests(self, answer: v1.ScoreResponse, manifest: Manifest) -> None:
        """Raise ValueError for a digest that is neither the one asked for nor a later release of the same numbers."""
        for served, asked in zip(answer.rewards, manifest.rewards, strict=True):
            if served.digest != asked.digest and asked.digest not in self.reward(served.id).history:
                raise ValueError(f"asked for {asked.id} with digest {asked.digest}, scored with {served.digest}")

    # ---- calls ----------------------------------------------------------------------------------------------

    def _get(self, model: type[M], path: str) -> M:
        """What a path answers, in the form that the contract gives it."""
        answer = self._call("GET", path)
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(one) for one in first["loc"])
            raise RewardServiceError(f"{self.url}{path} broke the contract: {where}: {first['msg']}") from error

    def _call(self, method: str, path: str, body: str | None = None) -> Any:
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, _Transient)),
            stop=stop_any(stop_after_delay(self._retry_seconds), stop_when_event_set(self._give_up)),
            wait=_pause,
            sleep=sleep_using_event(self._give_up),
            before_sleep=self._say,
            reraise=True,
        )
        try:
            answer = retrying(self._once, method, path, body)
        except _Transient as error:
            raise RewardServiceError(
                f"the reward service at {self.url} did not answer in {self._retry_seconds:.0f} s of trying: {error}. "
                "Start it again with `reward-service serve`, or wait longer with --reward-retry-seconds"
            ) from error
        self._say_back()
        return answer

    def _once(self, method: str, path: str, body: str | None) -> Any:
        try:
            response = self._http.request(
                method, path, content=body, headers={"Content-Type": "application/json"} if body else None
            )
        except httpx.TransportError as error:
            raise _Transient(f"{type(error).__name__}: {error}") from error
        if response.status_code == 429 or response.status_code >= 500:
            raise _Transient(f"{response.status_code}: {_problem(response)}", _retry_after(response))
        if response.status_code == 404 and path.startswith((v1.REWARDS_PATH, v1.SUITES_PATH, v1.ALIASES_PATH)):
            raise ConfigError(f"{path.rpartition('/')[2]}: {_problem(response)}")
        if response.status_code >= 300:
            hint = _CHANGED if response.status_code == 409 else ""
            raise RewardServiceError(f"{self.url}{path} refused ({response.status_code}): {_problem(response)}{hint}")
        try:
            return response.json()
        except ValueError as error:
            raise RewardServiceError(
                f"{self.url}{path} answered something that is not JSON; is it a reward service?"
            ) from error

    def _say(self, state: RetryCallState) -> None:
        """Once for all threads: that the run waits."""
        error = state.outcome.exception() if state.outcome else None
        with self._lock:
            first, self._away_since = self._away_since is None, self._away_since or time.monotonic()
        if first:
            self._on_retry(
                f"reward service at {self.url}: {error}; the run waits and tries again, for {self._retry_seconds:.0f} s"
            )

    def _say_back(self) -> None:
        with self._lock:
            since, self._away_since = self._away_since, None
        if since is not None:
            self._on_retry(f"reward service at {self.url} answers again after {time.monotonic() - since:.0f} s")


def _check(answer: v1.ScoreResponse, manifest: Manifest, groups: Sequence[v1.Group]) -> None:
    """Raise ValueError when an answer does not fit its question."""
    served = [(reward.name, reward.id) for reward in answer.rewards]
    asked = [(spec.name or spec.id, spec.id) for spec in manifest.rewards]
    if served != asked:
        raise ValueError(f"asked for {asked}, scored with {served}")
    if [group.id for group in answer.groups] != [group.id for group in groups]:
        raise ValueError("the groups that came back are not those that were sent")
    for sent, got in zip(groups, answer.groups, strict=True):
        size = len(sent.completions)
        lists: list[Sequence[Any]] = [got.totals]
        for name in manifest.names:
            if name not in got.scores or name not in got.statuses:
                raise ValueError(f"group {sent.id} has no scores of {name}")
            lists += [got.scores[name], got.statuses[name]]
        if any(len(one) != size for one in lists):
            raise ValueError(f"group {sent.id} has {size} completions and {[len(one) for one in lists]} results")
        if any(
            value is not None and not math.isfinite(value)
            for one in (got.totals, *got.scores.values())
            for value in one
        ):
            raise ValueError(f"group {sent.id} has a score that is not finite")
        _check_totals(got, manifest)


def _check_totals(group: v1.GroupScores, manifest: Manifest) -> None:
    """Raise ValueError for a total that is not its weights times scores, or a number where one of these is null."""
    counted = [
        (spec.weight, group.scores[name])
        for spec, name in zip(manifest.rewards, manifest.names, strict=True)
        if spec.weight
    ]
    for place, total in enumerate(group.totals):
        terms = [(weight, scores[place]) for weight, scores in counted]
        summed = sum(weight * score for weight, score in terms if score is not None)
        unscored = any(score is None for _, score in terms) or not math.isfinite(summed)
        if unscored != (total is None) or (total is not None and not math.isclose(total, summed, abs_tol=1e-9)):
            raise ValueError(
                f"group {group.id}, completion {place + 1}: the total is {total}, and weights times scores add up to "
                f"{None if unscored else summed}"
            )


_backoff = wait_exponential_jitter(
    multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS, jitter=_FIRST_PAUSE_SECONDS
)


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, _Transient) else None
    return max(asked or 0.0, _backoff(state))


def _retry_after(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return min(float(text), 60.0) if text.isdecimal() else None


def _problem(response: httpx.Response) -> str:
    """The detail of a problem document, with its faults and nearest ids; else the start of whatever came."""
    try:
        problem = v1.Problem.model_validate_json(response.content)
    except ValidationError:
        return response.text[:200]
    faults = "; ".join(f"{one.get('path')}: {one.get('message')}" for one in problem.errors or [])
    nearest = f" (nearest: {', '.join(problem.nearest)})" if problem.nearest else ""
    return problem.detail + (f" [{faults}]" if faults else "") + nearest
