"""From groups and rewards to units of work and back: deduplicate, cut into chunks, run, put in order.

A unit is one reward on one distinct completion of a group; of a group reward, one on the whole group, which is called
after the rewards that it uses. All of it is pure but `_run`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from reward_proto import v1

from reward_service.errors import ProblemError
from reward_service.pool.jobs import Chunk, Job, Portion
from reward_service.pool.pool import Pool
from reward_service.resolving import Resolved
from reward_service.worker.messages import GROUP, WHOLE_GROUP, Completion, PortionContent, Result, UnitResult

MAX_PORTION_COMPLETIONS = 16
MAX_PORTION_CHARS = 1_000_000
MAX_CHUNK_UNITS = 64
_EXPIRED: Result = (None, "expired", None)
_TOO_LARGE: Result = (None, "too_large", None)

Column = list[list[Result]]
"""One reward's results: a list a group, of one result a completion."""


@dataclass(frozen=True)
class Caller:
    """How long the answer is waited for. `gone()` ends when nobody waits any longer."""

    deadline: float  # time.monotonic()
    gone: Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Plan:
    """The chunks of a request. `rows[g][c]`: the row of completion c of group g; a row has a unit for each reward."""

    chunks: list[Chunk]
    rows: list[list[int]]
    unit_count: int
    too_large: list[int]  # units that are over the text limit


async def score_groups(
    groups: Sequence[v1.Group], rewards: Sequence[Resolved], pool: Pool, caller: Caller, *, max_text_chars: int
) -> tuple[list[Column], v1.Timings]:
    """Each reward's column, in the order of the rewards, which must hold what group rewards use.

    Raises ProblemError 503 when the deadline passed before anything was begun.
    """
    per_item = [reward for reward in rewards if not reward.whole_group]
    work = plan(groups, per_item, max_text_chars=max_text_chars, workers=pool.workers)
    results, timings = await _run(work.chunks, work.unit_count, work.too_large, pool, caller)
    item_results = cast(list[Result], results)
    columns = {
        reward.name: [[item_results[row * len(per_item) + r] for row in rows] for rows in work.rows]
        for r, reward in enumerate(per_item)
    }
    whole = [reward for reward in rewards if reward.whole_group]
    if whole:
        used = {reward.info.id: columns[reward.name] for reward in per_item if not reward.params}
        chunks, too_large = plan_whole_groups(groups, whole, used, max_text_chars=max_text_chars)
        results, more = await _run(chunks, len(groups) * len(whole), too_large, pool, caller)
        for r, reward in enumerate(whole):
            columns[reward.name] = [
                _spread(results[g * len(whole) + r], len(group.completions)) for g, group in enumerate(groups)
            ]
        timings = v1.Timings(queue_ms=timings.queue_ms + more.queue_ms, score_ms=timings.score_ms + more.score_ms)
    return [columns[reward.name] for reward in rewards], timings


def _spread(result: UnitResult, size: int) -> list[Result]:
    """A group's results; a null of the whole group is one of each completion."""
    if result[1] == GROUP:
        return [(value, status, detail) for value, status, detail in cast(list[Result], result[0])]
    return [cast(Result, result)] * size


# ---- plan --------------------------------------------------------------------------------------------------


def plan(groups: Sequence[v1.Group], rewards: Sequence[Resolved], *, max_text_chars: int, workers: int) -> Plan:
    """Cut a request into chunks, a few for each worker. Equal completions of a group are scored once."""
    portions: list[tuple[str, Portion]] = []
    rows: list[list[int]] = []
    too_large: list[int] = []
    row_count = 0
    fleets = _by_fleet(rewards)
    for group in groups:
        distinct: dict[Any, int] = {}
        fresh: list[tuple[int, v1.Completion]] = []
        rows.append([])
        for completion in group.completions:
            row = distinct.setdefault(_identity(completion), row_count)
            if row == row_count:
                row_count += 1
                if len(completion.text) > max_text_chars:
                    too_large += range(row * len(rewards), (row + 1) * len(rewards))
                else:
                    fresh.append((row, completion))
            rows[-1].append(row)
        for part in _parts(fresh):
            for fleet, members in fleets:
                content = _content(group, [one for _, one in part], [reward for _, reward in members])
                units = [
                    (row * len(rewards) + r, c, own)
                    for c, (row, _) in enumerate(part)
                    for own, (r, _) in enumerate(members)
                ]
                portions.append((fleet, Portion(content, units)))
    return Plan(_packed(portions, workers), rows, row_count * len(rewards), too_large)


