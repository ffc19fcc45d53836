"""Worker processes, seen from the serving process: chunks out, results back, and a clock on every unit of work.

The clock counts the worker's CPU time from outside, so a machine that pauses turns nothing into a timeout; it starts
when a unit starts, so queueing is never counted. What is over its clock or memory is killed; the unit that it was on is
judged, and the others of its chunk go to another worker. Jobs take turns.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from reward_service.fork_server import ForkServer, default_python
from reward_service.jobs import Chunk, Job, Unit
from reward_service.metrics import Metrics
from reward_service.settings import Settings
from reward_service.worker.frames import Decoder, FrameTooLarge, encode

log = logging.getLogger("reward_service.pool")

TICK_SECONDS = 0.02
DAWDLING_TICKS = 2  # on one unit, before its chunk-mates move to another worker
RESTART_SECONDS = 1.0
RETIRE_AFTER_UNITS = 50_000  # libraries under the rewards keep caches; a worker's memory is given back now and then

Fatal = Literal["timeout", "too_large"]


@dataclass
class _Mark:
    """When the clock first saw a unit running: the worker's CPU seconds and the wall time then."""

    place: int | None
    cpu: float
    wall: float
    ticks: int = 0
    over: Fatal | None = None


class _Worker(asyncio.Protocol):
    """One worker process and what it is doing."""

    def __init__(self, worker_id: int, pool: Pool) -> None:
        self.id = worker_id
        self.pool = pool
        self.process: psutil.Process | None = None
        self.transport: asyncio.Transport | None = None
        self.decoder = Decoder()
        self.job: Job | None = None
        self.chunk: Chunk | None = None
        self.units: deque[Unit] = deque()  # of the chunk, not answered yet; the first one runs
        self.mark: _Mark | None = None
        self.verdict: tuple[int | None, Fatal | None] | None = None  # why it was killed, and on which unit
        self.units_done = 0

    @property
    def place(self) -> int | None:
        """The unit that it is on."""
        return self.units[0][0] if self.units else None

    def start(self, job: Job, chunk: Chunk) -> None:
        self.job, self.chunk, self.units, self.mark = job, chunk, deque(chunk.units), None
        self.send({**chunk.content, "units": chunk.units})

    def send(self, message: Mapping[str, Any] | str) -> None:
        assert self.transport is not None
        self.transport.write(encode(message))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pool.worker_is_up(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self.decoder.feed(data):
                if message == "done":
                    self.job = self.chunk = None
                    self.units.clear()
                    self.pool.worker_is_free(self)
                else:
                    self._accept(*message)
        except (FrameTooLarge, ValueError, TypeError):
            log.error("worker %d broke the protocol; it is killed", self.id)
            self.pool.kill(self, None)

    def _accept(self, place: int, value: Any, status: str, detail: Mapping[str, Any] | None) -> None:
        if self.job is None:
            raise ValueError("a result without a chunk")
        if self.place == place:
            self.units.popleft()
        self.job.accept(place, (value, status, detail))
        self.units_done += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.worker_ended(self)


class Pool:
    """Keeps `settings.workers` workers alive and feeds them. All methods run on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics, on_hello: Callable[[Mapping[str, Any]], None]) -> None:
        self._settings = settings
        self._metrics = metrics
        self._on_hello = on_hello
        self._server: ForkServer | None = None
        self._greeted = False
        self._workers: dict[int, _Worker] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._free: list[_Worker] = []
        self._jobs: deque[Job] = deque()  # those with waiting chunks, the next one first
        self._next_worker_id = 0
        self._stopping = False
        self._clock: asyncio.Task[None] | None = None
        self.last_alive = time.monotonic()

    # ---- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the fork server and the clock; workers follow when it has said hello."""
        self._start_server()
        self._clock = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End every process. Work in flight is lost: drain first."""
        self._stopping = True
        if self._clock is not None:
            self._clock.cancel()
        if self._server is not None:
            self._server.close()
            await asyncio.to_thread(self._server.wait)

    @property
    def live_workers(self) -> int:
        """Workers that are connected and running."""
        return sum(worker.process is not None for worker in self._workers.values())

    def _start_server(self) -> None:
        self._greeted = False
        self._server = ForkServer(default_python(), on_message=self._on_message, on_end=self._on_server_end)

    def _on_message(self, message: Sequence[Any]) -> None:
        match message:
            case ["hello", hello]:
                self._greeted = True
                self._on_hello(hello)
                self._fill()
            case ["forked", worker_id, pid]:
                self._worker_runs(worker_id, pid)
            case ["ended", worker_id, exit_code]:
                log.info("worker %d ended with %d", worker_id, exit_code)

    def _on_server_end(self) -> None:
        ended, self._server = self._server, None
        if ended is not None and not self._stopping:
            log.error("the fork server ended; a new one starts in %.0f s", RESTART_SECONDS)
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._replace_server, ended)

    def _replace_server(self, ended: ForkServer) -> None:
        ended.wait()
        if not self._stopping:
            self._start_server()

    # ---- workers -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Fork until there are as many workers as there should be."""
        while self._server is not None and self._greeted and len(self._workers) < self._settings.workers:
            connection = self._server.fork(self._next_worker_id)
            if connection is None:
                return  # its successor's hello brings us back here
            worker = self._workers[self._next_worker_id] = _Worker(self._next_worker_id, self)
            self._next_worker_id += 1
            task = asyncio.get_running_loop().create_task(_connect(worker, connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _worker_runs(self, worker_id: int, pid: int) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None:
            try:
                worker.process = psutil.Process(pid)
            except psutil.NoSuchProcess:
                return  # its connection will be lost in a moment
            self._metrics.workers.set(self.live_workers)
            self.last_alive = time.monotonic()
            self.worker_is_up(worker)

    def worker_is_up(self, worker: _Worker) -> None:
        """Called when a worker's connection stands, and when its process is known; both make it free."""
        if worker.transport is not None and worker.process is not None:
            self.worker_is_free(worker)

    def worker_is_free(self, worker: _Worker) -> None:
        """Called when a worker has come up, or has ended its chunk."""
        if worker.units_done >= RETIRE_AFTER_UNITS and worker.transport is not None:
            worker.transport.close()
        else:
            self._free.append(worker)
            self._dispatch()

    def kill(self, worker: _Worker, verdict: Fatal | None) -> None:
        """SIGKILL a worker. With a verdict, the unit that it is on gets it; its other units are done elsewhere."""
        worker.verdict = (worker.place, verdict)
        self._metrics.kills.labels(reason=verdict or "protocol").inc()
        if self._server is not None:
            self._server.kill(worker.id)

    def worker_ended(self, worker: _Worker) -> None:
        """Called when a worker's connection is lost: its unit is judged, its other units go to another worker."""
        del self._workers[worker.id]
        if worker in self._free:
            self._free.remove(worker)
        self._metrics.workers.set(self.live_workers)
        if self._stopping:
            return
        if worker.units and worker.job is not None and worker.chunk is not None:
            self._settle(worker, worker.job, worker.chunk)
        self._metrics.respawns.inc()
        self._fill()
        self._dispatch()

    def _settle(self, worker: _Worker, job: Job, chunk: Chunk) -> None:
        suspect, *others = worker.units
        place = suspect[0]
        self._give_back(job, chunk, others)
        match worker.verdict:
            case (int(judged), str(status)) if judged == place:
                job.accept(place, (None, status, None))
            case (_, str()):  # the guilty one ended just before the kill came; this one is innocent
                self._give_back(job, chunk, [suspect])
            case _ if job.count_death(place) >= 2:
                job.accept(place, (None, "crashed", None))
            case _:  # the first death is nobody's proven fault: once more, alone
                self._give_back(job, chunk, [suspect])

    # ---- work ----------------------------------------------------------------------------------------------

    def waiting_units(self) -> int:
        """Units that no worker has been given yet."""
        return sum(len(chunk.units) for job in self._jobs for chunk in job.waiting)

    def submit(self, job: Job) -> None:
        """Queue a job. Await `job.ended`; `cancel` it when nobody waits any longer."""
        self._jobs.append(job)
        self._dispatch()

    def cancel(self, job: Job) -> None:
        """Free a job's queued units. The unit that a worker is on runs out on its own clock, its result unheard."""
        job.cancel()
        if job in self._jobs:
            self._jobs.remove(job)

    def _give_back(self, job: Job, chunk: Chunk, units: Sequence[Unit]) -> None:
        """Put units of a chunk before all others, as a chunk of their own: they have waited once already."""
        if units and not job.ended.is_set():
            job.waiting.appendleft(Chunk(chunk.content, units))
            if job not in self._jobs:
                self._jobs.appendleft(job)

    def _dispatch(self) -> None:
        while self._free and self._jobs:
            job = self._jobs.popleft()
            self._free.pop().start(job, job.take_chunk())
            if job.waiting:
                self._jobs.append(job)  # behind the others: a large request does not starve a small one

    # ---- the clock -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.live_workers:
                self.last_alive = time.monotonic()
            for worker in list(self._workers.values()):
                if worker.job is not None and worker.process is not None and worker.verdict is None:
                    try:
                        self._judge(worker, worker.process)
                    except psutil.Error:
                        pass  # it has just ended; its connection says so in a moment
                    except Exception:
                        log.exception("the clock stumbled over worker %d", worker.id)

    def _judge(self, worker: _Worker, process: psutil.Process) -> None:
        """Kill what is over its clock or memory; let another worker do what waits behind a unit that dawdles."""
        mark = worker.mark
        with process.oneshot():
            times = process.cpu_times()
            memory_mb = process.memory_info().rss / 2**20
        cpu, wall = times.user + times.system, time.monotonic()
        if mark is None or mark.place != worker.place:
            worker.mark = mark = _Mark(worker.place, cpu, wall)
        mark.ticks += 1
        over = self._over_limit(cpu - mark.cpu, wall - mark.wall, memory_mb)
        # Twice in a row: after a pause of this process the first look may be at a unit whose result waits unread.
        if over is not None and mark.over is not None:
            self.kill(worker, over)
        mark.over = over
        if mark.ticks == DAWDLING_TICKS and len(worker.units) > 1:
            self._relieve(worker)

    def _relieve(self, worker: _Worker) -> None:
        assert worker.job is not None
        assert worker.chunk is not None
        current, *others = worker.units
        worker.units = deque([current])
        worker.send("stop")
        self._give_back(worker.job, worker.chunk, others)
        self._dispatch()

    def _over_limit(self, cpu_seconds: float, wall_seconds: float, memory_mb: float) -> Fatal | None:
        if memory_mb > self._settings.worker_memory_mb:
            return "too_large"
        if cpu_seconds > self._settings.item_cpu_seconds or wall_seconds > self._settings.item_wall_seconds:
            return "timeout"
        return None


async def _connect(worker: _Worker, connection: socket.socket) -> None:
    await asyncio.get_running_loop().create_connection(lambda: worker, sock=connection)
