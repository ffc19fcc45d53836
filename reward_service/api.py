"""The endpoints. Each reads as the list of its steps; what a step does is elsewhere."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.routing import APIRoute
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel
from pydantic_core import from_json
from reward_proto import v1

from reward_service import __version__
from reward_service.errors import ProblemError
from reward_service.resolving import check_needs, resolve, with_used
from reward_service.scoring import Caller, assemble, score_groups
from reward_service.state import Service
from reward_service.suite_lookup import find_suite

JSON_DEPTH = 200  # of the JSON parser, fixed there
NO_WORKER_SECONDS = 10.0


def service_of(request: Request) -> Service:
    """The state of the application that a request came to."""
    service: Service = request.app.state.service
    return service


State = Annotated[Service, Depends(service_of)]


class JsonRoute(APIRoute):
    """Reads a body within the limit, as strict JSON: no NaN, no lone surrogates, no bottomless nesting."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle


class _JsonRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            limit = service_of(self).settings.max_body_bytes
            chunks, size = [], 0
            async for chunk in self.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise ProblemError(
                        413, f"the body is over {limit} bytes (REWARD_MAX_BODY_BYTES); send fewer groups"
                    )
            if size and self.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                raise ProblemError(415, "the body must be JSON; send it with `Content-Type: application/json`")
            self._body = b"".join(chunks)
        return self._body

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            if "recursion limit" in str(error):
                raise ProblemError(413, f"the JSON is nested deeper than {JSON_DEPTH} levels, which is fixed") from None
            raise ProblemError(400, f"the body is not JSON (RFC 8259): {error}") from None


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": v1.Problem, "description": "the request cannot be answered; `detail` says why and what now"},
    "5XX": {"model": v1.Problem, "description": "the service cannot answer now; see Retry-After"},
}

router = APIRouter(route_class=JsonRoute, responses=PROBLEMS)


# ---- scoring -----------------------------------------------------------------------------------------------


@router.post(v1.SCORE_PATH, response_model=v1.ScoreResponse)
async def score(body: v1.ScoreRequest, request: Request, service: State) -> Response:
    """Score each completion of each group with each reward."""
    suite = await _suite(service, body.suite) if body.suite is not None else None
    specs = _specs(suite.rewards) if suite else body.rewards or []
    service.admit(sum(len(group.completions) for group in body.groups), len(specs))
    await service.served.wake(spec.id for spec in specs)
    rewards = [resolve(spec, service.served, path=["rewards", i]) for i, spec in enumerate(specs)]
    needed = with_used(rewards, service.served)
    check_needs(body.groups, needed)
    columns, timings = await score_groups(
        body.groups,
        needed,
        service.pool,
        _caller(request, service, body.deadline_ms),
        max_text_chars=service.settings.max_text_chars,
    )
    groups = assemble(body.groups, rewards, columns)
    service.count(groups, rewards)
    answer = v1.ScoreResponse.model_construct(
        suite=suite.id if suite else None,
        rewards=[reward.served() for reward in rewards],
        groups=groups,
        timings=timings,
    )
    return _json(answer)


@router.post(v1.VERIFY_PATH, response_model=v1.VerifyResponse)
async def verify(body: v1.VerifyRequest, request: Request, service: State) -> Response:
    """Is each completion's answer equal to its gold, by the rule of one reward version?"""
    service.admit(len(body.items), 1)
    await service.served.wake([body.rule])
    rule = resolve(v1.RewardSpec(id=body.rule), service.served, path=["rule"])
    if "gold" not in rule.info.needs or rule.info.range[1] is None or rule.whole_group:
        raise ProblemError(422, f"{rule.info.id} is no rule of equality: it does not compare with a gold")
    groups = [
        v1.Group.model_construct(id=str(i), prompt=None, gold=item.gold, metadata=None, completions=[_text(item)])
        for i, item in enumerate(body.items)
    ]
    check_needs(groups, [rule])
    columns, _ = await score_groups(
        groups,
        [rule],
        service.pool,
        _caller(request, service, body.deadline_ms),
        max_text_chars=service.settings.max_text_chars,
    )
    service.count(assemble(groups, [rule], columns), [rule])
    answers = [
        v1.VerifyResult.model_construct(
            equal=None if value is None else value >= rule.info.range[1],
            status=status,
            **{key: (detail or {}).get(key) for key in ("answer", "by", "span")},
        )
        for ((value, status, detail),) in columns[0]
    ]
    served = v1.Rule(id=rule.info.id, digest=rule.info.digest, draft=rule.info.status == "draft")
    return _json(v1.VerifyResponse.model_construct(rule=served, results=answers))


