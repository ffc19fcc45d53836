"""What the serving process, a fork server and its workers say to each other: each shape and constant, once.

Everything travels as JSON (`frames`), so a tuple arrives as a list. Standard library only: the interpreter of a lock
has little else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

# ---- fork server -------------------------------------------------------------------------------------------

FORK = "fork"
"""`[FORK, worker_id]`, with two descriptors: the worker's connection and its progress (`PLACE`)."""

KILL = "kill"
"""`[KILL, worker_id]`"""

HELLO = "hello"
"""`[HELLO, Hello]`: the rewards are imported and warm."""

FORKED = "forked"
"""`[FORKED, worker_id, pid]`"""

ENDED = "ended"
"""`[ENDED, worker_id, exit_code]`"""


class Description(TypedDict):
    """A reward as data. `broken_lock`: where the installed packages are not those that it promises its numbers on."""

    id: str
    doc: str
    source: str
    params: Mapping[str, Any]
    range: Sequence[float | None]
    needs: Sequence[str]
    uses: Sequence[str]
    digest: str
    lock: Mapping[str, str]
    broken_lock: Sequence[str]
    deprecated: bool
    released: Mapping[str, Any] | None


class Hello(TypedDict):
    """What a fork server serves. `failed`: plugin module → what its import raised."""

    python: str
    rewards: Sequence[Description]
    failed: Mapping[str, str]


# ---- work --------------------------------------------------------------------------------------------------

PLACE = struct.Struct("<q")
"""The place of the unit at hand, in memory that the worker and the serving process share."""

NO_PLACE = -1
"""No unit of the chunk has been begun."""

STOP = "stop"
"""To a worker: end the chunk after the unit at hand."""

DONE = "done"
"""From a worker, after the last result of a chunk."""

WHOLE_GROUP = -1
"""A unit's completion where the reward is called once with the whole group."""

GROUP = "group"
"""The status in a unit's result that holds one result a completion."""

Unit = tuple[int, int, int]
"""Its place in the job's results, its completion's place in the portion, its reward's place in the portion."""

Result = tuple[float | None, str, Mapping[str, Any] | None]
"""Value, status, detail. A worker sends `[place, value, status, detail]`."""

UnitResult = Result | tuple[list[Result], str, None]
"""Of one completion; or, of a group reward, `([Result, …], GROUP, None)`."""


class Completion(NamedTuple):
    """A completion as a worker is told of it; token ids only where a reward needs them."""

    text: str
    token_count: int | None = None
    token_ids: Sequence[int] | None = None
    finish_reason: str | None = None


class PortionContent(TypedDict):
    """(Part of) a group, as much as its rewards need. `used`: of what group rewards use, value and status."""

    rewards: Sequence[tuple[str, Mapping[str, Any]]]  # id and parameters
    golds: Sequence[str] | None
    prompt: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any]
    completions: Sequence[Completion]
    used: NotRequired[Mapping[str, Sequence[tuple[float | None, str]]]]


class PortionMessage(PortionContent):
    """A portion, and the units to do on it, in order."""

    units: Sequence[Unit]


class ChunkMessage(TypedDict):
    """What a worker is given at once."""

    portions: Sequence[PortionMessage]
