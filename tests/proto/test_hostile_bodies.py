"""Bodies that are no JSON, or JSON that no honest client sends: a 4xx problem document that echoes nothing."""

from __future__ import annotations

import pytest

from tests.conftest import Server

SECRET = b"zq7marker"
HEAD = b'{"rewards": [{"id": "r1.int@1"}], "groups": [{"id": "q", "gold": "1", "completions": ["'
TAIL = b'"]}]}'


def with_completion(raw: bytes) -> bytes:
    return HEAD + SECRET + raw + TAIL


def with_metadata(raw: bytes) -> bytes:
    group = b'{"id": "q", "gold": "1", "completions": [], "metadata": {"zq7marker": ' + raw + b"}}"
    return b'{"rewards": [{"id": "r1.int@1"}], "groups": [' + group + b"]}"


def with_weight(raw: bytes) -> bytes:
    return b'{"rewards": [{"id": "r1.int@1", "weight": ' + raw + b'}], "groups": [], "zq7marker": 1}'


BODIES = {
    "NaN": with_metadata(b"NaN"),
    "Infinity": with_weight(b"Infinity"),
    "1e400": with_metadata(b"1e400"),
    "1e400 as weight": with_weight(b"1e400"),
    "-1e400 nested": with_metadata(b'[{"a": [-1e400]}]'),
    "a lone surrogate in a value": with_completion(rb"\ud800"),
    "a lone low surrogate": with_completion(rb"\udc00 tail"),
    "a lone surrogate in a key": with_metadata(rb'{"\ud800": 1}'),
    "bad UTF-8": with_completion(b"\xff\xfe"),
    "overlong UTF-8": with_completion(b"\xc0\xaf"),
    "a UTF-8 surrogate": with_completion(b"\xed\xa0\x80"),
    "10^6 nesting": with_metadata(b"[" * 10**6),
    "10^6 closed nesting": with_metadata(b"[" * 10**6 + b"]" * 10**6),
    "10^6 nested objects": with_metadata(b'{"a":' * 10**6),
    "a 5,000-digit number": with_metadata(b"9" * 5000),
    "a 5,000-digit weight": with_weight(b"9" * 5000),
    "a 4,000-digit number": with_metadata(b"9" * 4000),
    "a 4,000-digit weight": with_weight(b"9" * 4000),
    "a 4,000-digit float": with_metadata(b"9" * 4000 + b".5"),
    "a 30-digit number": with_metadata(b"9" * 30),
    "cut short": with_completion(b"")[:-5],
    "empty": b"",
    "a string": b'"zq7marker"',
    "a list": b'["zq7marker"]',
    "null": b"null",
    "UTF-16": '{"zq7marker": 1}'.encode("utf-16"),
    "a byte-order mark": b"\xef\xbb\xbf" + with_completion(b""),
    "a raw control character": with_completion(b"\x00"),
}


@pytest.mark.parametrize("path", ["/v1/score", "/v1/verify"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_hostile_body_gets_a_4xx_problem_that_does_not_echo_it(body: bytes, path: str, server: Server) -> None:
    response = server.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert 400 <= response.status_code < 500, response.text[:300]
    assert response.headers["content-type"] == "application/problem+json"
    assert response.content.isascii()
    assert len(response.content) < 4000
    assert {"title", "status", "detail"} <= response.json().keys()
    # The name of an unknown field is the one thing of the input that an answer may hold: it is the path to the fault.
    named = [one["path"] for one in response.json().get("errors") or [] if one["message"] == "unknown field"]
    assert SECRET not in response.content or "zq7marker" in named


def test_the_service_is_as_well_as_before(server: Server) -> None:
    assert server.score(["r1.int@1"], "7", ["<answer>7</answer>"])["totals"] == [0.5]


def test_a_null_byte_and_astral_characters_are_text_like_any_other(server: Server) -> None:
    text = "\0 𝟕 \u202e <answer>7</answer>"
    assert server.score(["r1.int@1"], "7", [text])["totals"] == [0.5]


def test_a_body_that_is_not_called_json_is_refused_with_what_to_do(server: Server) -> None:
    response = server.http.post("/v1/score", content=b"{}", headers={"Content-Type": "text/plain"})
    assert response.status_code == 415
    assert "application/json" in response.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/v1/rewards/%00", "/v1/rewards/" + "a" * 5000, "/v1/suites/%F0%9F%92%A9"]
)
def test_an_unknown_path_or_id_gets_a_problem_too(path: str, server: Server) -> None:
    response = server.http.get(path)
    assert response.status_code in (404, 422)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.content.isascii()
