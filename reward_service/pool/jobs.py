"""Work as the pool sees it: units in chunks in jobs.

A *unit* is one reward on one completion. A *portion* is (part of) a group and the units to do on it. A *chunk* is what
a worker gets at once: portions enough to keep it busy for a while. A *job* is all the chunks of one request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from reward_service.worker.messages import ChunkMessage, PortionContent, PortionMessage, Unit, UnitResult


@dataclass(frozen=True, eq=False)
class Portion:
    """(Part of) a group, and the units to do on it, in order."""

    content: PortionContent
    units: Sequence[Unit]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Portions for one worker of a fleet, in order."""

    fleet: str
    portions: Sequence[Portion]

    def places(self) -> list[int]:
        """Its units, by their places."""
        return [unit[0] for portion in self.portions for unit in portion.units]

    def having(self, places: Container[int]) -> Chunk:
        """The same with some of its units only."""
        portions = [Portion(one.content, [unit for unit in one.units if unit[0] in places]) for one in self.portions]
        return Chunk(self.fleet, [one for one in portions if one.units])

    def message(self) -> ChunkMessage:
        """As it is sent to a worker."""
        return {"portions": [PortionMessage(**one.content, units=one.units) for one in self.portions]}


class Job:
    """The work of one request: what waits, what is done. `results[place]` is None until its unit has ended."""

    def __init__(
        self, chunks: Iterable[Chunk], unit_count: int, on_end: Callable[[Job], None] = lambda job: None
    ) -> None:
        self.waiting: dict[str, deque[Chunk]] = {}
        for chunk in chunks:
            self.waiting.setdefault(chunk.fleet, deque()).append(chunk)
        self.results: list[UnitResult | None] = [None] * unit_count
        self.started_at: float | None = None
        self.ended = asyncio.Event()
        self._unfinished = unit_count
        self._on_end = on_end
        self._deaths: dict[int, int] = {}
        if unit_count == 0:
            self.ended.set()

    def is_waiting(self) -> bool:
        """Whether any of its chunks has not been given to a worker yet."""
        return any(self.waiting.values())

    def waiting_units(self) -> int:
        """Units that no worker has been given yet."""
        return sum(len(chunk.places()) for chunks in self.waiting.values() for chunk in chunks)

    def take_chunk(self, fleet: str) -> Chunk:
        """The next chunk for a fleet, which is being worked on from now."""
        self.started_at = self.started_at or time.monotonic()
        return self.waiting[fleet].popleft()

    def accept(self, place: int, result: UnitResult) -> None:
        """Take a unit's result; the first one counts (a unit moved to another worker may be answered twice)."""
        if self.results[place] is None and not self.ended.is_set():
            self.results[place] = result
            self._unfinished -= 1
            if self._unfinished == 0:
                self.ended.set()
                self._on_end(self)

    def count_death(self, place: int) -> int:
        """How many workers have died on a unit, this one included."""
        self._deaths[place] = self._deaths.get(place, 0) + 1
        return self._deaths[place]

    def cancel(self) -> None:
        """Nobody waits for it any longer."""
        for chunks in self.waiting.values():
            chunks.clear()
        self.ended.set()
