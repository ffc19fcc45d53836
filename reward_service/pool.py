"""Worker processes, seen from the serving process: chunks out, outcomes back, and a clock on every unit of work.

A *unit* is one reward on one completion. A *chunk* is what a worker gets at once: (part of) a group and the units to do
on it. A *job* is all the chunks of one request; jobs take turns. The clock counts the worker's CPU time from outside,
so a machine that pauses turns nothing into a timeout, and it starts when a unit starts, so queueing is never counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

import reward_service
from reward_service.metrics import Metrics
from reward_service.settings import Settings
from reward_service.worker.frames import Decoder, FrameTooLarge, encode

log = logging.getLogger("reward_service.pool")

TICK_SECONDS = 0.02
RESTART_SECONDS = 1.0
RETIRE_AFTER_UNITS = 50_000  # libraries under the rewards keep caches; a worker's memory is given back now and then
_LOG_LINES_PER_MINUTE = 100
_LOG_LINE_BYTES = 500

Result = tuple[float | None, str, Mapping[str, Any] | None]
Fatal = Literal["timeout", "too_large"]


@dataclass(eq=False)
class Chunk:
    """(Part of) a group for one worker. `units` are `(unit, completion, reward)`, in the order of work."""

    content: Mapping[str, Any]
    units: Sequence[tuple[int, int, int]]

    def part(self, units: Sequence[tuple[int, int, int]]) -> Chunk:
        return Chunk(self.content, units)


class Job:
    """The work of one request: what waits, what is done. `results[unit]` is None until its unit has ended."""

    def __init__(
        self, chunks: Iterable[Chunk], unit_count: int, on_end: Callable[[Job], None] = lambda job: None
    ) -> None:
        self.waiting = deque(chunks)
        self.results: list[Result | None] = [None] * unit_count
        self.unfinished = unit_count
        self.started_at: float | None = None
        self.deaths: dict[int, int] = {}
        self.ended = asyncio.Event()
        self._on_end = on_end
        if unit_count == 0:
            self.ended.set()

    def accept(self, unit: int, result: Result) -> None:
        """Take a unit's result; the first one counts (a unit moved to another worker may be answered twice)."""
        if self.results[unit] is None and not self.ended.is_set():
            self.results[unit] = result
            self.unfinished -= 1
            if self.unfinished == 0:
                self.ended.set()
                self._on_end(self)


@dataclass
class _Mark:
    """When the clock first saw a unit running: the worker's CPU seconds and the wall time then."""

    unit: int | None
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
        self.units: deque[tuple[int, int, int]] = deque()  # of the chunk, not answered yet; the first one runs
        self.mark: _Mark | None = None
        self.verdict: tuple[int | None, Fatal | None] | None = None  # why it was killed, and on which unit
        self.units_done = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pool.worker_is_up(self)

    @property
    def unit(self) -> int | None:
        """The unit it is on."""
        return self.units[0][0] if self.units else None

    def start(self, job: Job, chunk: Chunk) -> None:
        assert self.transport is not None
        self.job, self.chunk, self.units, self.mark = job, chunk, deque(chunk.units), None
        job.started_at = job.started_at or time.monotonic()
        self.transport.write(encode({**chunk.content, "units": chunk.units}))

    def data_received(self, data: bytes) -> None:
        try:
            for message in self.decoder.feed(data):
                if message == "done":
                    self._end_chunk()
                else:
                    self._accept(*message)
        except (FrameTooLarge, ValueError):
            log.error("worker %d broke the protocol; it is killed", self.id)
            self.pool.kill(self, None)

    def _accept(self, unit: int, value: float | None, status: str, detail: Mapping[str, Any] | None) -> None:
        if self.job is None:
            raise ValueError("a result without a chunk")
        if self.units and self.units[0][0] == unit:
            self.units.popleft()
        self.job.accept(unit, (value, status, detail))
        self.units_done += 1

    def _end_chunk(self) -> None:
        self.job = self.chunk = None
        self.units.clear()
        self.pool.worker_is_free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.worker_ended(self)

    def give_back(self, units: Sequence[tuple[int, int, int]]) -> None:
        """Put units of this worker's chunk back to the front of their job's queue, as a chunk of their own."""
        assert self.job is not None
        assert self.chunk is not None
        if units and not self.job.ended.is_set():
            self.job.waiting.appendleft(self.chunk.part(units))
            self.pool.enqueue(self.job, first=True)


