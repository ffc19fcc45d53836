"""Length-prefixed JSON frames over a stream socket: all that parent, fork server and worker ever say to each other.

JSON and nothing else: never pickle, never code, never a sympy object. A frame is four bytes of length, big-endian, and
that many bytes of ASCII JSON; a longer one than `MAX_FRAME_BYTES` is refused on both ends.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

MAX_FRAME_BYTES = 256 * 1024 * 1024
_HEADER_BYTES = 4


class FrameTooLarge(Exception):
    """A frame over the cap: the sender is broken or hostile, and the stream cannot be trusted any more."""


def encode(message: Any) -> bytes:
    """One frame. Raises FrameTooLarge."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_HEADER_BYTES, "big") + body


class Decoder:
    """Turns received bytes into messages; keeps what is not complete yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that `data` completes. Raises FrameTooLarge, or ValueError for a body that is not JSON."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER_BYTES:
                end = start + _HEADER_BYTES
                size = int.from_bytes(self._buffer[start:end], "big")
                if size > MAX_FRAME_BYTES:
                    raise FrameTooLarge(f"a frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
                if len(self._buffer) < end + size:
                    break
                body = bytes(self._buffer[end : end + size])
                start = end + size
                yield json.loads(body)
        finally:
            del self._buffer[:start]


def receive(sock: socket.socket, decoder: Decoder) -> list[Any] | None:
    """Block for data and return the messages it completes (maybe none); None at the end of the stream."""
    data = sock.recv(1 << 18)
    return list(decoder.feed(data)) if data else None