def _packed(portions: Sequence[tuple[str, Portion]], workers: int) -> list[Chunk]:
    """Portions as chunks: large, so that a worker seldom waits for the next one; small, so that all have work."""
    total = sum(len(portion.units) for _, portion in portions)
    size = min(MAX_CHUNK_UNITS, total // (4 * workers))
    chunks: list[Chunk] = []
    for fleet in dict.fromkeys(fleet for fleet, _ in portions):
        pack: list[Portion] = []
        for portion in (one for name, one in portions if name == fleet):
            if pack and sum(len(one.units) for one in pack) + len(portion.units) > size:
                chunks.append(Chunk(fleet, pack))
                pack = []
            pack.append(portion)
        chunks.append(Chunk(fleet, pack))
    return chunks


def plan_whole_groups(
    groups: Sequence[v1.Group], rewards: Sequence[Resolved], used: Mapping[str, Column], *, max_text_chars: int
) -> tuple[list[Chunk], list[int]]:
    """A chunk for each group, whole and not deduplicated: its units are `group × rewards + reward`.

    Also the units of groups that hold a text over the limit.
    """
    chunks: list[Chunk] = []
    too_large: list[int] = []
    for g, group in enumerate(groups):
        places = range(g * len(rewards), (g + 1) * len(rewards))
        if any(len(one.text) > max_text_chars for one in group.completions):
            too_large += places
        elif places:
            outcomes = {id: [(value, status) for value, status, _ in column[g]] for id, column in used.items()}
            for fleet, members in _by_fleet(rewards):
                content = _content(group, group.completions, [reward for _, reward in members])
                content["used"] = outcomes
                units = [(places[r], WHOLE_GROUP, own) for own, (r, _) in enumerate(members)]
                chunks.append(Chunk(fleet, [Portion(content, units)]))
    return chunks, too_large


def _by_fleet(rewards: Sequence[Resolved]) -> list[tuple[str, list[tuple[int, Resolved]]]]:
    """The rewards of each fleet, each with its place in the request: a request may mix locks."""
    fleets: dict[str, list[tuple[int, Resolved]]] = {}
    for r, reward in enumerate(rewards):
        fleets.setdefault(reward.fleet, []).append((r, reward))
    return list(fleets.items())


def _content(group: v1.Group, completions: Sequence[v1.Completion], rewards: Sequence[Resolved]) -> PortionContent:
    """What a worker is told of (part of) a group: only as much as its rewards need."""
    needs = {need for reward in rewards for need in reward.info.needs}
    return {
        "rewards": [(reward.info.id, reward.params) for reward in rewards],
        "golds": group.gold,
        "prompt": [one.model_dump(exclude_none=True) for one in group.prompt or []] if "prompt" in needs else [],
        "metadata": (group.metadata or {}) if "metadata" in needs else {},
        "completions": [
            Completion(one.text, one.token_count, one.token_ids if "token_ids" in needs else None, one.finish_reason)
            for one in completions
        ],
    }


def _identity(completion: v1.Completion) -> object:
    ids = None if completion.token_ids is None else tuple(completion.token_ids)
    return completion.text, completion.token_count, ids, completion.finish_reason


def _parts(rows: Sequence[tuple[int, v1.Completion]]) -> Iterator[list[tuple[int, v1.Completion]]]:
    part: list[tuple[int, v1.Completion]] = []
    chars = 0
    for row in rows:
        size = len(row[1].text)
        if part and (len(part) == MAX_PORTION_COMPLETIONS or chars + size > MAX_PORTION_CHARS):
            yield part
            part, chars = [], 0
        part.append(row)
        chars += size
    if part:
        yield part


# ---- run ---------------------------------------------------------------------------------------------------


async def _run(
    chunks: Sequence[Chunk], unit_count: int, too_large: Sequence[int], pool: Pool, caller: Caller
) -> tuple[list[UnitResult], v1.Timings]:
    """Have chunks done; what the deadline or the caller's leaving cuts short is `expired`."""
    job = Job(chunks, unit_count)
    for unit in too_large:
        job.accept(unit, _TOO_LARGE)
    submitted = time.monotonic()
    if job.waiting:
        pool.submit(job)
        await _first(job.ended.wait(), caller.gone(), timeout=caller.deadline - submitted)
        pool.cancel(job)
        if job.started_at is None:
            raise ProblemError(503, "the deadline passed in the queue; send less, or wait longer", retry_after=1)
    ended = time.monotonic()
    started = job.started_at or submitted
    timings = v1.Timings(queue_ms=round((started - submitted) * 1000, 3), score_ms=round((ended - started) * 1000, 3))
    return [_EXPIRED if result is None else result for result in job.results], timings


async def _first(*waits: Awaitable[Any], timeout: float) -> None:
    """Wait until one of them has ended, or for so many seconds."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=max(0.0, timeout), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


# ---- assemble ----------------------------------------------------------------------------------------------


def assemble(
    groups: Sequence[v1.Group], rewards: Sequence[Resolved], columns: Sequence[Column]
) -> list[v1.GroupScores]:
    """The answer's groups, in the order of the request."""
    answers = []
    for g, group in enumerate(groups):
        by_reward = {reward.name: column[g] for reward, column in zip(rewards, columns, strict=False)}
        answers.append(
            v1.GroupScores.model_construct(
                id=group.id,
                totals=totals([[value for value, _, _ in results] for results in by_reward.values()], rewards),
                scores={name: [value for value, _, _ in results] for name, results in by_reward.items()},
                statuses={name: [status for _, status, _ in results] for name, results in by_reward.items()},
                details={name: [_detail(result) for result in results] for name, results in by_reward.items()},
            )
        )
    return answers


def _detail(result: Result) -> v1.Detail | None:
    return cast("v1.Detail | None", result[2])  # as the worker sent it: a model of it would cost more than its score


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
    return total if math.isfinite(total) else None
