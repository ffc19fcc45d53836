"""Aliases: moved by one of many at a time, kept, recorded, and never felt by a run that was pinned before."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from reward_proto import v1

from grpo_client.errors import ConfigError
from grpo_client.rewards.client import RewardClient
from reward_service.aliases import ALIAS_ID, AliasConflictError, AliasStore, StoreError
from tests.conftest import ROOT, Server
from tests.proto.test_hostile_bodies import BODIES
from tests.service.test_suites import run

TOKEN = "correct-horse"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
NEW = ADMIN | {"If-None-Match": "*"}
TWO_VERSIONS = """
suites:
  mine@1: {doc: Reads across no lines., rewards: [{id: r1.accuracy@1}]}
  mine@2: {doc: Compares as mathematics., rewards: [{id: r1.accuracy@2}]}
  other@1: {doc: Another., rewards: [{id: r1.int@1}]}
"""
# "+7" is 7 to r1.accuracy@2 and another string to r1.accuracy@1.
GROUP = {"id": "g", "gold": "7", "completions": ["<answer>+7</answer>"]}
PATH = "/v1/aliases/mine/stable"

Start = Callable[[], Server]


@pytest.fixture
def start(start_server: Callable[..., Server], tmp_path: Path) -> Start:
    """Start a service with two versions of a suite and one store; the next one shares both files."""
    file = tmp_path / "suites.yaml"
    file.write_text(TWO_VERSIONS)
    settings = {"suites": file, "store": tmp_path / "aliases.db", "admin_token": TOKEN}
    return lambda: start_server(**settings, workers=1, allow_drafts=True)  # r1.accuracy@2 may be one


def body(target: str, author: str = "ada") -> dict[str, str]:
    return {"target": target, "author": author}


def at(etag: str) -> dict[str, str]:
    return ADMIN | {"If-Match": etag}


# ---- moving ------------------------------------------------------------------------------------------------


def test_an_alias_is_made_moved_listed_and_its_moves_are_recorded_and_logged(start: Start) -> None:
    server = start()
    assert server.http.get("/v1/aliases").json() == {"aliases": []}
    made = server.http.put(PATH, json=body("mine@1"), headers=NEW)
    assert made.status_code == 201
    assert made.headers["etag"] == made.json()["etag"]
    moved = server.http.put(PATH, json=body("mine@2", 'eve "é\n'), headers=at(made.headers["etag"]))
    assert moved.status_code == 200
    assert moved.json()["etag"] != made.json()["etag"]
    expected = {"alias": "mine@stable", "target": "mine@2", "previous": "mine@1", "author": 'eve "é\n'}
    assert {key: moved.json()[key] for key in expected} == expected

    shown = server.http.get(PATH)
    assert shown.headers["etag"] == moved.headers["etag"]
    assert [(one["previous"], one["target"], one["author"]) for one in shown.json()["moves"]] == [
        ("mine@1", "mine@2", 'eve "é\n'),
        (None, "mine@1", "ada"),
    ]
    assert server.http.get("/v1/aliases").json() == {"aliases": [moved.json()]}
    logged = [line for line in server.log.read_text().splitlines() if "alias_moved" in line]
    assert [json.loads(line.partition("alias_moved ")[2]) for line in logged] == [
        {
            "alias": "mine@stable",
            "from": one["previous"],
            "to": one["target"],
            "author": one["author"],
            "at": one["moved_at"],
        }
        for one in (made.json(), moved.json())
    ]


def test_the_example_of_the_contract_is_answered_as_it_says(start: Start) -> None:
    server = start()
    examples = ROOT / "proto" / "v1" / "examples"
    request = examples / "alias-move.request.json"
    headers = NEW | {"Content-Type": "application/json"}
    answer = server.http.put("/v1/aliases/r1/stable", content=request.read_bytes(), headers=headers)
    assert answer.status_code == 201, answer.text
    wanted = json.loads((examples / "alias-move.response.json").read_text())
    assert answer.json() | {"moved_at": None} == wanted | {"moved_at": None}
    assert len(answer.json()["moved_at"]) == len(wanted["moved_at"])


def test_of_many_movers_who_saw_the_same_state_exactly_one_wins(start: Start) -> None:
    servers = [start(), start()]
    etag = servers[0].http.put(PATH, json=body("mine@1"), headers=NEW).headers["etag"]
    movers = 24
    gate = threading.Barrier(movers)

    def move(n: int) -> int:
        with httpx.Client(base_url=servers[n % 2].url, timeout=60) as http:
            gate.wait()
            return http.put(PATH, json=body(f"mine@{1 + n % 2}", f"mover {n}"), headers=at(etag)).status_code

    with ThreadPoolExecutor(movers) as pool:
        codes = list(pool.map(move, range(movers)))
    assert sorted(codes) == [200] + [412] * (movers - 1)
    moves = servers[1].http.get(PATH).json()["moves"]
    assert [one["author"] for one in moves] == [f"mover {codes.index(200)}", "ada"]


def test_of_many_who_make_one_alias_exactly_one_does(tmp_path: Path) -> None:
    path, makers = tmp_path / "aliases.db", 16
    gate = threading.Barrier(makers)

    def make(n: int) -> bool:
        gate.wait()
        store = AliasStore(path)  # the file, too, is made by one of them
        try:
            store.move("m@new", target="m@1", author=str(n), condition=lambda current: current is None)
        except AliasConflictError:
            return False
        return True

    with ThreadPoolExecutor(makers) as pool:
        assert sum(pool.map(make, range(makers))) == 1
    history = AliasStore(path).history("m@new")
    assert history is not None
    assert len(history.moves) == 1


def test_between_the_look_and_the_move_of_one_nobody_else_moves(tmp_path: Path) -> None:
    path = tmp_path / "aliases.db"
    seen = AliasStore(path).move("m@a", target="m@1", author="0", condition=lambda current: True)
    looking = threading.Event()

    def is_there(current: v1.AliasInfo | None) -> bool:
        looking.set()
        time.sleep(0.3)  # time for another to move, if it could
        return current == seen

    def move(target: str) -> str:
        try:
            AliasStore(path).move("m@a", target=target, author=target, condition=is_there)
        except AliasConflictError as error:
            return error.current.target if error.current else "nowhere"
        return "moved"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(move, "m@2")
        assert looking.wait(10)
        second = pool.submit(move, "m@3")
        assert (first.result(10), second.result(10)) == ("moved", "m@2")


def test_writers_that_look_and_move_lose_nothing(tmp_path: Path) -> None:
    store = AliasStore(tmp_path / "aliases.db")
    store.move("m@a", target="m@1", author="0", condition=lambda current: True)

    def climb(_: int) -> None:
        while True:
            seen = store.get("m@a")
            assert seen is not None
            target = f"m@{int(seen.target.partition('@')[2]) + 1}"
            try:
                store.move("m@a", target=target, author="x", condition=lambda now, seen=seen: now == seen)  # type: ignore[misc]
            except AliasConflictError:
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(climb, range(40)))
    last = store.get("m@a")
    assert last is not None
    assert last.target == "m@41"


def test_a_condition_that_does_not_hold_is_412_and_changes_nothing(start: Start) -> None:
    server = start()
    for headers in (at('"1"'), at("*")):
        answer = server.http.put(PATH, json=body("mine@1"), headers=headers)
        assert (answer.status_code, "If-None-Match" in answer.json()["detail"]) == (412, True)
    etag = server.http.put(PATH, json=body("mine@1"), headers=NEW).headers["etag"]
    for headers in (NEW, at('"999"'), at(f"W/{etag}"), at('""')):
        answer = server.http.put(PATH, json=body("mine@2"), headers=headers)
        assert answer.status_code == 412
        assert answer.headers["etag"] == etag
        assert f"mine@1 with ETag {etag}" in answer.json()["detail"]
    assert server.http.get(PATH).json()["target"] == "mine@1"
    assert server.http.put(PATH, json=body("mine@2"), headers=at(f'"999", {etag}')).status_code == 200
    assert server.http.put(PATH, json=body("mine@1"), headers=at("*")).status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 428),
        ({"If-Match": "1"}, 400),
        ({"If-Match": '"1'}, 400),
        ({"If-Match": '"1" "2"'}, 400),
        ({"If-Match": '"' + "," * 5000}, 400),
        ({"If-Match": ""}, 400),
        ({"If-None-Match": '"1"'}, 400),
        ({"If-Match": "*", "If-None-Match": "*"}, 400),
    ],
)
def test_a_move_without_a_condition_is_428_and_an_unreadable_one_400(
    headers: dict[str, str], code: int, aliased: Server
) -> None:
    answer = aliased.http.put("/v1/aliases/mine/unmoved", json=body("mine@1"), headers=ADMIN | headers)
    assert (answer.status_code, "If-Match" in answer.json()["detail"]) == (code, True)
    assert aliased.http.get("/v1/aliases/mine/unmoved").status_code == 404


@pytest.fixture(scope="module")
def aliased(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One service with a store for the tests that move nothing."""
    folder = tmp_path_factory.mktemp("aliases")
    (folder / "suites.yaml").write_text(TWO_VERSIONS)
    running = Server(
        folder / "log", suites=folder / "suites.yaml", store=folder / "aliases.db", admin_token=TOKEN, workers=1
    )
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("target", ["mine@3", "mine", "mine@stable", "other@1", "r1@1", "", "x" * 10**6, "mine@1\n"])
def test_a_target_that_is_no_version_of_the_suite_is_422_and_not_echoed(target: str, aliased: Server) -> None:
    answer = aliased.http.put("/v1/aliases/mine/unmoved", json=body(target), headers=NEW)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "target"
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    "content",
    [
        {"target": "mine@1"},
        body("mine@1", ""),
        body("mine@1", "x" * 201),
        body("mine@1") | {"force": True},
        {"author": 1},
    ],
)
def test_a_body_that_does_not_fit_is_422(content: object, aliased: Server) -> None:
    assert aliased.http.put("/v1/aliases/mine/unmoved", json=content, headers=NEW).status_code == 422


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES.keys())
def test_a_hostile_body_is_a_4xx_problem(raw: bytes, aliased: Server) -> None:
    headers = NEW | {"Content-Type": "application/json"}
    answer = aliased.http.put("/v1/aliases/mine/unmoved", content=raw, headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.content) < 4000


