"""Contract version 1: the JSON that travels between a trainer and the reward service, as pydantic models.

Requests forbid unknown fields, so that a misspelt option is an error and not a silence. Answers ignore unknown
fields, so that an old client survives a newer service. Numbers are finite. Nothing here knows how a reward is computed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType

CONTRACT = "v1"

ROOT_PATH = "/v1"
SCORE_PATH = "/v1/score"
VERIFY_PATH = "/v1/verify"
REWARDS_PATH = "/v1/rewards"
SUITES_PATH = "/v1/suites"
ALIASES_PATH = "/v1/aliases"
LIVE_PATH = "/v1/health/live"
READY_PATH = "/v1/health/ready"
METRICS_PATH = "/metrics"

PROBLEM_MEDIA_TYPE = "application/problem+json"

NULL_STATUSES = frozenset({"bad_gold", "too_large", "timeout", "error", "crashed", "expired"})


def _not_an_integer(value: object) -> object:
    if isinstance(value, int):
        raise ValueError("an integer beyond 64 bits: send it as a string")  # as a float it would be another number
    return value


WireInt = Annotated[int, Field(ge=-(2**63), lt=2**63)]
WireFloat = Annotated[FiniteFloat, BeforeValidator(_not_an_integer)]
Score = Annotated[float, Field(strict=True)]  # of an answer: `true` and "1.0" are no numbers
Json = TypeAliasType("Json", "bool | WireInt | WireFloat | str | list[Json] | dict[str, Json] | None")
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


# ---- requests ----------------------------------------------------------------------------------------------


def _one_gold(value: object) -> object:
    if isinstance(value, bool | float):
        raise ValueError('a gold is a string: send the digits as they are written, in quotes ("1.10" is not "1.1")')
    if isinstance(value, int):
        return str(value)
    return value


def _golds(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_one_gold(gold) for gold in value]
    return [_one_gold(value)]


def _prompt(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _completion(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


class Message(_Request):
    """One chat message of a prompt."""

    role: Name
    content: str
    name: Name | None = None


class Completion(_Request):
    """What the policy wrote. On the wire a bare string stands for `{"text": …}`."""

    text: str
    token_count: Annotated[int, Field(ge=0, lt=2**31, strict=True)] | None = None
    token_ids: list[Annotated[int, Field(ge=0, lt=2**31, strict=True)]] | None = None
    finish_reason: Name | None = None


class Group(_Request):
    """A prompt's completions. `gold`: a string, a list (any match counts), null, or an integer for its digits."""

    id: Name
    prompt: Annotated[list[Message], BeforeValidator(_prompt, json_schema_input_type=str | list[Message])] | None = None
    gold: Annotated[list[str], BeforeValidator(_golds, json_schema_input_type=str | int | list[str | int])] | None = (
        None
    )
    completions: list[Annotated[Completion, BeforeValidator(_completion, json_schema_input_type=str | Completion)]]
    metadata: dict[str, Json] | None = None


class RewardSpec(_Request):
    """One reward of a request: which version, under which name, with which weight and parameters."""

    id: Name
    name: Name | None = None
    weight: FiniteFloat = 1.0
    params: dict[str, Json] = Field(default_factory=dict)
    digest: Name | None = Field(default=None, description="refused with 409 when the served digest is another one")


class Run(_Request):
    """Who asks: recorded, never used in scoring."""

    id: Name | None = None
    step: Annotated[int, Field(ge=0, lt=2**63, strict=True)] | None = None
    phase: Name | None = None


DeadlineMs = Annotated[int, Field(ge=1, le=86_400_000, strict=True, description="milliseconds from arrival")]


class ScoreRequest(_Request):
    """Score each completion of each group with each reward. Exactly one of `rewards` and `suite`."""

    rewards: Annotated[list[RewardSpec], Field(min_length=1)] | None = None
    suite: Name | None = None
    groups: list[Group]
    run: Run | None = None
    deadline_ms: DeadlineMs | None = None

    @field_validator("rewards")
    @classmethod
    def _names_are_unique(cls, rewards: list[RewardSpec] | None) -> list[RewardSpec] | None:
        names = [spec.name or spec.id for spec in rewards or []]
        if len(set(names)) != len(names):
            raise ValueError("two rewards share a name; give each its own `name`")
        return rewards

    @model_validator(mode="after")
    def _one_of_rewards_and_suite(self) -> Self:
        if (self.rewards is None) == (self.suite is None):
            raise ValueError("send exactly one of `rewards` and `suite`")
        return self


class VerifyItem(_Request):
    """A gold and a completion: a whole text, or just an answer."""

    gold: Annotated[list[str], BeforeValidator(_golds, json_schema_input_type=str | int | list[str | int])] | None
    completion: str


