"""The fork server: `python -m reward_service.worker CONTROL_FD MODULE…`.

Single-threaded. It imports the rewards, warms them up, says hello with its catalogue as data, and then forks workers on
request, kills them on request and reports each that ended. Only it waits for its children, so a kill never meets
somebody else's process under a reused id. When the serving process goes away, it and all its workers go too.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import logging
import mmap
import os
import platform
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Mapping

from reward_service.worker.catalogue import Catalogue, Reward
from reward_service.worker.evaluate import evaluate
from reward_service.worker.frames import Decoder, encode
from reward_service.worker.loop import restore_state, work
from reward_service.worker.messages import ENDED, FORK, FORKED, HELLO, PLACE, Description, Hello
from reward_service.worker.modules import Loaded, load
from reward_service.worker.types import Item

_PR_SET_PDEATHSIG = 1
# Each of these touches a part of the libraries that is slow on its first call (0.3 s in all).
_WARM_UP = (
    ("3", r"\boxed{3}"),
    (r"\frac{1}{2}", r"so $\frac{2}{4}$"),
    ("x^2-1", r"\boxed{(x-1)(x+1)}"),
    ("1,2", "(1,2)"),
)


def main() -> None:
    """Serve the rewards of modules on a control socket, whose descriptor comes first, until its other end closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # Log lines of the libraries format expressions, and formatting one can hang for ever.
    logging.disable(logging.CRITICAL)
    loaded = load(sys.argv[2:])
    _warm_up(loaded.own)
    gc.freeze()
    control.sendall(encode([HELLO, hello(loaded)]))
    ForkServer(control, loaded.catalogue).run()


def hello(loaded: Loaded) -> Hello:
    """The catalogue as data, with the package versions that are really installed here."""
    rewards = [_describe(loaded, member.id) for member in loaded.catalogue]
    return {"python": platform.python_version(), "rewards": rewards, "failed": loaded.failed}


def _describe(loaded: Loaded, reward_id: str) -> Description:
    catalogue = loaded.catalogue
    member = catalogue[reward_id]
    return {
        "id": reward_id,
        "doc": member.doc,
        "source": member.source,
        "params": member.params,
        "range": member.range,
        "needs": member.needs,
        "uses": member.uses,
        "digest": catalogue.digest(reward_id),
        "lock": dict(member.lock.packages) if member.lock else {},
        "broken_lock": _differences(member.lock.packages) if member.lock else [],
        "deprecated": member.deprecated,
        "released": loaded.released.get(reward_id),
    }


def _differences(packages: Mapping[str, str]) -> list[str]:
    installed = {name: importlib.metadata.version(name) for name in packages}
    return [f"{name} is {installed[name]}, not {want}" for name, want in packages.items() if installed[name] != want]


def _warm_up(rewards: Iterable[Reward]) -> None:
    for member in (one for one in rewards if not one.whole_group):
        for gold, completion in _WARM_UP:
            restore_state()
            evaluate(member, Item(completion=completion), golds=[gold], params={})


class ForkServer:
    """Forks, kills and reaps workers as the serving process asks."""

    def __init__(self, control: socket.socket, catalogue: Catalogue) -> None:
        self._control = control
        self._catalogue = catalogue
        self._decoder = Decoder()
        self._workers: dict[int, int] = {}  # worker id → process id
        self._descriptors: list[int] = []  # received, not yet given to a worker

    def run(self) -> None:
        """Answer the control socket and reap children, until the socket closes; then end every worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            while True:
                control = self._control.fileno()
                readable, _, _ = select.select([control, wake_read], [], [])
                if wake_read in readable:
                    os.read(wake_read, 4096)
                    self._reap()
                if control in readable and not self._answer_control():
                    return
        finally:
            for worker_id in list(self._workers):
                self._kill(worker_id)

    def _answer_control(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 16)
        except ConnectionResetError:
            return False
        self._descriptors += descriptors
        for command, worker_id in self._decoder.feed(data):
            if command == FORK:
                self._fork(worker_id)
            else:
                self._kill(worker_id)
        return bool(data)

    def _fork(self, worker_id: int) -> None:
        connection, progress = self._descriptors.pop(0), self._descriptors.pop(0)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(connection, progress, parent)
        os.close(connection)
        os.close(progress)
        self._workers[worker_id] = pid
        self._control.sendall(encode([FORKED, worker_id, pid]))

    def _become_worker(self, connection: int, progress: int, parent: int) -> None:
        """In the child: keep nothing of the server but the rewards, work, and leave without its exit handlers."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._control.close()
        os.setpgid(0, 0)
        die_with(parent)
        try:
            work(socket.socket(fileno=connection), mmap.mmap(progress, PLACE.size), self._catalogue)
        except (ConnectionResetError, BrokenPipeError):
            pass  # the parent hung up on this worker
        except BaseException:  # noqa: BLE001  the last boundary of the process: say it, then end
            traceback.print_exc()
        finally:
            os._exit(0)

    def _kill(self, worker_id: int) -> None:
        if worker_id in self._workers:
            try:
                os.killpg(self._workers[worker_id], signal.SIGKILL)
            except ProcessLookupError:  # killed between its fork and its setpgid
                os.kill(self._workers[worker_id], signal.SIGKILL)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            worker_id = next((worker for worker, known in self._workers.items() if known == pid), None)
            if worker_id is not None:
                del self._workers[worker_id]
                self._control.sendall(encode([ENDED, worker_id, os.waitstatus_to_exitcode(status)]))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends (Linux only; else its socket ends)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


if __name__ == "__main__":
    main()