@pytest.mark.parametrize(
    "path", ["mine/3", "mine/2026", "mine/Stable", "mine/-x", "mine/x_y", "mine/%00", "Mine/stable", "mine/" + "a" * 65]
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_bad_name_is_422(path: str, method: str, aliased: Server) -> None:
    answer = aliased.http.request(method, f"/v1/aliases/{path}", json=body("mine@1"), headers=NEW)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] in {"name", "alias"}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("m@stable", 1), ("m@2b", 1), ("m@2026-q4", 1), ("m@2", 0), ("m@", 0), ("@a", 0), ("m@a@b", 0), ("m@a\n", 0)],
)
def test_an_alias_is_never_all_digits(text: str, is_one: bool) -> None:
    assert bool(ALIAS_ID.fullmatch(text)) == is_one


# ---- who may -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (None, 401),
        ("Basic Y29ycmVjdC1ob3JzZQ==", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN}x", 403),
        ("Bearer \xe9", 403),
        (f"Bearer {TOKEN[:-1]}", 403),
    ],
)
def test_only_the_token_moves_an_alias(sent: str | None, code: int, aliased: Server) -> None:
    headers = {"If-None-Match": "*"} | ({} if sent is None else {"Authorization": sent})
    raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    answer = aliased.http.put("/v1/aliases/mine/unmoved", json=body("mine@1"), headers=raw)
    assert answer.status_code == code
    assert ("www-authenticate" in answer.headers) == (code == 401)
    assert TOKEN not in answer.text
    assert aliased.http.get("/v1/aliases").json() == {"aliases": []}