def _specs(rewards: Sequence[v1.SuiteReward]) -> list[v1.RewardSpec]:
    return [v1.RewardSpec.model_validate(entry.model_dump()) for entry in rewards]


def _text(item: v1.VerifyItem) -> v1.Completion:
    return v1.Completion(text=item.completion)


def _caller(request: Request, service: Service, deadline_ms: int | None) -> Caller:
    async def gone() -> None:
        # After the body, the caller's hanging up is all that can still be received.
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return Caller(time.monotonic() + service.deadline_ms(deadline_ms) / 1000, gone)


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(warnings=False), media_type="application/json")


# ---- what is served ----------------------------------------------------------------------------------------


@router.get(v1.ROOT_PATH)
async def info(service: State) -> v1.ServiceInfo:
    """The contract's version and the limits of this service."""
    settings = service.settings
    limits = v1.Limits(
        body_bytes=settings.max_body_bytes,
        completions=settings.max_completions,
        text_chars=settings.max_text_chars,
        queued_units=settings.max_queued_units,
        json_depth=JSON_DEPTH,
        deadline_ms=settings.max_deadline_ms,
    )
    return v1.ServiceInfo(contract=v1.CONTRACT, service=__version__, python=platform.python_version(), limits=limits)


@router.get(v1.REWARDS_PATH)
async def rewards(service: State) -> v1.RewardList:
    """Every reward version that is served."""
    service.require_rewards()
    return v1.RewardList(rewards=list(service.served.rewards.values()))


@router.get(v1.REWARDS_PATH + "/{id}")
async def reward(id: Annotated[str, Path(max_length=200)], service: State) -> v1.RewardInfo:
    """One reward version: what it does, what it needs, what determines its numbers."""
    service.require_rewards()
    await service.served.wake([id])
    return resolve(v1.RewardSpec(id=id), service.served, path=["id"]).info


@router.get(v1.SUITES_PATH)
async def suites(service: State) -> v1.SuiteList:
    """Every suite."""
    return v1.SuiteList(suites=list(service.suites))


@router.get(v1.SUITES_PATH + "/{id}")
async def suite(id: Annotated[str, Path(max_length=200)], service: State) -> v1.SuiteInfo:
    """One suite: its rewards, their weights and parameters. For an alias, the version that it points at now."""
    return await _suite(service, id)


async def _suite(service: Service, asked: str) -> v1.SuiteInfo:
    return await find_suite(asked, service.suites, service.aliases)


# ---- health and metrics ------------------------------------------------------------------------------------


@router.get(v1.LIVE_PATH)
async def live() -> v1.Health:
    """The process answers."""
    return v1.Health(status="ok")


@router.get(v1.READY_PATH, responses={503: {"model": v1.Health}})
async def ready(service: State, response: Response) -> v1.Health:
    """200 once a known pair has been graded; 503 before, while draining, and without a live worker for 10 s."""
    health = _health(service)
    response.status_code = 200 if health.status == "ok" else 503
    return health


def _health(service: Service) -> v1.Health:
    if service.draining:
        return v1.Health(status="draining")
    if not service.proven:
        return v1.Health(status="starting")
    if time.monotonic() - service.pool.last_alive > NO_WORKER_SECONDS:
        return v1.Health(status="no_workers")
    return v1.Health(status="ok")


@router.get(v1.METRICS_PATH, response_class=Response, include_in_schema=False)
async def metrics(request: Request, service: State) -> Response:
    """For Prometheus."""
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    content = await asyncio.to_thread(encode, service.metrics.registry)
    return Response(content, headers={"Content-Type": media_type})
