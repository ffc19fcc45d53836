"""From a request to units of work and back: resolve, deduplicate, cut into chunks, run, assemble in order.

All of it is pure but `run`. A unit is one reward on one distinct completion of one group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jsonschema import Draft202012Validator
from reward_proto import v1

from reward_service.errors import ProblemError, fault, unknown
from reward_service.jobs import Chunk, Job, Result
from reward_service.pool import Pool

MAX_CHUNK_COMPLETIONS = 16
MAX_CHUNK_CHARS = 1_000_000
_EXPIRED: Result = (None, "expired", None)
_TOO_LARGE: Result = (None, "too_large", None)


class RewardLookup(Protocol):
    """The served rewards, and why one that is known cannot be served."""

    rewards: Mapping[str, v1.RewardInfo]
    unavailable: Mapping[str, str]


@dataclass(frozen=True)
class Resolved:
    """A reward of a request, found."""

    info: v1.RewardInfo
    name: str
    weight: float
    params: dict[str, Any]

    def served(self) -> v1.ServedReward:
        return v1.ServedReward(
            name=self.name,
            id=self.info.id,
            weight=self.weight,
            params=self.params,
            digest=self.info.digest,
            draft=self.info.status == "draft",
        )


@dataclass(frozen=True)
class Plan:
    """The chunks of a request. `rows[g][c]`: the row of completion c of group g; a row has a unit for each reward."""

    chunks: list[Chunk]
    rows: list[list[int]]
    unit_count: int
    too_large: list[int]  # units that are over the text limit


# ---- resolve -----------------------------------------------------------------------------------------------


def resolve(spec: v1.RewardSpec | v1.SuiteReward, lookup: RewardLookup, *, path: Sequence[str | int]) -> Resolved:
    """Find a reward and check what was asked of it.

    Raises ProblemError: 404 unknown, 409 another digest, 422 parameters, 503 known but not to be had.
    """
    if spec.id in lookup.unavailable:
        raise ProblemError(503, lookup.unavailable[spec.id], retry_after=60)
    info = lookup.rewards.get(spec.id)
    if info is None:
        raise unknown("reward", spec.id, lookup.rewards)
    wanted = getattr(spec, "digest", None)
    if wanted is not None and wanted != info.digest:
        raise ProblemError(409, f"{info.id} is served with digest {info.digest}, which is not the one asked for")
    for error in Draft202012Validator(info.params).iter_errors(spec.params):
        known = ", ".join(info.params["properties"]) or "none"
        where = str(error.absolute_path[0]) if error.absolute_path else ""
        what = f"{where} must be {error.validator_value}" if where in info.params["properties"] else "unknown parameter"
        raise fault([*path, "params"], f"{what}; parameters of {info.id}: {known}")
    return Resolved(info, spec.name or spec.id, spec.weight, dict(spec.params))


def check_needs(groups: Sequence[v1.Group], rewards: Sequence[Resolved]) -> None:
    """Raise 422 naming reward and field when a reward needs what the request lacks. (A missing gold is a status.)"""
    for reward in rewards:
        for need in reward.info.needs:
            for path, value in _needed(need, groups):
                if value is None:
                    raise fault(path, f"{reward.info.id} needs `{need}`")


def _needed(need: str, groups: Sequence[v1.Group]) -> Iterator[tuple[list[str | int], object]]:
    for g, group in enumerate(groups):
        match need:
            case "prompt" | "metadata":
                yield ["groups", g, need], getattr(group, need)
            case "token_count" | "token_ids":
                for c, completion in enumerate(group.completions):
                    yield ["groups", g, "completions", c, need], getattr(completion, need)


# ---- plan --------------------------------------------------------------------------------------------------


def plan(groups: Sequence[v1.Group], rewards: Sequence[Resolved], *, max_text_chars: int) -> Plan:
    """Cut a request into chunks. Equal completions of a group are scored once."""
    specs = [[reward.info.id, reward.params] for reward in rewards]
    needs = {need for reward in rewards for need in reward.info.needs}
    chunks: list[Chunk] = []
    rows: list[list[int]] = []
    too_large: list[int] = []
    row_count = 0
    for group in groups:
        distinct: dict[Any, int] = {}
        fresh: list[tuple[int, v1.Completion]] = []
        rows.append([])
        for completion in group.completions:
            row = distinct.setdefault(_identity(completion), row_count)
            if row == row_count:
                row_count += 1
                if len(completion.text) > max_text_chars:
                    too_large += range(row * len(specs), (row + 1) * len(specs))
                else:
                    fresh.append((row, completion))
            rows[-1].append(row)
        for part in _parts(fresh):
            content = {
                "rewards": specs,
                "golds": group.gold,
                "prompt": [m.model_dump(exclude_none=True) for m in group.prompt or []] if "prompt" in needs else [],
                "metadata": (group.metadata or {}) if "metadata" in needs else {},
                "completions": [[one.text, one.token_count, one.token_ids, one.finish_reason] for _, one in part],
            }
            units = [(row * len(specs) + r, c, r) for c, (row, _) in enumerate(part) for r in range(len(specs))]
            chunks.append(Chunk(content, units))
    return Plan(chunks, rows, row_count * len(specs), too_large)


def _identity(completion: v1.Completion) -> object:
    ids = None if completion.token_ids is None else tuple(completion.token_ids)
    return completion.text, completion.token_count, ids, completion.finish_reason


def _parts(rows: Sequence[tuple[int, v1.Completion]]) -> Iterator[list[tuple[int, v1.Completion]]]:
    part: list[tuple[int, v1.Completion]] = []
    chars = 0
    for row in rows:
        size = len(row[1].text)
        if part and (len(part) == MAX_CHUNK_COMPLETIONS or chars + size > MAX_CHUNK_CHARS):
            yield part
            part, chars = [], 0
        part.append(row)
        chars += size
    if part:
        yield part


# ---- run ---------------------------------------------------------------------------------------------------


async def run(work: Plan, pool: Pool, *, deadline_ms: int, gone: Awaitable[None]) -> tuple[list[Result], v1.Timings]:
    """Have a plan done; what the deadline or the caller's leaving (`gone`) cuts short is `expired`.

    Raises ProblemError 503 when the deadline passed before any of it was begun.
    """
    job = Job(work.chunks, work.unit_count)
    for unit in work.too_large:
        job.accept(unit, _TOO_LARGE)
    submitted = time.monotonic()
    if job.waiting:
        pool.submit(job)
        waiters = [asyncio.ensure_future(job.ended.wait()), asyncio.ensure_future(gone)]
        try:
            await asyncio.wait(waiters, timeout=deadline_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pool.cancel(job)
            for waiter in waiters:
                waiter.cancel()
        if job.started_at is None:
            raise ProblemError(
                503, "the deadline passed in the queue; send fewer at a time, or wait longer", retry_after=1
            )
    else:
        asyncio.ensure_future(gone).cancel()
    ended = time.monotonic()
    started = job.started_at or submitted
    timings = v1.Timings(queue_ms=round((started - submitted) * 1000, 3), score_ms=round((ended - started) * 1000, 3))
    return [_EXPIRED if result is None else result for result in job.results], timings


# ---- assemble ----------------------------------------------------------------------------------------------


def assemble(
    groups: Sequence[v1.Group], rewards: Sequence[Resolved], work: Plan, results: Sequence[Result]
) -> list[v1.GroupScores]:
    """The answer's groups, in the order of the request."""
    answers = []
    for group, rows in zip(groups, work.rows, strict=True):
        by_reward = {reward.name: [results[row * len(rewards) + r] for row in rows] for r, reward in enumerate(rewards)}
        answers.append(
            v1.GroupScores.model_construct(
                id=group.id,
                totals=totals([[value for value, _, _ in column] for column in by_reward.values()], rewards),
                scores={name: [value for value, _, _ in column] for name, column in by_reward.items()},
                statuses={name: [status for _, status, _ in column] for name, column in by_reward.items()},
                details={name: [_detail(result) for result in column] for name, column in by_reward.items()},
            )
        )
    return answers


def _detail(result: Result) -> v1.Detail | None:
    _, _, detail = result
    return None if detail is None else v1.Detail.model_construct(None, **detail)


def totals(columns: Sequence[Sequence[float | None]], rewards: Sequence[Resolved]) -> list[float | None]:
    """Per completion, weight × score added up in the order of the rewards; null when one of non-zero weight is null."""
    counted = [(reward.weight, column) for reward, column in zip(rewards, columns, strict=True) if reward.weight != 0]
    if not counted:
        return [0.0] * len(columns[0])
    return [_total([(weight, column[c]) for weight, column in counted]) for c in range(len(columns[0]))]


def _total(terms: Sequence[tuple[float, float | None]]) -> float | None:
    total = 0.0
    for weight, value in terms:
        if value is None:
            return None
        total += weight * value
    return total