def test_without_a_store_aliases_are_404_naming_the_setting(server: Server) -> None:
    for answer in (
        server.http.get("/v1/aliases"),
        server.http.get("/v1/aliases/r1/stable"),
        server.http.put("/v1/aliases/r1/stable", json=body("r1@1"), headers=NEW),
        server.http.get("/v1/suites/r1@stable"),
        server.http.post("/v1/score", json={"suite": "r1@stable", "groups": []}),
    ):
        assert (answer.status_code, "REWARD_STORE" in answer.json()["detail"]) == (404, True)


def test_without_a_token_nobody_moves_and_everybody_reads(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server(store=tmp_path / "aliases.db", admin_token="", workers=1)
    assert server.http.get("/v1/aliases").status_code == 200
    for headers in ({}, {"Authorization": "Bearer x"}, ADMIN):
        answer = server.http.put("/v1/aliases/r1/stable", json=body("r1@1"), headers=headers)
        assert (answer.status_code, "REWARD_ADMIN_TOKEN" in answer.json()["detail"]) == (403, True)


# ---- what an alias stands for ------------------------------------------------------------------------------


def test_an_alias_stands_wherever_a_suite_is_named_and_answers_say_the_version(start: Start) -> None:
    first, second = start(), start()
    etag = first.http.put(PATH, json=body("mine@1"), headers=NEW).headers["etag"]
    for target, total in (("mine@1", 0.0), ("mine@2", 2.0)):
        if target == "mine@2":
            assert first.http.put(PATH, json=body(target), headers=at(etag)).status_code == 200
        for server in (first, second):  # a move holds at once, on every replica
            answer = server.http.post("/v1/score", json={"suite": "mine@stable", "groups": [GROUP]}).json()
            assert (answer["suite"], answer["groups"][0]["totals"]) == (target, [total])
            assert server.http.get("/v1/suites/mine@stable").json() == server.http.get(f"/v1/suites/{target}").json()
            assert server.http.get("/v1/suites/mine@stable").json()["id"] == target


def test_an_unknown_alias_is_404_with_those_that_there_are(start: Start) -> None:
    server = start()
    server.http.put(PATH, json=body("mine@1"), headers=NEW)
    answer = server.http.get("/v1/suites/mine@stabel")
    assert answer.status_code == 404
    assert answer.json()["nearest"] == ["mine@1", "mine@2", "mine@stable"]


def test_aliases_survive_a_restart(start: Start) -> None:
    server = start()
    before = server.http.put(PATH, json=body("mine@2"), headers=NEW).json()
    server.stop()
    server = start()
    assert server.http.get("/v1/aliases").json() == {"aliases": [before]}
    assert server.http.get("/v1/suites/mine@stable").json()["id"] == "mine@2"
    assert server.http.put(PATH, json=body("mine@1"), headers=at(before["etag"])).status_code == 200


def test_an_alias_whose_target_vanished_says_so(start: Start, tmp_path: Path) -> None:
    server = start()
    server.http.put(PATH, json=body("mine@2"), headers=NEW)
    server.stop()
    (tmp_path / "suites.yaml").write_text("suites:\n  mine@1: {doc: One., rewards: [{id: r1.accuracy@1}]}\n")
    server = start()
    for answer in (
        server.http.get("/v1/suites/mine@stable"),
        server.http.post("/v1/score", json={"suite": "mine@stable", "groups": [GROUP]}),
    ):
        assert answer.status_code == 404
        assert "points at mine@2, which is not served here" in answer.json()["detail"]
        assert answer.json()["nearest"] == ["mine@1"]
    assert server.http.get(PATH).json()["target"] == "mine@2"
    assert server.http.put(PATH, json=body("mine@1"), headers=at("*")).status_code == 200
    assert server.http.get("/v1/suites/mine@stable").status_code == 200


def test_a_store_that_breaks_is_503_and_suites_by_version_go_on(start: Start, tmp_path: Path) -> None:
    server = start()
    server.http.put(PATH, json=body("mine@1"), headers=NEW)
    (tmp_path / "aliases.db").write_bytes(b"no database" * 1000)
    for answer in (
        server.http.get("/v1/suites/mine@stable"),
        server.http.get("/v1/aliases"),
        server.http.put(PATH, json=body("mine@2"), headers=at("*")),
    ):
        assert (answer.status_code, "REWARD_STORE" in answer.json()["detail"]) == (503, True)
        assert "retry-after" in answer.headers
    (tmp_path / "aliases.db").unlink()  # it is not made anew in silence
    assert server.http.get("/v1/aliases").status_code == 503
    assert server.http.get("/v1/suites/mine@1").status_code == 200
    assert "alias store" in server.log.read_text()


def test_a_locked_store_is_waited_for(tmp_path: Path) -> None:
    store = AliasStore(tmp_path / "aliases.db")
    store.move("m@a", target="m@1", author="x", condition=lambda current: True)
    other = sqlite3.connect(tmp_path / "aliases.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.3, other.rollback).start()
    assert store.get("m@a") is not None
    other.close()


@pytest.mark.parametrize("path", ["nowhere/aliases.db", "."])
def test_a_store_that_cannot_be_made_names_file_and_setting(path: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="REWARD_STORE"):
        AliasStore(tmp_path / path)


def test_a_path_with_odd_characters_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=ro#é%20.db"
    AliasStore(path).move("m@a", target="m@1", author="x", condition=lambda current: True)
    assert path.exists()


# ---- runs --------------------------------------------------------------------------------------------------


def test_a_move_changes_no_run_that_was_pinned_before_and_the_next_run(start: Start) -> None:
    server = start()
    etag = server.http.put(PATH, json=body("mine@1"), headers=NEW).headers["etag"]
    group = v1.Group.model_validate(GROUP)
    moved, scored = threading.Event(), threading.Barrier(3)

    def train(suite: str) -> tuple[str | None, list[float | None], list[float | None]]:
        """Resolve once, score 30 steps before and 30 after the move. Returns the suite, and the totals seen."""
        with RewardClient(server.url) as client:
            manifest = client.resolve(suite=suite, rewards=[])
            before = [client.score(manifest, [group])[0].totals[0] for _ in range(30)]
            scored.wait(60)
            assert moved.wait(60)
            after = [client.score(manifest, [group])[0].totals[0] for _ in range(30)]
            return manifest.suite, before, after

    with ThreadPoolExecutor(2) as pool:
        by_alias, by_version = pool.submit(train, "mine@stable"), pool.submit(train, "mine@2")
        scored.wait(60)
        assert server.http.put(PATH, json=body("mine@2"), headers=at(etag)).status_code == 200
        moved.set()
        # Two versions of one reward, side by side, to two clients at once; neither feels the move.
        assert by_alias.result(60) == ("mine@1", [0.0] * 30, [0.0] * 30)
        assert by_version.result(60) == ("mine@2", [2.0] * 30, [2.0] * 30)

    with RewardClient(server.url) as client:
        next_run = client.resolve(suite="mine@stable", rewards=[])
        assert next_run.suite == "mine@2"
        assert [spec.id for spec in next_run.rewards] == ["r1.accuracy@2"]
        assert client.score(next_run, [group])[0].totals == [2.0]


def test_a_client_that_names_an_unknown_alias_hears_what_there_is(start: Start) -> None:
    server = start()
    with RewardClient(server.url) as client, pytest.raises(ConfigError, match="mine@1"):
        client.resolve(suite="mine@candidate", rewards=[])


# ---- the command line --------------------------------------------------------------------------------------


def test_the_command_line_moves_shows_and_lists_in_the_store_itself(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()
    monkeypatch.setenv("REWARD_STORE", str(tmp_path / "aliases.db"))
    monkeypatch.setenv("REWARD_SUITES", str(tmp_path / "suites.yaml"))
    move = ["aliases", "move", "mine@stable"]
    assert run(capsys, *move, "mine@1", "--author", "ops") == (0, 'mine@stable: (new) -> mine@1, ETag "1"\n')
    assert server.http.get("/v1/suites/mine@stable").json()["id"] == "mine@1"
    assert run(capsys, *move, "mine@2", "--author", "ops", "--if-match", '"1"')[0] == 0
    assert run(capsys, *move, "mine@1", "--author", "ops", "--if-match", '"1"') == (
        2,
        'mine@stable has moved: it points at mine@2, ETag "2"; nothing was changed\n',
    )
    code, shown = run(capsys, "aliases", "show", "mine@stable")
    assert (code, 'points at mine@2, ETag "2"' in shown, "mine@1 -> mine@2  by ops" in shown) == (0, True, True)
    code, listed = run(capsys, "aliases", "list")
    assert (code, "mine@stable" in listed, "mine@2" in listed) == (0, True, True)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["move", "mine@3", "mine@1", "--author", "x"], "not digits alone"),
        (["move", "mine@a", "mine@9", "--author", "x"], "there are: mine@1, mine@2"),
        (["move", "mine@a", "other@1", "--author", "x"], "a version of mine"),
        (["move", "mine@a", "mine@1", "--author", ""], "at least 1 character"),
        (["show", "mine@a"], "there is no alias mine@a"),
    ],
)
def test_the_command_line_says_what_it_cannot_do(
    arguments: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suites.yaml").write_text(TWO_VERSIONS)
    monkeypatch.setenv("REWARD_SUITES", str(tmp_path / "suites.yaml"))
    code, said = run(capsys, "aliases", *arguments, "--store", tmp_path / "aliases.db")
    assert (code, what in said) == (2, True), said
    assert run(capsys, "aliases", "list") == (2, "name the file of the aliases: set REWARD_STORE, or give --store\n")
