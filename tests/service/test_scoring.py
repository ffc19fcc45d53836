"""Results come back to the completion and the reward that they are of; only what is the same is scored once."""

from __future__ import annotations

from typing import Any

import pytest
from reward_proto import v1

from reward_service.resolving import Resolved
from reward_service.scoring import Column, assemble, plan, plan_whole_groups
from tests.conftest import Server

SOLUTION = r"\boxed{7}"


def completion(padding: int, token_count: int) -> dict[str, object]:
    """The same right answer, longer by so many characters, and of so many tokens by its sender's word."""
    return {"text": SOLUTION + " " * padding, "token_count": token_count}


def test_several_group_rewards_on_several_groups_are_not_mixed_up(server: Server) -> None:
    rewards = [
        {"id": "kimi.length@1", "name": "tokens"},
        {"id": "r1.int@1", "name": "own"},
        {"id": "open_r1.len@1", "name": "characters", "weight": 10},
    ]
    groups: dict[str, list[dict[str, object]]] = {
        "opposed": [completion(0, 30), completion(10, 20), completion(20, 10)],
        "alike": [completion(0, 10), completion(10, 20)],
        "of one length": [completion(5, 10), completion(5, 30)],
        "of one count": [completion(8, 5), completion(0, 5), completion(2, 5), completion(4, 5)],
    }
    body = {
        "rewards": rewards,
        "groups": [{"id": name, "gold": "$7$", "completions": members} for name, members in groups.items()],
    }
    answer = {one["id"]: one for one in server.http.post("/v1/score", json=body).json()["groups"]}
    tokens = {name: one["scores"]["tokens"] for name, one in answer.items()}
    characters = {name: one["scores"]["characters"] for name, one in answer.items()}
    assert tokens == {
        "opposed": [-0.5, 0.0, 0.5],
        "alike": [0.5, -0.5],
        "of one length": [0.5, -0.5],
        "of one count": [0.0] * 4,
    }
    assert characters == {
        "opposed": [0.5, 0.0, -0.5],
        "alike": [0.5, -0.5],
        "of one length": [0.0, 0.0],
        "of one count": [-0.5, 0.5, 0.25, 0.0],
    }
    for name, one in answer.items():
        pairs = zip(tokens[name], characters[name], strict=True)
        assert one["totals"] == [a + 10 * b for a, b in pairs]


def test_completions_of_one_text_are_scored_each_by_what_else_is_known_of_them(server: Server) -> None:
    told = [{"token_count": 5, "token_ids": [1, 2, 1, 2]}, {"token_count": 50, "token_ids": [1, 2, 3, 4]}]
    completions = [{"text": "as before", **one} for one in (*told, *told[::-1])]
    rewards = [
        {"id": "length.at_most@1", "params": {"tokens": 10}},
        {"id": "repetition.tokens@1", "params": {"ngram": 2}},
    ]
    body = {"rewards": rewards, "groups": [{"id": "g", "gold": None, "completions": completions}]}
    scores = server.http.post("/v1/score", json=body).json()["groups"][0]["scores"]
    assert scores["length.at_most@1"] == [1.0, 0.0, 0.0, 1.0]
    assert scores["repetition.tokens@1"] == pytest.approx([-1 / 3, 0.0, 0.0, -1 / 3])


def resolved(name: str, *, weight: float = 1.0, fleet: str = "default") -> Resolved:
    info = v1.RewardInfo.model_validate(
        {
            "id": "a.b@1",
            "doc": "",
            "source": "",
            "params": {},
            "range": [0, 1],
            "needs": [],
            "uses": [],
            "digest": "sha256:0",
            "lock": {},
            "deprecated": False,
            "status": "released",
            "history": [],
        }
    )
    return Resolved(info, fleet, name, weight, {})


@pytest.mark.parametrize(
    "other", [{"text": "b"}, {"token_count": 3}, {"token_ids": [1]}, {"finish_reason": "length"}], ids=str
)
def test_completions_share_a_row_only_where_all_of_them_is_the_same(other: dict[str, Any]) -> None:
    told = {"text": "a", "token_count": 2, "token_ids": [1, 2], "finish_reason": "stop"}
    group = v1.Group.model_validate({"id": "g", "gold": None, "completions": [told, told | other, told]})
    assert plan([group], [resolved("one")], max_text_chars=9, workers=1).rows == [[0, 1, 0]]


def test_units_of_two_fleets_keep_the_places_of_the_request() -> None:
    groups = [
        v1.Group.model_validate({"id": "g", "gold": None, "completions": ["a", "too long", "b", "a"]}),
        v1.Group.model_validate({"id": "h", "gold": None, "completions": ["a"]}),
    ]
    rewards = [resolved("one"), resolved("two", fleet="locked"), resolved("three")]
    work = plan(groups, rewards, max_text_chars=5, workers=1)
    assert work.rows == [[0, 1, 2, 0], [3]]
    assert (work.unit_count, work.too_large) == (12, [3, 4, 5])
    placed = {
        place: (chunk.fleet, portion.content["completions"][member][0], portion.content["rewards"][own][0])
        for chunk in work.chunks
        for portion in chunk.portions
        for place, member, own in portion.units
    }
    fleets, texts = ["default", "locked", "default"], ["a", None, "b", "a"]
    assert placed == {
        row * 3 + r: (fleets[r], text, "a.b@1") for row, text in enumerate(texts) if text is not None for r in range(3)
    }


def test_totals_add_weight_times_score_in_the_order_of_the_rewards() -> None:
    rewards = [resolved("one", weight=0.5), resolved("two", weight=-2.0), resolved("shown", weight=0.0)]
    group = v1.Group.model_validate({"id": "g", "gold": None, "completions": ["a", "b", "c", "d"]})
    paid: list[list[float | None]] = [[1.0, 2.0, 1.0, 3.0], [1.0, 0.25, None, 1e308], [None, 1.0, 1.0, 1.0]]
    columns: list[Column] = [
        [[(value, "scored" if value is not None else "timeout", None) for value in column]] for column in paid
    ]
    (answer,) = assemble([group], rewards, columns)
    assert answer.totals == [-1.5, 0.5, None, None]  # of a null; of a sum that is not finite
    assert answer.scores == {"one": paid[0], "two": paid[1], "shown": paid[2]}
    assert answer.statuses["two"] == ["scored", "scored", "timeout", "scored"]


def test_a_group_with_one_text_over_the_limit_is_no_work_for_a_group_reward() -> None:
    groups = [
        v1.Group.model_validate({"id": name, "gold": None, "completions": completions})
        for name, completions in (("short", ["a", "b"]), ("mixed", ["a", "too long"]), ("none", []), ("one", ["c"]))
    ]
    used: dict[str, Column] = {"t.used@1": [[(1.0, "scored", None)] * len(group.completions) for group in groups]}
    chunks, too_large = plan_whole_groups(groups, [resolved("one"), resolved("two")], used, max_text_chars=5)
    assert too_large == [2, 3]
    assert [chunk.places() for chunk in chunks] == [[0, 1], [4, 5], [6, 7]]
    assert [len(chunk.portions[0].content["completions"]) for chunk in chunks] == [2, 0, 1]
    assert chunks[0].portions[0].content["used"] == {"t.used@1": [(1.0, "scored")] * 2}
