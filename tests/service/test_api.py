"""The endpoints as a caller meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Server

ASK = {"groups": [{"id": "g", "gold": "7", "completions": ["<answer>7</answer>"]}]}


def test_the_root_names_contract_and_limits(server: Server) -> None:
    info = server.http.get("/v1").json()
    assert info["contract"] == "v1"
    assert info["limits"]["completions"] == 65_536


def test_every_reward_is_listed_with_what_determines_its_numbers(server: Server) -> None:
    rewards = {one["id"]: one for one in server.http.get("/v1/rewards").json()["rewards"]}
    assert {"r1.accuracy@1", "simple_grpo.correct@1", "math.equal@1"} <= rewards.keys()
    assert all(one["digest"].startswith("sha256:") and one["doc"] for one in rewards.values())
    assert rewards["math.equal@1"]["lock"]["math-verify"] == "0.9.0"
    assert rewards["r1.accuracy@1"]["needs"] == ["gold"]
    assert server.http.get("/v1/rewards/r1.accuracy@1").json() == rewards["r1.accuracy@1"]


def test_the_suites_of_the_two_scripts_weigh_as_they_did(server: Server) -> None:
    r1 = server.http.get("/v1/suites/r1@1").json()
    assert [one["weight"] for one in r1["rewards"]] == [0.2] * 5
    group = server.http.post("/v1/score", json=ASK | {"suite": "simple_grpo@1"}).json()["groups"][0]
    assert group["totals"] == [1.0 - 1.0]


@pytest.mark.parametrize(
    ("reward_id", "nearest", "hint"),
    [("r1.acuracy@1", "r1.accuracy@1", "did you mean"), ("r1.accuracy", "r1.accuracy@1", "with its version")],
)
def test_an_unknown_reward_is_404_with_the_nearest_ids(reward_id: str, nearest: str, hint: str, server: Server) -> None:
    response = server.http.post("/v1/score", json=ASK | {"rewards": [{"id": reward_id}]})
    assert response.status_code == 404
    assert nearest in response.json()["nearest"]
    assert hint in response.json()["detail"]


def test_another_digest_is_409(server: Server) -> None:
    served = server.http.get("/v1/rewards/r1.int@1").json()["digest"]
    for digest, code in ((served, 200), ("sha256:" + "0" * 64, 409)):
        rewards = [{"id": "r1.int@1", "digest": digest}]
        assert server.http.post("/v1/score", json=ASK | {"rewards": rewards}).status_code == code


def test_an_unknown_parameter_is_422_with_the_known_ones(server: Server) -> None:
    response = server.http.post("/v1/score", json=ASK | {"rewards": [{"id": "r1.int@1", "params": {"x": 1}}]})
    assert response.status_code == 422
    assert "parameters of r1.int@1: none" in response.json()["errors"][0]["message"]


def test_order_length_and_ids_come_back_as_sent(server: Server) -> None:
    groups = [
        {"id": f"g{n % 3}", "gold": str(n), "completions": [f"<answer>{k}</answer>" for k in range(n)]}
        for n in range(20)
    ]
    answers = server.http.post("/v1/score", json={"rewards": [{"id": "r1.accuracy@1"}], "groups": groups}).json()[
        "groups"
    ]
    assert [one["id"] for one in answers] == [one["id"] for one in groups]
    assert [len(one["totals"]) for one in answers] == list(range(20))
    assert all(one["totals"] == [0.0] * len(one["totals"]) for one in answers)


def test_equal_completions_of_a_group_get_equal_scores_each(server: Server) -> None:
    group = server.score(["r1.accuracy@1"], "7", ["7", "6", "7", "7"])
    assert group["totals"] == [2.0, 0.0, 2.0, 2.0]
    assert [one["answer"] for one in group["details"]["r1.accuracy@1"]] == ["7", "6", "7", "7"]


def test_a_total_is_null_when_a_weighted_score_is_and_not_for_weight_0(server: Server) -> None:
    for weight, total in ((0.5, None), (0, 0.5)):
        rewards = [{"id": "math.equal@1", "weight": weight}, {"id": "r1.int@1"}]
        body = {"rewards": rewards, "groups": [{"id": "g", "gold": None, "completions": ["7"]}]}
        assert server.http.post("/v1/score", json=body).json()["groups"][0]["totals"] == [total]


def test_the_same_reward_under_two_names(server: Server) -> None:
    rewards = [{"id": "r1.int@1", "name": "a"}, {"id": "r1.int@1", "name": "b", "weight": 3}]
    group = server.http.post("/v1/score", json=ASK | {"rewards": rewards}).json()["groups"][0]
    assert group["scores"] == {"a": [0.5], "b": [0.5]}
    assert group["totals"] == [2.0]


def test_verify_answers_equal_or_not_or_null(server: Server) -> None:
    items: list[dict[str, Any]] = [
        {"gold": "1/2", "completion": r"so \boxed{0.5}"},
        {"gold": "1/2", "completion": "0.4"},
        {"gold": None, "completion": "0.5"},
    ]
    results = server.http.post("/v1/verify", json={"items": items, "rule": "math.equal@1"}).json()["results"]
    assert [one["equal"] for one in results] == [True, False, None]
    assert results[0]["by"] == "boxed"
    start, end = results[0]["span"]
    assert items[0]["completion"][start:end] == "0.5"


def test_a_reward_without_gold_is_no_rule(server: Server) -> None:
    response = server.http.post("/v1/verify", json={"items": [], "rule": "r1.int@1"})
    assert response.status_code == 422


def test_too_many_items_or_bytes_are_413_naming_the_setting(start_server: Callable[..., Server]) -> None:
    server = start_server(max_completions=3, max_body_bytes=2000)
    for completions, setting in ((["7"] * 4, "REWARD_MAX_COMPLETIONS"), (["7" * 3000], "REWARD_MAX_BODY_BYTES")):
        body = {"rewards": [{"id": "r1.int@1"}], "groups": [{"id": "g", "gold": None, "completions": completions}]}
        response = server.http.post("/v1/score", json=body)
        assert response.status_code == 413
        assert setting in response.json()["detail"]


def test_a_full_queue_is_429_with_retry_after(start_server: Callable[..., Server]) -> None:
    server = start_server(max_queued_units=6)
    group = {"id": "g", "gold": None, "completions": ["7"] * 3}
    for asked, code in (
        ({"rewards": [{"id": "r1.int@1"}]}, 200),
        ({"rewards": [{"id": "r1.int@1", "name": name} for name in "abc"]}, 429),
        ({"suite": "r1@1"}, 429),
    ):
        response = server.http.post("/v1/score", json={**asked, "groups": [group]})
        assert response.status_code == code
        assert ("retry-after" in response.headers) == (code == 429)


def test_a_suite_file_of_the_user_is_served_and_a_bad_one_refused(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    file = tmp_path / "suites.yaml"
    file.write_text("suites:\n  mine@1:\n    doc: Mine.\n    rewards:\n      - {id: r1.int@1, weight: 2}\n")
    server = start_server(suites=file)
    assert server.http.post("/v1/score", json=ASK | {"suite": "mine@1"}).json()["groups"][0]["totals"] == [1.0]
    assert server.http.post("/v1/score", json=ASK | {"suite": "mine"}).status_code == 404
    file.write_text("suites:\n  r1@1:\n    doc: Not mine.\n    rewards: [{id: r1.int@1}]\n")
    with pytest.raises(AssertionError, match="a suite never changes"):
        start_server(suites=file)


def test_metrics_count_items_and_values_by_reward(start_server: Callable[..., Server]) -> None:
    server = start_server()
    server.score(["r1.accuracy@1", "math.equal@1"], None, ["1", "2", "3"])
    text = server.http.get("/metrics").text
    assert 'hallmark_scores_total{reward="math.equal@1",status="bad_gold"} 3.0' in text
    server.score(["r1.accuracy@1"], "1", ["1", "1", "3"])
    text = server.http.get("/metrics").text
    assert 'hallmark_reward_paid_total{reward="r1.accuracy@1",sign="+"} 4.0' in text
    assert 'hallmark_reward_value_count{reward="r1.accuracy@1"} 3.0' in text
    assert 'hallmark_requests_total{code="200",route="/v1/score"} 2.0' in text
    assert "hallmark_build_info{" in text


def test_the_docs_page_is_there(server: Server) -> None:
    assert "swagger" in server.http.get("/docs").text.lower()


def metered(server: Server, reward_id: str) -> dict[tuple[str, str], float]:
    """Every sample that bears a reward's id: by the metric's name, and its sign, status or bucket."""
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    samples = [one for family in families for one in family.samples if one.labels.get("reward") == reward_id]
    return {(one.name, next((v for k, v in one.labels.items() if k != "reward"), "")): one.value for one in samples}


def test_what_is_paid_and_what_is_taken_are_metered_apart_and_nulls_are_neither(server: Server) -> None:
    before = metered(server, "simple_grpo.correct@1")
    for gold, completions in (("1", ["1", "1", "3"]), ("2", ["1", "3", "4"]), (None, ["1", "2"])):
        server.score(["simple_grpo.correct@1"], gold, completions)
    after = metered(server, "simple_grpo.correct@1")
    more = {key: value - before.get(key, 0.0) for key, value in after.items()}
    assert (more["hallmark_reward_paid_total", "+"], more["hallmark_reward_paid_total", "-"]) == (2.0, 4.0)
    assert more["hallmark_reward_value_count", ""] == 6.0
    assert (more["hallmark_reward_value_bucket", "-1.0"], more["hallmark_reward_value_bucket", "0.0"]) == (4.0, 4.0)


PARTIAL = """
from reward_service.worker.catalogue import Catalogue, reward

@reward("mine.partial", version=1, range=(-1.0, 2.0), needs=("gold",))
def partial_v1(item):
    return float(item.completion)

CATALOGUE = Catalogue([partial_v1])
"""


def test_verify_takes_the_top_value_of_a_rule_for_equal_and_no_other(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "partial_rewards.py").write_text(PARTIAL)
    server = start_server(rewards_module=tmp_path / "partial_rewards.py", allow_drafts=1)
    items = [{"gold": "x", "completion": value} for value in ("2", "1.99", "1", "0", "-1", "two")]
    results = server.http.post("/v1/verify", json={"items": items, "rule": "mine.partial@1"}).json()["results"]
    assert [one["equal"] for one in results] == [True, False, False, False, False, None]
