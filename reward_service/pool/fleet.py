"""One fork server and its workers: a *fleet*. All of them have imported the same rewards from the same packages."""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import psutil

from reward_service.pool.fork_server import ForkServerProcess
from reward_service.pool.jobs import Chunk, Job
from reward_service.worker import messages
from reward_service.worker.frames import Decoder, FrameTooLarge, encode
from reward_service.worker.messages import DONE, NO_PLACE, PLACE, ChunkMessage, Hello

log = logging.getLogger("reward_service.fleet")

RESTART_SECONDS = 1.0
RETIRE_AFTER_UNITS = 50_000  # libraries under the rewards keep caches; a worker's memory is given back now and then

Fatal = Literal["timeout", "too_large"]


@dataclass(frozen=True)
class WorkerSpec:
    """What a fleet's workers are: an interpreter, whose packages are a lock, and the modules that it serves."""

    python: str
    modules: tuple[str, ...]


class Scheduler(Protocol):
    """What a fleet tells the pool."""

    def worker_is_free(self) -> None:
        """A worker can take a chunk."""

    def worker_died(self, worker: Worker) -> None:
        """A worker is gone, maybe with units that it had not answered."""

    def workers_changed(self) -> None:
        """The number of live workers is another one."""

    def kill(self, worker: Worker, verdict: Fatal | None) -> None:
        """SIGKILL a worker."""


@dataclass
class Mark:
    """When the clock first saw a unit running: the worker's CPU seconds and the wall time then."""

    place: int | None
    cpu: float
    wall: float
    ticks: int = 0
    over: Fatal | None = None


class Worker(asyncio.Protocol):
    """One worker process and what it is doing."""

    def __init__(self, worker_id: int, fleet: Fleet, progress: mmap.mmap) -> None:
        self.id = worker_id
        self.fleet = fleet
        self.progress = progress
        self.process: psutil.Process | None = None
        self.transport: asyncio.Transport | None = None
        self.decoder = Decoder()
        self.job: Job | None = None
        self.chunk: Chunk | None = None
        self.places: dict[int, None] = {}  # of the chunk's units that are not answered yet, in order
        self.mark: Mark | None = None
        self.verdict: tuple[int | None, Fatal | None] | None = None  # why it was killed, and on which unit
        self.units_done = 0

    @property
    def place(self) -> int | None:
        """The unit that it is on: what it has noted, once it has begun with its chunk."""
        (place,) = PLACE.unpack_from(self.progress)
        return place if place in self.places else next(iter(self.places), None)

    def start(self, job: Job, chunk: Chunk) -> None:
        """Begin a chunk."""
        self.job, self.chunk, self.mark = job, chunk, None
        self.places = dict.fromkeys(chunk.places())
        PLACE.pack_into(self.progress, 0, NO_PLACE)
        self.send(chunk.message())

    def send(self, message: ChunkMessage | str) -> None:
        """One frame to the process."""
        assert self.transport is not None
        self.transport.write(encode(message))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.fleet.worker_is_up(self)

    def data_received(self, data: bytes) -> None:
        try:
            for results in self.decoder.feed(data):
                for result in results:
                    if result == DONE:
                        self.job = self.chunk = None
                        self.places.clear()
                        self.fleet.worker_is_free(self)
                    else:
                        self._accept(*result)
        except (FrameTooLarge, ValueError, TypeError):
            log.error("worker %d broke the protocol; it is killed", self.id)
            self.fleet.scheduler.kill(self, None)

    def _accept(self, place: int, value: Any, status: str, detail: Mapping[str, Any] | None) -> None:
        if self.job is None:
            raise ValueError("a result without a chunk")
        self.places.pop(place, None)
        self.job.accept(place, (value, status, detail))
        self.units_done += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.fleet.worker_ended(self)


