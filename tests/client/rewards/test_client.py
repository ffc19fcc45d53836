"""The client against a real service, and against one that fails in the ways services do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from reward_proto import v1

from grpo_client.errors import ConfigError, RewardServiceError
from grpo_client.rewards.client import RewardClient
from tests.client.failing import Answer, Behaviour, edited, first, proxy
from tests.conftest import Server, free_port

GROUPS = [v1.Group.model_validate({"id": "a", "gold": "7", "completions": ["<answer>7</answer>", "8"]})]


def score(url: str, retry_seconds: float = 5.0) -> list[float | None]:
    with RewardClient(url, retry_seconds=retry_seconds) as client:
        manifest = client.resolve(suite=None, rewards=[("r1.accuracy@1", 1.0), ("r1.int@1", 0.5)])
        return client.score(manifest, GROUPS)[0].totals


def counted(calls: list[str], behave: Behaviour) -> Behaviour:
    """The same behaviour, with the paths of all calls in a list."""

    def behave_and_count(path: str, answer: Answer) -> Answer:
        calls.append(path)
        return behave(path, answer)

    return behave_and_count


def test_rewards_are_resolved_with_their_digests_and_scored(server: Server) -> None:
    calls: list[str] = []
    with proxy(server.url, counted(calls, first(0, 503))) as url:
        assert score(url) == [2.25, 0.25]
    assert calls.count("/v1/score") == 1


def test_a_suite_is_resolved_to_its_rewards(server: Server) -> None:
    with RewardClient(server.url) as client:
        manifest = client.resolve(suite="r1@1", rewards=[])
        assert [spec.weight for spec in manifest.rewards] == [0.2] * 5
        assert all(spec.digest for spec in manifest.rewards)
        assert len(client.score(manifest, GROUPS)[0].scores) == 5


@pytest.mark.parametrize(
    ("suite", "rewards", "message"),
    [
        (None, [("r1.acuracy@1", 1.0)], "r1.accuracy@1"),
        (None, [("r1.accuracy", 1.0)], "named with its version, such as r1.accuracy@"),
        ("r1@9", [], "nearest: r1@1"),
    ],
)
def test_what_the_service_does_not_know_is_refused_with_the_nearest(
    suite: str | None, rewards: list[tuple[str, float]], message: str, server: Server
) -> None:
    with RewardClient(server.url) as client, pytest.raises(ConfigError, match=message):
        client.resolve(suite=suite, rewards=rewards)


def test_a_service_that_is_not_there_is_said_at_once_with_url_and_remedy() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    started = time.monotonic()
    with pytest.raises(RewardServiceError, match="reward-service serve") as error:
        score(url, retry_seconds=60)
    assert url in str(error.value)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("code", [429, 500, 502, 503])
def test_what_may_pass_is_tried_again(code: int, server: Server) -> None:
    calls: list[str] = []
    with proxy(server.url, counted(calls, first(2, code))) as url:
        assert score(url) == [2.25, 0.25]
    assert calls.count("/v1/score") == 3


def test_retry_after_is_honoured(server: Server) -> None:
    with proxy(server.url, first(1, 503, {"retry-after": "2"})) as url:
        started = time.monotonic()
        score(url)
    assert time.monotonic() - started >= 2


def test_past_its_limit_the_client_gives_up_and_says_so(server: Server) -> None:
    with proxy(server.url, first(1000, 503)) as url, pytest.raises(RewardServiceError, match="not now"):
        score(url, retry_seconds=1)


@pytest.mark.parametrize("code", [400, 401, 409, 413, 422])
def test_what_will_not_pass_is_not_tried_again(code: int, server: Server) -> None:
    with proxy(server.url, first(1, code)) as url, pytest.raises(RewardServiceError, match=f"refused \\({code}\\)"):
        score(url)


def shorten(answer: dict[str, Any]) -> None:
    answer["groups"][0]["totals"].pop()


def lose_a_group(answer: dict[str, Any]) -> None:
    answer["groups"] = []


def rename(answer: dict[str, Any]) -> None:
    answer["groups"][0]["id"] = "b"


def swap_digest(answer: dict[str, Any]) -> None:
    answer["rewards"][0]["digest"] = "sha256:other"


def drop_scores(answer: dict[str, Any]) -> None:
    del answer["groups"][0]["scores"]["r1.int@1"]


def lengthen(answer: dict[str, Any]) -> None:
    answer["groups"][0]["scores"]["r1.int@1"].append(1.0)


def make_infinite(answer: dict[str, Any]) -> None:
    answer["groups"][0]["totals"][0] = float("inf")


def contradict(answer: dict[str, Any]) -> None:
    answer["groups"][0]["totals"][0] += 0.5


def null_a_total(answer: dict[str, Any]) -> None:
    answer["groups"][0]["totals"][0] = None


def null_a_score(answer: dict[str, Any]) -> None:
    answer["groups"][0]["scores"]["r1.int@1"][0] = None


def spell_out(answer: dict[str, Any]) -> None:
    answer["groups"][0]["totals"][0] = str(answer["groups"][0]["totals"][0])


def say_true(answer: dict[str, Any]) -> None:
    answer["groups"][0]["scores"]["r1.int@1"][0] = True


UNFIT = [
    *(shorten, lose_a_group, rename, swap_digest, drop_scores, lengthen, make_infinite),
    *(contradict, null_a_total, null_a_score, spell_out, say_true),
]


@pytest.mark.parametrize("change", UNFIT)
def test_an_answer_that_does_not_fit_its_question_is_refused(
    change: Callable[[dict[str, Any]], None], server: Server
) -> None:
    with proxy(server.url, edited(change)) as url, pytest.raises(RewardServiceError, match="broke the contract"):
        score(url)


def garble(path: str, answer: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], bytes]:
    return (200, {}, b"<html>") if path == "/v1/score" else answer


@pytest.mark.parametrize("behave", [garble])
def test_an_answer_that_is_not_json_is_refused(behave: Behaviour, server: Server) -> None:
    with proxy(server.url, behave) as url, pytest.raises(RewardServiceError, match="not JSON"):
        score(url)


def test_unknown_statuses_and_fields_are_kept_and_ignored(server: Server) -> None:
    def change(answer: dict[str, Any]) -> None:
        answer["new"] = 1
        answer["groups"][0]["statuses"]["r1.int@1"][0] = "eclipsed"

    with proxy(server.url, edited(change)) as url, RewardClient(url) as client:
        manifest = client.resolve(suite=None, rewards=[("r1.int@1", 1.0)])
        assert client.score(manifest, GROUPS)[0].statuses["r1.int@1"][0] == "eclipsed"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "127.0.0.1", ""])
def test_a_url_that_is_no_http_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(ConfigError, match="write http://host:port"):
        RewardClient(url)


def test_a_password_in_the_url_is_not_shown() -> None:
    client = RewardClient(f"http://me:secret@127.0.0.1:{free_port()}/", retry_seconds=0)
    with pytest.raises(RewardServiceError) as error:
        client.info()
    assert "127.0.0.1" in str(error.value)
    assert "secret" not in str(error.value) + client.url


@pytest.mark.parametrize("path", ["/v1/rewards/r1.int@1", "/v1/suites/r1@1"])
def test_an_answer_about_a_reward_that_is_odd_is_refused_with_its_path(path: str, server: Server) -> None:
    def behave(asked: str, answer: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], bytes]:
        return (200, {}, b'{"id": 3}') if asked == path else answer

    wanted = {"suite": "r1@1", "rewards": []} if "suites" in path else {"suite": None, "rewards": [("r1.int@1", 1.0)]}
    with (
        proxy(server.url, behave) as url,
        RewardClient(url) as client,
        pytest.raises(RewardServiceError, match=f"{path} broke the contract"),
    ):
        client.resolve(**wanted)
