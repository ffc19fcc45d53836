"""The application: `uvicorn reward_service.app:app`. (uvicorn wants the `:app`.)"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reward_service import __version__, api_aliases, errors
from reward_service.api import router
from reward_service.metrics import Metrics
from reward_service.settings import Settings
from reward_service.state import Service


def create_app(settings: Settings | None = None) -> FastAPI:
    """A new application. Its processes start and end with its lifespan."""
    service = Service(settings or Settings())
    app = FastAPI(
        title="Hallmark reward service",
        version=__version__,
        description="Versioned rewards for GRPO: one group of completions in, one list of scores out.",
        lifespan=_lifespan,
    )
    app.state.service = service
    app.include_router(router)
    app.include_router(api_aliases.router)
    errors.install(app)
    app.add_middleware(_RequestMetrics, metrics=service.metrics)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    _show_log()
    service: Service = app.state.service
    restore = _drain_on_sigterm(service)
    service.start()
    restore_hangup = _reload_on_sighup(service)
    try:
        yield
    finally:
        restore()
        restore_hangup()
        await service.pool.stop()


def _show_log() -> None:
    """Have our own log lines shown where nobody else does: uvicorn sets up only its own."""
    log = logging.getLogger("reward_service")
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


def _drain_on_sigterm(service: Service) -> Callable[[], None]:
    """Fall from readiness on SIGTERM, before the server's own handler begins to shut down. Returns the undoing."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    previous = signal.getsignal(signal.SIGTERM)

    def drain(number: int, frame: FrameType | None) -> None:
        service.draining = True
        if callable(previous):
            previous(number, frame)
        else:
            raise SystemExit(0)

    def restore() -> None:
        signal.signal(signal.SIGTERM, previous)

    signal.signal(signal.SIGTERM, drain)
    return restore


def _reload_on_sighup(service: Service) -> Callable[[], None]:
    """Take up new or changed plugins on SIGHUP. Returns the undoing."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop = asyncio.get_running_loop()

    def restore() -> None:
        loop.remove_signal_handler(signal.SIGHUP)

    loop.add_signal_handler(signal.SIGHUP, service.served.reload)
    return restore


class _RequestMetrics:
    """Counts requests and their time by route. The route's template is the label, so that labels stay a closed set."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        code = "500"

        async def watch(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(route=route, code=code).inc()
            self._metrics.latency.labels(route=route).observe(time.perf_counter() - started)


app = create_app()