class VerifyRequest(_Request):
    """Is each completion's answer equal to its gold, by the rule of one reward version?"""

    items: list[VerifyItem]
    rule: Name
    deadline_ms: DeadlineMs | None = None


class AliasRequest(_Request):
    """Point an alias at a suite version. Who moved it is recorded."""

    target: Name = Field(description="a version of the suite that the alias is of, such as math@2")
    author: Name


# ---- answers -----------------------------------------------------------------------------------------------


class Detail(_Answer):
    """What a reward found: the answer, the rule that found it, where (code points); or the exception's type."""

    answer: str | None = None
    by: str | None = None
    span: tuple[int, int] | None = None
    error: str | None = None


class ServedReward(_Answer):
    """A reward of the request as it was served. `draft` marks a version whose numbers may still move."""

    name: str
    id: str
    weight: float
    params: dict[str, Any]
    digest: str
    draft: bool = False


class GroupScores(_Answer):
    """Per completion, in the order sent. A total is null when any reward of non-zero weight is."""

    id: str
    totals: list[Score | None]
    scores: dict[str, list[Score | None]]
    statuses: dict[str, list[str]]
    details: dict[str, list[Detail | None]]


class Timings(_Answer):
    """Milliseconds before the first unit of work began, and from then to the last result."""

    queue_ms: float
    score_ms: float


class ScoreResponse(_Answer):
    """The answer to a ScoreRequest: groups and completions in its order."""

    suite: str | None
    rewards: list[ServedReward]
    groups: list[GroupScores]
    timings: Timings


class Rule(_Answer):
    """The reward version that decided."""

    id: str
    digest: str
    draft: bool = False


class VerifyResult(_Answer):
    """`equal` is null exactly when `status` is one of the null statuses."""

    equal: bool | None
    status: str
    answer: str | None = None
    by: str | None = None
    span: tuple[int, int] | None = None


class VerifyResponse(_Answer):
    """The answer to a VerifyRequest: results in the order of its items."""

    rule: Rule
    results: list[VerifyResult]


class Limits(_Answer):
    """What one request, one completion and the queue may hold."""

    body_bytes: int
    completions: int
    text_chars: int
    queued_units: int
    json_depth: int
    deadline_ms: int


class ServiceInfo(_Answer):
    """Who answers, by which contract, within which limits."""

    contract: str
    service: str
    python: str
    limits: Limits


class RewardInfo(_Answer):
    """One served version: what it does, what it needs, what determines its numbers."""

    id: str
    doc: str
    source: str
    params: dict[str, Any] = Field(description="JSON Schema of the parameters")
    range: tuple[float | None, float | None] = Field(description="lowest and highest value; null means unbounded")
    needs: list[str]
    uses: list[str]
    digest: str
    history: list[str] = Field(
        default_factory=list,
        description="earlier digests of the same numbers, oldest first: releases for speed or safety",
    )
    lock: dict[str, str] = Field(description="package versions that can move the numbers; empty when none can")
    status: Literal["released", "draft"]
    deprecated: bool


class RewardList(_Answer):
    """Every served version."""

    rewards: list[RewardInfo]


class SuiteReward(_Answer):
    """One weighted reward of a suite."""

    id: str
    name: str
    weight: float
    params: dict[str, Any]


class SuiteInfo(_Answer):
    """A named, versioned list of weighted rewards."""

    id: str
    doc: str
    rewards: list[SuiteReward]
    digest: str = Field(description="over the rewards with their names, weights and parameters")
    status: Literal["released", "draft"]


class SuiteList(_Answer):
    """Every suite."""

    suites: list[SuiteInfo]


class AliasMove(_Answer):
    """A move of an alias. `previous` is null for its first; `moved_at` is UTC, ISO 8601."""

    previous: str | None
    target: str
    author: str
    moved_at: str


class AliasInfo(AliasMove):
    """Where an alias points, by its last move. `etag` goes back as it is in `If-Match`."""

    alias: str
    etag: str


class AliasHistory(AliasInfo):
    """An alias and its last moves, newest first."""

    moves: list[AliasMove]


class AliasList(_Answer):
    """Every alias."""

    aliases: list[AliasInfo]


class Health(_Answer):
    """How the service is."""

    status: Literal["ok", "starting", "draining", "no_workers"]


class Problem(_Answer):
    """RFC 9457. `detail` says what, which and what now; nothing of the input is echoed."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = Field(default=None, description="422: path and message of each fault")
    nearest: list[str] | None = Field(default=None, description="404: ids that resemble the unknown one")