@dataclass
class _ForkServer:
    """The process that imports the rewards and forks workers. `rewards` is None until it has said hello."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    decoder: Decoder = field(default_factory=Decoder)
    rewards: list[dict[str, Any]] | None = None


class Pool:
    """Keeps `settings.workers` workers alive and feeds them. All methods run on the event loop."""

    def __init__(self, settings: Settings, metrics: Metrics, on_hello: Callable[[list[dict[str, Any]]], None]) -> None:
        self._settings = settings
        self._metrics = metrics
        self._on_hello = on_hello
        self._server: _ForkServer | None = None
        self._workers: dict[int, _Worker] = {}
        self._free: list[_Worker] = []
        self._jobs: deque[Job] = deque()
        self._next_worker_id = 0
        self._stopping = False
        self._clock: asyncio.Task[None] | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._log = _BoundedLog()
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
            server = self._server
            self._close_server()
            await asyncio.to_thread(_end_process, server.process)

    @property
    def live_workers(self) -> int:
        """Workers that are connected and running."""
        return sum(worker.process is not None for worker in self._workers.values())

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        root = str(Path(reward_service.__file__).parents[1])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            # What could move a number or abort a worker: string hashing, and gmpy2 where something brought it along.
            "PYTHONHASHSEED": "0",
            "SYMPY_GROUND_TYPES": "python",
            "MPMATH_NOGMPY": "1",
        }
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "reward_service.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is for the serving process alone
            )
        self._server = _ForkServer(process, ours)
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, self._read_control, self._server)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        loop.add_reader(process.stdout, self._read_output, process.stdout.fileno())

    def _read_control(self, server: _ForkServer) -> None:
        try:
            data = server.control.recv(1 << 18)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._server_ended(server)
            return
        for message in server.decoder.feed(data):
            match message:
                case ["hello", hello]:
                    server.rewards = hello["rewards"]
                    self._on_hello(hello["rewards"])
                    self._fill()
                case ["forked", worker_id, pid]:
                    self._worker_runs(worker_id, pid)
                case ["ended", worker_id, exit_code]:
                    log.info("worker %d ended with %d", worker_id, exit_code)

    def _read_output(self, descriptor: int) -> None:
        data = os.read(descriptor, 1 << 16)
        if data:
            self._log.write(data)
        else:
            asyncio.get_running_loop().remove_reader(descriptor)

    def _server_ended(self, server: _ForkServer) -> None:
        self._close_server()
        if not self._stopping:
            log.error("the fork server ended; a new one starts in %.0f s", RESTART_SECONDS)
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._restart_server, server)

    def _restart_server(self, server: _ForkServer) -> None:
        _end_process(server.process)
        if not self._stopping:
            self._start_server()

    def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(server.control)
            server.control.close()
            if self._stopping and server.process.stdout is not None:
                loop.remove_reader(server.process.stdout)

    # ---- workers -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Fork until there are as many workers as there should be."""
        if self._server is None or self._server.rewards is None or self._stopping:
            return
        loop = asyncio.get_running_loop()
        while len(self._workers) < self._settings.workers:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with theirs:
                try:
                    socket.send_fds(self._server.control, [encode(["fork", self._next_worker_id])], [theirs.fileno()])
                except OSError:  # the fork server has ended; its successor's hello brings us back here
                    ours.close()
                    return
            worker = self._workers[self._next_worker_id] = _Worker(self._next_worker_id, self)
            self._next_worker_id += 1
            task = loop.create_task(self._connect(worker, ours))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, worker: _Worker, sock: socket.socket) -> None:
        await asyncio.get_running_loop().create_connection(lambda: worker, sock=sock)

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
        if worker.units_done >= RETIRE_AFTER_UNITS:
            assert worker.transport is not None
            worker.transport.close()
        else:
            self._free.append(worker)
            self._dispatch()

    def kill(self, worker: _Worker, verdict: Fatal | None) -> None:
        """SIGKILL a worker. With a verdict, the unit that it is on gets it; its other units are done elsewhere."""
        worker.verdict = (worker.unit, verdict)
        self._metrics.kills.labels(reason=verdict or "protocol").inc()
        try:
            if self._server is not None:
                self._server.control.send(encode(["kill", worker.id]))
        except OSError:
            pass  # the fork server has ended, and its workers with it

    def worker_ended(self, worker: _Worker) -> None:
        """Called when a worker's connection is lost: its unit is judged, its other units go to another worker."""
        del self._workers[worker.id]
        if worker in self._free:
            self._free.remove(worker)
        self._metrics.workers.set(self.live_workers)
        if worker.job is not None and worker.units:
            self._settle(worker, worker.job)
        if not self._stopping:
            self._metrics.respawns.inc()
            self._fill()
            self._dispatch()

    def _settle(self, worker: _Worker, job: Job) -> None:
        suspect, *others = worker.units
        worker.give_back(others)
        match worker.verdict:
            case (unit, str(status)) if unit == suspect[0]:
                job.accept(unit, (None, status, None))
                return
            case (unit, str()) if unit != suspect[0]:
                worker.give_back([suspect])  # the guilty one ended just before the kill came; this one is innocent
                return
        deaths = job.deaths[suspect[0]] = job.deaths.get(suspect[0], 0) + 1
        if deaths >= 2:
            job.accept(suspect[0], (None, "crashed", None))
        else:
            worker.give_back([suspect])  # the first death is nobody's proven fault: once more, alone

    # ---- work ----------------------------------------------------------------------------------------------

    def waiting_units(self) -> int:
        """Units that no worker has been given yet."""
        return sum(len(chunk.units) for job in self._jobs for chunk in job.waiting)

    def submit(self, job: Job) -> None:
        """Queue a job. Await `job.ended`; `cancel` it when nobody waits any longer."""
        self.enqueue(job)
        self._dispatch()

    def cancel(self, job: Job) -> None:
        """Free a job's queued units. The unit that a worker is on runs out on its own clock, its result unheard."""
        job.waiting.clear()
        job.ended.set()
        if job in self._jobs:
            self._jobs.remove(job)

    def enqueue(self, job: Job, *, first: bool = False) -> None:
        """Put a job among those with waiting chunks."""
        if job not in self._jobs:
            (self._jobs.appendleft if first else self._jobs.append)(job)

    def _dispatch(self) -> None:
        while self._free and self._jobs:
            job = self._jobs.popleft()
            self._free.pop().start(job, job.waiting.popleft())
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
                    except Exception:  # a clock that stops lets one hostile item hang the service
                        log.exception("the clock stumbled over worker %d", worker.id)

    def _judge(self, worker: _Worker, process: psutil.Process) -> None:
        """Kill what is over its clock or memory; let another worker do what waits behind a unit that dawdles."""
        mark = worker.mark
        with process.oneshot():
            times = process.cpu_times()
            memory_mb = process.memory_info().rss / 2**20
        cpu, wall = times.user + times.system, time.monotonic()
        if mark is None or mark.unit != worker.unit:
            worker.mark = mark = _Mark(worker.unit, cpu, wall)
        mark.ticks += 1
        over = self._over_limit(cpu - mark.cpu, wall - mark.wall, memory_mb)
        # Twice in a row: after a pause of this process the first look may be at a unit whose result waits unread.
        if over is not None and mark.over is not None:
            self.kill(worker, over)
        mark.over = over
        if mark.ticks == 2 and len(worker.units) > 1 and worker.transport is not None:
            current, *others = worker.units
            worker.units = deque([current])
            worker.transport.write(encode("stop"))
            worker.give_back(others)
            self._dispatch()

    def _over_limit(self, cpu_seconds: float, wall_seconds: float, memory_mb: float) -> Fatal | None:
        if memory_mb > self._settings.worker_memory_mb:
            return "too_large"
        if cpu_seconds > self._settings.item_cpu_seconds or wall_seconds > self._settings.item_wall_seconds:
            return "timeout"
        return None


class _BoundedLog:
    """What workers print, to our log: escaped, cut, and at most so many lines a minute."""

    def __init__(self) -> None:
        self._minute = 0
        self._lines = 0

    def write(self, data: bytes) -> None:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._lines = minute, 0
        for line in data.splitlines()[: max(0, _LOG_LINES_PER_MINUTE - self._lines)]:
            self._lines += 1
            log.warning("worker: %s", ascii(line[:_LOG_LINE_BYTES].decode("utf-8", "replace")))


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Wait for a fork server whose control socket is closed; insist after a while. Then its workers have ended too."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
