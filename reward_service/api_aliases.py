"""The endpoints of aliases: read by anyone, moved by an admin who says where the alias was."""

from __future__ import annotations

import asyncio
import hmac
import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from reward_proto import v1

from reward_service.aliases import ALIAS, SUITE_NAME, AliasConflictError, AliasStore, Condition
from reward_service.api import PROBLEMS, JsonRoute, State
from reward_service.errors import ProblemError, fault
from reward_service.suite_lookup import ALIASES_ARE_OFF
from reward_service.suites import Suites

router = APIRouter(route_class=JsonRoute, responses=PROBLEMS)

Name = Annotated[str, Path(pattern=f"^{SUITE_NAME}$", max_length=100)]
Alias = Annotated[str, Path(pattern=f"^{ALIAS}$", max_length=64)]

_bearer = HTTPBearer(auto_error=False, description="REWARD_ADMIN_TOKEN")
_ETAG = r'(?:W/)?"[!#-~]*"'
_ETAGS = re.compile(rf"{_ETAG}(?:[ \t]*,[ \t]*{_ETAG})*")


def store_of(service: State) -> AliasStore:
    """The store of aliases. Raises 404 when there is none."""
    if service.aliases is None:
        raise ProblemError(404, ALIASES_ARE_OFF)
    return service.aliases


Store = Annotated[AliasStore, Depends(store_of)]


def admin(service: State, store: Store, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
    """Raise 401 without a token, 403 with another one than the service's, or when it has none."""
    token = service.settings.admin_token
    if token is None:
        raise ProblemError(403, "aliases cannot be moved over HTTP: set REWARD_ADMIN_TOKEN, and send it as Bearer")
    if sent is None:
        raise ProblemError(
            401, "send REWARD_ADMIN_TOKEN as `Authorization: Bearer ...`", headers={"WWW-Authenticate": "Bearer"}
        )
    if not hmac.compare_digest(sent.credentials.encode(), token.get_secret_value().encode()):
        raise ProblemError(403, "that is not the token of this service (REWARD_ADMIN_TOKEN)")


@router.get(v1.ALIASES_PATH)
async def aliases(store: Store) -> v1.AliasList:
    """Every alias, and where it points."""
    return v1.AliasList(aliases=await asyncio.to_thread(store.all))


@router.get(v1.ALIASES_PATH + "/{name}/{alias}")
async def alias(name: Name, alias: Alias, store: Store, response: Response) -> v1.AliasHistory:
    """Where one alias points, with its last moves and the ETag that moving it asks for."""
    found = await asyncio.to_thread(store.history, f"{name}@{alias}")
    if found is None:
        raise ProblemError(404, f"no suite has that alias; GET {v1.ALIASES_PATH} lists all of them")
    response.headers["ETag"] = found.etag
    return found


@router.put(
    v1.ALIASES_PATH + "/{name}/{alias}", dependencies=[Depends(admin)], responses={201: {"model": v1.AliasInfo}}
)
async def move(
    name: Name,
    alias: Alias,
    body: v1.AliasRequest,
    service: State,
    store: Store,
    response: Response,
    if_match: Annotated[str | None, Header(description="the ETag that the alias has, or * for any")] = None,
    if_none_match: Annotated[str | None, Header(description="* to make an alias that is not there")] = None,
) -> v1.AliasInfo:
    """Point an alias at another version of its suite, or make it (201). Requests that name it follow at once."""
    condition = condition_of(if_match, if_none_match)
    check_target(body.target, name=name, suites=service.suites)
    try:
        moved = await asyncio.to_thread(
            store.move, f"{name}@{alias}", target=body.target, author=body.author, condition=condition
        )
    except AliasConflictError as error:
        raise _elsewhere(error.current) from None
    response.status_code = 201 if moved.previous is None else 200
    response.headers["ETag"] = moved.etag
    return moved


def condition_of(if_match: str | None, if_none_match: str | None) -> Condition:
    """What must hold of the alias for a move. Raises ProblemError: 428 nothing was said, 400 it cannot be read."""
    match if_match, if_none_match:
        case None, None:
            raise ProblemError(
                428, "say where the alias is: `If-Match` with its ETag, or `If-None-Match: *` to make a new one"
            )
        case "*", None:
            return lambda current: current is not None
        case None, "*":
            return lambda current: current is None
        case str(), None if _ETAGS.fullmatch(if_match):
            etags = re.findall(_ETAG, if_match)  # a weak one, W/"7", matches nothing (RFC 9110, 13.1.1)
            return lambda current: current is not None and current.etag in etags
    raise ProblemError(400, 'send one of `If-Match: "<etag>"` (quotes included), `If-Match: *`, `If-None-Match: *`')


def check_target(target: str, *, name: str, suites: Suites) -> None:
    """Raise 422 when a target is no version of this suite that is served here."""
    versions = [one.id for one in suites if one.id.partition("@")[0] == name]
    if target not in versions:
        raise fault(["target"], f"an alias points at a version of its own suite; here: {', '.join(versions) or 'none'}")


def _elsewhere(current: v1.AliasInfo | None) -> ProblemError:
    if current is None:
        return ProblemError(412, "there is no such alias yet; make it with `If-None-Match: *`")
    return ProblemError(
        412,
        f"the alias has moved: it points at {current.target} with ETag {current.etag}, since {current.moved_at}; "
        "look at it again, and send that ETag in `If-Match` to move it from there",
        headers={"ETag": current.etag},
    )
