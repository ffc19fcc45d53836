"""Rewards that see a whole group, over HTTP: after what they use, duplicates counted, nulls passed through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.service.pool.test_pool import TOWER
from tests.service.test_plugins import PLUGIN


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    return start_server(allow_drafts=True)


def completion(text: str, token_count: int) -> dict[str, object]:
    return {"text": text, "token_count": token_count}


def test_a_length_reward_compares_within_the_group_and_knows_what_is_right(server: Server) -> None:
    completions = [completion(r"\boxed{7}", 10), completion(r"\boxed{7}", 30), completion(r"\boxed{8}", 10)]
    group = server.score(["kimi.length@1"], "7", completions)
    assert group["scores"] == {"kimi.length@1": [0.5, -0.5, 0.0]}
    assert group["totals"] == [0.5, -0.5, 0.0]


def test_equal_completions_count_as_often_as_they_stand(server: Server) -> None:
    group = server.score(["kimi.length@1"], "7", [completion(r"\boxed{7}", 10)] * 3)
    assert group["totals"] == [0.0, 0.0, 0.0]


def test_a_null_of_what_it_uses_is_a_null_of_that_item_alone(server: Server) -> None:
    completions = [completion(r"\boxed{5}", 10), completion(TOWER, 30), completion(r"\boxed{5}", 20)]
    group = server.score(["kimi.length@1", "math.equal@1"], "5", completions)
    assert group["statuses"]["kimi.length@1"] == ["scored", "timeout", "scored"]
    assert group["scores"]["kimi.length@1"] == [0.5, None, -0.5]
    assert group["scores"]["math.equal@1"] == [1.0, None, 1.0]


def test_what_it_needs_and_lacks_is_422_with_reward_and_field(server: Server) -> None:
    body = {"rewards": [{"id": "kimi.length@1"}], "groups": [{"id": "g", "gold": "7", "completions": ["7"]}]}
    response = server.http.post("/v1/score", json=body)
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {"path": "groups.0.completions.0.token_count", "message": "kimi.length@1 needs `token_count`"}
    ]


def test_drafts_are_served_on_request_only_and_marked(start_server: Callable[..., Server], tmp_path: Path) -> None:
    plugin = tmp_path / "draft_rewards.py"
    plugin.write_text(PLUGIN)
    body = {"rewards": [{"id": "mine.quiet@1"}], "groups": []}
    served = start_server(allow_drafts=True, rewards_module=plugin).http.post("/v1/score", json=body).json()
    assert served["rewards"][0]["draft"] is True
    refused = start_server(rewards_module=plugin).http.post("/v1/score", json=body)
    assert refused.status_code == 503
    assert "REWARD_ALLOW_DRAFTS=1" in refused.json()["detail"]
