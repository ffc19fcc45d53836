"""Errors as RFC 9457 problem documents: what, which and what now; ASCII, and nothing of the input echoed."""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from reward_proto import v1
from starlette.exceptions import HTTPException

from reward_service.aliases import StoreError

log = logging.getLogger("reward_service")

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_MAX_FAULTS = 20


class ProblemError(HTTPException):
    """Becomes a problem document. `detail` must not hold anything that the caller sent."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] | None = None,
        nearest: Sequence[str] | None = None,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        after = {} if retry_after is None else {"Retry-After": str(retry_after)}
        super().__init__(status, detail, {**after, **(headers or {})})
        self.errors = errors
        self.nearest = nearest


def fault(path: Iterable[str | int], message: str) -> ProblemError:
    """A 422 about one place of the request."""
    return ProblemError(
        422,
        "the request does not fit the contract; see `errors`, and GET /docs for the shape",
        errors=[{"path": ".".join(map(str, path)), "message": message}],
    )


def unknown(kind: str, asked: str, known: Iterable[str]) -> ProblemError:
    """404 for an id that nothing has, with those that resemble it; a name without a version gets its versions."""
    ids = sorted(known)
    versions = [one for one in ids if one.partition("@")[0] == asked.partition("@")[0]]
    nearest = versions or difflib.get_close_matches(asked[:200], ids, n=3, cutoff=0.5)
    if versions and "@" not in asked:
        return ProblemError(404, f"a {kind} is named with its version, such as {versions[-1]}", nearest=nearest)
    hint = f"did you mean {nearest[0]}?" if nearest else f"GET {v1.ROOT_PATH}/{kind}s lists all of them"
    return ProblemError(404, f"no {kind} has that id; {hint}", nearest=nearest)


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(StoreError, _on_store_error)
    app.add_exception_handler(Exception, _on_exception)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    extras: dict[str, Any] = {}
    if isinstance(error, ProblemError):
        extras = {"errors": error.errors, "nearest": error.nearest}
    return _problem(error.status_code, str(error.detail), headers=error.headers, **extras)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [{"path": _path(one["loc"]), "message": _message(one)} for one in error.errors()[:_MAX_FAULTS]]
    detail = "the request does not fit the contract; see `errors`, and GET /docs for the shape"
    return _problem(422, detail, errors=faults)


async def _on_store_error(request: Request, error: Exception) -> Response:
    log.error("alias store: %s", ascii(str(error)))
    detail = "the store of aliases (REWARD_STORE) cannot be used; the log says why. Suites named by version are served"
    return _problem(503, detail, headers={"Retry-After": "5"})


async def _on_exception(request: Request, error: Exception) -> Response:
    return _problem(500, "the service failed on this request; its log has the traceback. It is safe to try again")


def _problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **extras: Any) -> Response:
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    content |= {name: value for name, value in extras.items() if value is not None}
    return Response(json.dumps(content), status, headers, media_type=v1.PROBLEM_MEDIA_TYPE)


def _path(location: Sequence[str | int]) -> str:
    """`groups.0.completions.1.text`: names of the contract and positions; the caller's own keys stay out of it."""
    parts = [part for part in location if part not in {"body", "path", "query"}]
    for open_field in ("metadata", "params"):
        if open_field in parts:
            parts = parts[: parts.index(open_field) + 1]
    return ".".join(str(part) if _SAFE_NAME.fullmatch(str(part)) else "?" for part in parts)


def _message(error: Mapping[str, Any]) -> str:
    """pydantic's message for the kinds whose text is fixed or names our own limits, never the value that was sent."""
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return str(error["msg"])
