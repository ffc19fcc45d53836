"""The snapshot, the examples and the running application agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError
from reward_proto import v1

from reward_service.app import create_app
from tests.conftest import ROOT, Server

CONTRACT = ROOT / "proto" / "v1"
MODELS: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "score": (v1.ScoreRequest, v1.ScoreResponse),
    "verify": (v1.VerifyRequest, v1.VerifyResponse),
    "alias": (v1.AliasRequest, v1.AliasInfo),
}
REQUESTS = sorted((CONTRACT / "examples").glob("*.request.json"))


def response_of(request: Path) -> Path:
    return request.with_name(request.name.replace(".request.", ".response."))


def test_the_snapshot_is_what_the_application_says_of_itself() -> None:
    snapshot = json.loads((CONTRACT / "openapi.json").read_text())
    assert create_app().openapi() == snapshot, "the wire changed: `make contract`, and a line in the CHANGELOG"


def test_there_are_examples_of_each_endpoint_that_takes_a_body() -> None:
    assert {path.name.partition("-")[0] for path in REQUESTS} == set(MODELS)


@pytest.mark.parametrize("request_file", REQUESTS, ids=lambda path: path.stem)
def test_every_example_still_parses(request_file: Path) -> None:
    question, answer = MODELS[request_file.name.partition("-")[0]]
    question.model_validate_json(request_file.read_bytes())
    answer.model_validate_json(response_of(request_file).read_bytes())


# test_aliases.py sends those of aliases, to a service that has a store.
@pytest.mark.parametrize(
    "request_file", [path for path in REQUESTS if path.name[:5] != "alias"], ids=lambda path: path.stem
)
def test_the_service_answers_every_example_as_it_did(request_file: Path, server: Server) -> None:
    path = f"/v1/{request_file.name.partition('-')[0]}"
    response = server.http.post(path, content=request_file.read_bytes(), headers={"Content-Type": "application/json"})
    assert response.status_code == 200, response.text
    got, want = response.json(), json.loads(response_of(request_file).read_text())
    got.pop("timings", None), want.pop("timings", None)
    assert got == want


GROUP = {"id": "q", "gold": "1", "completions": ["1"]}
REWARDS = [{"id": "r1.int@1"}]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"rewards": REWARDS, "groups": [GROUP], "extra": 1}, "extra"),
        ({"rewards": [{"id": "r1.int@1", "wieght": 2}], "groups": [GROUP]}, "rewards.0.wieght"),
        ({"rewards": REWARDS, "groups": [GROUP | {"golds": []}]}, "groups.0.golds"),
        (
            {"rewards": REWARDS, "groups": [GROUP | {"completions": [{"text": "", "txt": ""}]}]},
            "groups.0.completions.0.txt",
        ),
        ({"rewards": REWARDS, "groups": [GROUP], "run": {"name": "x"}}, "run.name"),
    ],
)
def test_an_unknown_request_field_is_refused_with_its_path(body: object, path: str, server: Server) -> None:
    response = server.http.post("/v1/score", json=body)
    assert response.status_code == 422
    assert response.json()["errors"] == [{"path": path, "message": "unknown field"}]


@pytest.mark.parametrize(
    ("gold", "parsed"),
    [
        ("72", ["72"]),
        (72, ["72"]),
        (["1/2", "0.5"], ["1/2", "0.5"]),
        ([1, "one"], ["1", "one"]),
        (None, None),
        (-3, ["-3"]),
    ],
)
def test_a_gold_is_a_string_a_list_an_integer_or_null(gold: object, parsed: object) -> None:
    assert v1.Group.model_validate(GROUP | {"gold": gold}).gold == parsed


@pytest.mark.parametrize("gold", [1.10, True, {"a": 1}, [1.5], [None], [["1"]]])
def test_other_golds_are_refused(gold: object) -> None:
    with pytest.raises(ValidationError):
        v1.Group.model_validate(GROUP | {"gold": gold})


def test_a_float_gold_is_refused_with_what_to_send_instead(server: Server) -> None:
    response = server.http.post("/v1/score", json={"rewards": REWARDS, "groups": [GROUP | {"gold": 1.5}]})
    assert response.status_code == 422
    assert "in quotes" in response.json()["errors"][0]["message"]


def test_clients_ignore_unknown_fields_of_an_answer() -> None:
    health = v1.Health.model_validate({"status": "ok", "mood": "good"})
    assert health.status == "ok"


@pytest.mark.parametrize("body", [{"groups": []}, {"groups": [], "suite": "r1@1", "rewards": REWARDS}])
def test_exactly_one_of_rewards_and_suite(body: object, server: Server) -> None:
    response = server.http.post("/v1/score", json=body)
    assert response.status_code == 422
    assert "exactly one" in response.json()["errors"][0]["message"]


def test_two_rewards_of_one_name_are_refused(server: Server) -> None:
    body = {"rewards": [{"id": "r1.int@1"}, {"id": "r1.int@1"}], "groups": []}
    assert server.http.post("/v1/score", json=body).status_code == 422
