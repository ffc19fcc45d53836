"""All workers of all fleets, seen from the serving process: chunks out, results back, a clock on every unit of work.

The clock counts the worker's CPU time from outside, so a machine that pauses turns nothing into a timeout; it starts
when a unit starts, so queueing is never counted. What is over its clock or memory is killed; the unit that it was on is
judged, and the others of its chunk go to another worker. Jobs take turns, and no more workers work at a time than there
are cores, over all fleets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection

import psutil

from reward_service.metrics import Metrics
from reward_service.pool.fleet import Fatal, Fleet, Mark, Worker, WorkerSpec
from reward_service.pool.jobs import Chunk, Job
from reward_service.settings import Settings
from reward_service.worker.messages import STOP, Hello

log = logging.getLogger("reward_service.pool")

TICK_SECONDS = 0.02
DAWDLING_TICKS = 2  # on one unit, before its chunk-mates move to another worker


class Pool:
    """Feeds the workers of its fleets. All methods run on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._fleets: dict[str, Fleet] = {}
        self._jobs: deque[Job] = deque()  # those with waiting chunks, the next one first
        self._stopping = False
        self._clock: asyncio.Task[None] | None = None
        self.last_alive = time.monotonic()

    @property
    def workers(self) -> int:
        """How many work at a time."""
        return self._settings.workers

    # ---- fleets --------------------------------------------------------------------------------------------

    def open(self, name: str, spec: WorkerSpec, on_hello: Callable[[str, Hello], None]) -> None:
        """Start a fleet; chunks that name it run on its workers."""
        if self._clock is None:
            self._clock = asyncio.get_running_loop().create_task(self._watch())
        self._fleets[name] = Fleet(name, spec, size=self._settings.workers, scheduler=self, on_hello=on_hello)

    def is_open(self, name: str) -> bool:
        """Whether a fleet has been started and not closed."""
        return name in self._fleets

    async def drain(self, name: str) -> None:
        """Close a fleet when its last chunk has ended. No new job may name it."""
        fleet = self._fleets[name]
        while fleet.busy or any(job.waiting.get(name) for job in self._jobs):
            await asyncio.sleep(TICK_SECONDS)
        await self._close(fleet)

    async def stop(self) -> None:
        """End every process. Work in flight is lost: drain first."""
        self._stopping = True
        if self._clock is not None:
            self._clock.cancel()
        await asyncio.gather(*(self._close(fleet) for fleet in list(self._fleets.values())))

    async def _close(self, fleet: Fleet) -> None:
        self._fleets.pop(fleet.name, None)
        server = fleet.close()
        if server is not None:
            await asyncio.to_thread(server.wait)

    # ---- what fleets say -----------------------------------------------------------------------------------

    def worker_is_free(self) -> None:
        """A worker can take a chunk."""
        self._dispatch()

    def workers_changed(self) -> None:
        """The number of live workers is another one."""
        live = sum(fleet.live_workers for fleet in self._fleets.values())
        self._metrics.workers.set(live)
        if live:
            self.last_alive = time.monotonic()

    def worker_died(self, worker: Worker) -> None:
        """A worker is gone: its unit is judged, its other units go to another worker."""
        if self._stopping:
            return
        if worker.places and worker.job is not None and worker.chunk is not None:
            self._settle(worker, worker.job, worker.chunk)
        self._metrics.respawns.inc()
        self._dispatch()

    def kill(self, worker: Worker, verdict: Fatal | None) -> None:
        """SIGKILL a worker. With a verdict, the unit that it is on gets it; its other units are done elsewhere."""
        worker.verdict = (worker.place, verdict)
        self._metrics.kills.labels(reason=verdict or "protocol").inc()
        worker.fleet.kill(worker)

    def _settle(self, worker: Worker, job: Job, chunk: Chunk) -> None:
        place = worker.place
        assert place is not None
        self._give_back(job, chunk, [one for one in worker.places if one != place])
        match worker.verdict:
            case (int(judged), str(status)) if judged == place:
                job.accept(place, (None, status, None))
            case (_, str()):  # the guilty one ended just before the kill came; this one is innocent
                self._give_back(job, chunk, [place])
            case _ if job.count_death(place) >= 2:
                job.accept(place, (None, "crashed", None))
            case _:  # the first death is nobody's proven fault: once more, alone
                self._give_back(job, chunk, [place])

    # ---- work ----------------------------------------------------------------------------------------------

    def waiting_units(self) -> int:
        """Units that no worker has been given yet."""
        return sum(job.waiting_units() for job in self._jobs)

    def submit(self, job: Job) -> None:
        """Queue a job. Await `job.ended`; `cancel` it when nobody waits any longer."""
        self._jobs.append(job)
        self._dispatch()

    def cancel(self, job: Job) -> None:
        """Free a job's queued units. The unit that a worker is on runs out on its own clock, its result unheard."""
        job.cancel()
        if job in self._jobs:
            self._jobs.remove(job)

    def _give_back(self, job: Job, chunk: Chunk, places: Collection[int]) -> None:
        """Put units of a chunk before all others, as a chunk of their own: they have waited once already."""
        if places and not job.ended.is_set():
            job.waiting[chunk.fleet].appendleft(chunk.having(set(places)))
            if job not in self._jobs:
                self._jobs.appendleft(job)

    def _dispatch(self) -> None:
        """Deal chunks to free workers, a chunk a job in turn: a large request does not starve a small one."""
        idle = self._settings.workers - self._busy_workers()
        passed_over = 0
        while idle > 0 and passed_over < len(self._jobs):
            job = self._jobs.popleft()
            fleet = next((one for name, one in self._fleets.items() if one.free and job.waiting.get(name)), None)
            if fleet is None:
                passed_over += 1
            else:
                fleet.free.pop().start(job, job.take_chunk(fleet.name))
                idle, passed_over = idle - 1, 0
            if job.is_waiting():
                self._jobs.append(job)

    def _busy_workers(self) -> int:
        return sum(one.job is not None for fleet in self._fleets.values() for one in fleet.workers.values())

    # ---- the clock -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.workers_changed()
            for fleet in list(self._fleets.values()):
                for worker in list(fleet.workers.values()):
                    if worker.job is not None and worker.process is not None and worker.verdict is None:
                        try:
                            self._judge(worker, worker.process)
                        except psutil.Error:
                            pass  # it has just ended; its connection says so in a moment
                        except Exception:  # a clock that stops lets one hostile completion hang the service
                            log.exception("the clock stumbled over worker %d", worker.id)

    def _judge(self, worker: Worker, process: psutil.Process) -> None:
        """Kill what is over its clock or memory; let another worker do what waits behind a unit that dawdles."""
        mark = worker.mark
        with process.oneshot():
            times = process.cpu_times()
            memory_mb = process.memory_info().rss / 2**20
        cpu, wall = times.user + times.system, time.monotonic()
        if mark is None or mark.place != worker.place:
            worker.mark = mark = Mark(worker.place, cpu, wall)
        mark.ticks += 1
        over = self._over_limit(cpu - mark.cpu, wall - mark.wall, memory_mb)
        # Twice in a row: after a pause of this process the first look may be at a unit whose result waits unread.
        if over is not None and mark.over is not None:
            self.kill(worker, over)
        mark.over = over
        if mark.ticks == DAWDLING_TICKS and len(worker.places) > 1:
            self._relieve(worker)

    def _relieve(self, worker: Worker) -> None:
        assert worker.job is not None
        assert worker.chunk is not None
        place = worker.place
        others = [one for one in worker.places if one != place]
        worker.places = {one: None for one in worker.places if one == place}
        worker.send(STOP)
        self._give_back(worker.job, worker.chunk, others)
        self._dispatch()

    def _over_limit(self, cpu_seconds: float, wall_seconds: float, memory_mb: float) -> Fatal | None:
        if memory_mb > self._settings.worker_memory_mb:
            return "too_large"
        if cpu_seconds > self._settings.unit_cpu_seconds or wall_seconds > self._settings.unit_wall_seconds:
            return "timeout"
        return None
