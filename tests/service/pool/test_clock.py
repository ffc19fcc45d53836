"""The clock on every unit, with a process whose CPU time is set by hand: who is judged, and from when."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from reward_service.metrics import Metrics
from reward_service.pool.fleet import Fleet, Worker
from reward_service.pool.jobs import Chunk, Job, Portion
from reward_service.pool.pool import Pool
from reward_service.settings import Settings
from reward_service.worker.messages import PLACE

LIMIT = 2.0
FLEET = "default#1"


class Process:
    """What the clock looks at."""

    cpu = 0.0
    memory_mb = 100.0

    @contextlib.contextmanager
    def oneshot(self) -> Iterator[None]:
        yield

    def cpu_times(self) -> Any:
        return SimpleNamespace(user=self.cpu, system=0.0)

    def memory_info(self) -> Any:
        return SimpleNamespace(rss=self.memory_mb * 2**20)


class Machine:
    """A pool, and a worker that is told by hand which unit it is on and how much CPU time it has used."""

    def __init__(self, units: int) -> None:
        self.pool = Pool(Settings(workers=1, unit_cpu_seconds=LIMIT), Metrics())
        self.killed: list[Worker] = []
        content: Any = {"rewards": [("r1.int@1", {})], "golds": None, "prompt": [], "metadata": {}, "completions": []}
        self.chunk = Chunk(FLEET, [Portion(content, [(place, place, 0) for place in range(units)])])
        self.job = Job([self.chunk], units)
        self.job.take_chunk(FLEET)
        fleet = SimpleNamespace(kill=self.killed.append, name=FLEET)
        self.worker = Worker(7, cast("Fleet", fleet), mmap.mmap(-1, PLACE.size))
        self.worker.job, self.worker.chunk = self.job, self.chunk
        self.worker.places = dict.fromkeys(range(units))
        self.worker.send = lambda message: None  # type: ignore[method-assign]  # the process is not there
        self.process = Process()

    def look(self, *, place: int, cpu: float, times: int = 2) -> None:
        """The clock looks, so many times, at the worker on a unit."""
        PLACE.pack_into(self.worker.progress, 0, place)
        self.process.cpu = cpu
        for _ in range(times):
            self.pool._judge(self.worker, cast("psutil.Process", self.process))


def test_each_unit_has_the_whole_clock_from_when_it_was_begun() -> None:
    machine = Machine(3)
    machine.look(place=0, cpu=0.0, times=1)
    machine.look(place=1, cpu=0.95 * LIMIT, times=1)
    machine.look(place=1, cpu=1.9 * LIMIT)
    assert machine.killed == []
    machine.look(place=1, cpu=2.0 * LIMIT)
    assert machine.killed == [machine.worker]
    assert machine.worker.verdict == (1, "timeout")


def test_over_memory_is_another_verdict() -> None:
    machine = Machine(1)
    machine.process.memory_mb = 10_000.0
    machine.look(place=0, cpu=0.0)
    assert machine.worker.verdict == (0, "too_large")


def test_one_look_over_the_limit_kills_nobody() -> None:
    """After a pause of the serving process, the first look may be at a unit whose result waits unread."""
    machine = Machine(1)
    machine.look(place=0, cpu=0.0, times=1)
    machine.look(place=0, cpu=5 * LIMIT, times=1)
    assert machine.killed == []
    machine.look(place=0, cpu=5 * LIMIT, times=1)
    assert machine.killed == [machine.worker]


@pytest.mark.parametrize(
    ("verdict", "results", "again"),
    [
        ((1, "timeout"), [None, (None, "timeout", None), None], [0, 2]),
        ((0, "timeout"), [None, None, None], [1, 0, 2]),  # which ended just before the kill came: 1 is innocent
        (None, [None, None, None], [1, 0, 2]),  # a first death is nobody's proven fault
    ],
)
def test_the_unit_that_was_judged_gets_the_verdict_and_no_other(
    verdict: tuple[int, Any] | None, results: list[Any], again: list[int]
) -> None:
    machine = Machine(3)
    PLACE.pack_into(machine.worker.progress, 0, 1)
    machine.worker.verdict = verdict
    machine.pool.worker_died(machine.worker)
    assert machine.job.results == results
    assert [place for chunk in machine.job.waiting[FLEET] for place in chunk.places()] == again


def test_a_second_death_on_a_unit_is_its_own() -> None:
    machine = Machine(1)
    PLACE.pack_into(machine.worker.progress, 0, 0)
    for expected in (None, (None, "crashed", None)):
        machine.worker.places = {0: None}
        machine.pool.worker_died(machine.worker)
        assert machine.job.results == [expected]


def test_others_of_the_chunk_move_on_when_a_unit_dawdles() -> None:
    machine = Machine(3)
    machine.look(place=1, cpu=0.1, times=1)
    assert machine.job.waiting_units() == 0
    machine.look(place=1, cpu=0.2, times=1)
    assert [place for chunk in machine.job.waiting[FLEET] for place in chunk.places()] == [0, 2]
    assert list(machine.worker.places) == [1]
