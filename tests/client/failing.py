"""A small HTTP server that stands before a real service and misbehaves as told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx

Answer = tuple[int, dict[str, str], bytes]
Behaviour = Callable[[str, Answer], Answer]


@contextmanager
def proxy(upstream: str, behave: Behaviour) -> Iterator[str]:
    """The URL of a server that passes requests on to `upstream` and its answers through `behave(path, answer)`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self.answer("GET", None)

        def do_POST(self) -> None:
            self.answer("POST", self.rfile.read(int(self.headers["content-length"])))

        def answer(self, method: str, body: bytes | None) -> None:
            headers = {"content-type": "application/json"}
            got = httpx.request(method, upstream + self.path, content=body, headers=headers, timeout=60)
            code, more, content = behave(self.path, (got.status_code, {}, got.content))
            self.send_response(code)
            for name, value in (
                {"content-type": "application/json", "content-length": str(len(content))} | more
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def edited(change: Callable[[dict[str, Any]], None]) -> Behaviour:
    """Edits the answer to /v1/score."""

    def behave(path: str, answer: Answer) -> Answer:
        code, headers, content = answer
        if path != "/v1/score" or code != 200:
            return answer
        document = json.loads(content)
        change(document)
        return code, headers, json.dumps(document).encode()

    return behave


def first(times: int, code: int, headers: dict[str, str] | None = None) -> Behaviour:
    """Answers the first `times` calls of /v1/score with an error."""
    left = [times]

    def behave(path: str, answer: Answer) -> Answer:
        if path == "/v1/score" and left[0] > 0:
            left[0] -= 1
            return code, headers or {}, json.dumps({"title": "no", "status": code, "detail": "not now"}).encode()
        return answer

    return behave
