"""The process that imports the rewards and forks workers, seen from the serving process."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import reward_service
from reward_service.worker.frames import Decoder, encode
from reward_service.worker.messages import FORK, KILL, NO_PLACE, PLACE

log = logging.getLogger("reward_service.workers")

_LOG_LINES_PER_MINUTE = 100
_LOG_LINE_BYTES = 500
_SECONDS_TO_END = 5.0

# What could move a number or abort a worker: string hashing, and gmpy2 where something brought it along.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1"}

OnMessage = Callable[[Sequence[Any]], None]


class ForkServerProcess:
    """One fork server. It says HELLO, then FORKED and ENDED of each worker (`worker.messages`)."""

    def __init__(
        self, python: str, modules: Sequence[str], *, on_message: OnMessage, on_end: Callable[[], None]
    ) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._decoder = Decoder()
        self._log = _BoundedLog()
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-P", "-m", "reward_service.worker", str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | _ENVIRONMENT | _import_path(python),
                start_new_session=True,  # Ctrl-C in a terminal is for the serving process alone
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control, self._read_control)
        loop.add_reader(self._output, self._read_output)

    def fork(self, worker_id: int) -> tuple[socket.socket, mmap.mmap] | None:
        """Have a worker forked: our end of its connection, and the memory in which it notes the unit that it is on.

        None when the fork server has ended.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, tempfile.TemporaryFile() as file:
            file.write(PLACE.pack(NO_PLACE))
            file.flush()
            progress = mmap.mmap(file.fileno(), PLACE.size)
            try:
                socket.send_fds(self._control, [encode([FORK, worker_id])], [theirs.fileno(), file.fileno()])
            except OSError:
                ours.close()
                progress.close()
                return None
        return ours, progress

    def kill(self, worker_id: int) -> None:
        """Have a worker killed. When the fork server has ended, its workers have too."""
        try:
            self._control.send(encode([KILL, worker_id]))
        except OSError:
            log.info("no fork server to kill worker %d", worker_id)

    def close(self) -> None:
        """Hang up: the fork server ends its workers and itself. `wait` sees it end."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control)
        loop.remove_reader(self._output)
        self._control.close()

    def wait(self) -> None:
        """Block until the process has ended; insist after a while."""
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _read_control(self) -> None:
        try:
            data = self._control.recv(1 << 18)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.close()
            self._on_end()
            return
        for message in self._decoder.feed(data):
            self._on_message(message)

    def _read_output(self) -> None:
        data = os.read(self._output.fileno(), 1 << 16)
        if data:
            self._log.write(data)
        else:
            asyncio.get_running_loop().remove_reader(self._output)


def _import_path(python: str) -> dict[str, str]:
    """Our own interpreter finds this source tree wherever it is started; another one has its own copy and packages."""
    if python != sys.executable:
        return {"PYTHONPATH": ""}
    root = str(Path(reward_service.__file__).parents[1])
    return {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


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
            log.warning("printed: %s", ascii(line[:_LOG_LINE_BYTES].decode("utf-8", "replace")))
