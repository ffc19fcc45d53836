"""SIGINT, SIGTERM and SIGHUP end a run after the step at hand; a second one ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: a terminal that was closed


class Interruption:
    """Whether somebody asked the run to end."""

    def __init__(self) -> None:
        self.event = threading.Event()

    @property
    def requested(self) -> bool:
        """Whether the run is to end."""
        return self.event.is_set()

    def request(self, number: int, frame: FrameType | None) -> None:
        """A signal handler. Raises KeyboardInterrupt the second time."""
        if self.requested:
            raise KeyboardInterrupt
        self.event.set()


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Listen to the signals while entered. Outside the main thread, which alone hears signals, nothing is changed."""
    listener = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield listener
        return
    previous = {number: signal.signal(number, listener.request) for number in _SIGNALS}
    try:
        yield listener
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