class Fleet:
    """Keeps `size` workers of one fork server alive until it is closed. `on_hello` gets its catalogue, once a start."""

    def __init__(
        self,
        name: str,
        spec: WorkerSpec,
        *,
        size: int,
        scheduler: Scheduler,
        on_hello: Callable[[str, Hello], None],
    ) -> None:
        self.name = name
        self.spec = spec
        self.scheduler = scheduler
        self.workers: dict[int, Worker] = {}
        self.free: list[Worker] = []
        self.closing = False
        self._size = size
        self._on_hello = on_hello
        self._server: ForkServerProcess | None = None
        self._greeted = False
        self._next_worker_id = 0
        self._connecting: set[asyncio.Task[None]] = set()
        self._start()

    @property
    def busy(self) -> bool:
        """Whether any of its workers is on a chunk."""
        return any(worker.job is not None for worker in self.workers.values())

    @property
    def live_workers(self) -> int:
        """Workers that are connected and running."""
        return sum(worker.process is not None for worker in self.workers.values())

    def close(self) -> ForkServerProcess | None:
        """Hang up on the fork server, which ends its workers and itself. Returns it, to be waited for."""
        self.closing = True
        server, self._server = self._server, None
        if server is not None:
            server.close()
        return server

    def kill(self, worker: Worker) -> None:
        """SIGKILL a worker."""
        if self._server is not None:
            self._server.kill(worker.id)

    def _start(self) -> None:
        self._greeted = False
        self._server = ForkServerProcess(
            self.spec.python, self.spec.modules, on_message=self._on_message, on_end=self._on_server_end
        )

    def _on_message(self, message: Sequence[Any]) -> None:
        match message:
            case [messages.HELLO, hello]:
                self._greeted = True
                self._on_hello(self.name, hello)
                self._fill()
            case [messages.FORKED, worker_id, pid]:
                self._worker_runs(worker_id, pid)
            case [messages.ENDED, worker_id, exit_code]:
                log.info("%s: worker %d ended with %d", self.name, worker_id, exit_code)

    def _on_server_end(self) -> None:
        ended, self._server = self._server, None
        if ended is not None and not self.closing:
            log.error("%s: the fork server ended; a new one starts in %.0f s", self.name, RESTART_SECONDS)
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._replace_server, ended)

    def _replace_server(self, ended: ForkServerProcess) -> None:
        ended.wait()
        if not self.closing:
            self._start()

    def _fill(self) -> None:
        """Fork until there are as many workers as there should be."""
        while self._server is not None and self._greeted and len(self.workers) < self._size:
            forked = self._server.fork(self._next_worker_id)
            if forked is None:
                return  # its successor's hello brings us back here
            connection, progress = forked
            worker = self.workers[self._next_worker_id] = Worker(self._next_worker_id, self, progress)
            self._next_worker_id += 1
            task = asyncio.get_running_loop().create_task(_connect(worker, connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _worker_runs(self, worker_id: int, pid: int) -> None:
        worker = self.workers.get(worker_id)
        if worker is not None:
            try:
                worker.process = psutil.Process(pid)
            except psutil.NoSuchProcess:
                return  # its connection will be lost in a moment
            self.scheduler.workers_changed()
            self.worker_is_up(worker)

    def worker_is_up(self, worker: Worker) -> None:
        """Called when a worker's connection stands, and when its process is known; both make it free."""
        if worker.transport is not None and worker.process is not None:
            self.worker_is_free(worker)

    def worker_is_free(self, worker: Worker) -> None:
        """Called when a worker has come up, or has ended its chunk."""
        if worker.units_done >= RETIRE_AFTER_UNITS and worker.transport is not None:
            worker.transport.close()
        else:
            self.free.append(worker)
            self.scheduler.worker_is_free()

    def worker_ended(self, worker: Worker) -> None:
        """Called when a worker's connection is lost."""
        del self.workers[worker.id]
        if worker in self.free:
            self.free.remove(worker)
        if not self.closing:
            self.scheduler.worker_died(worker)
            self._fill()
        self.scheduler.workers_changed()


async def _connect(worker: Worker, connection: socket.socket) -> None:
    await asyncio.get_running_loop().create_connection(lambda: worker, sock=connection)
