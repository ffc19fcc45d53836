"""Suite files: what is refused and how it is said, and releases that hold."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from reward_service.cli import main
from reward_service.suites import BUILT_IN, SuiteError, Suites, read_released_suites, released_file

MINE = """
suites:
  mine@1:  # a comment
    doc: The first.
    rewards:
      - {id: r1.int@1, weight: 2}
      - {id: r1.count_xml@1, name: tags, weight: 0.5}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """The exit code and what was printed."""
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return file


def suite(body: str) -> str:
    return f"suites:\n  mine@1:\n    doc: A.\n    rewards:\n{body}"


# ---- check -------------------------------------------------------------------------------------------------


def test_a_file_in_order_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "suites", "check", written(tmp_path, MINE))
    assert (code, "mine@1 (draft)" in said) == (0, True)


def test_without_a_file_the_built_in_and_the_configured_one_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_SUITES", str(written(tmp_path, MINE)))
    code, said = run(capsys, "suites", "check")
    assert code == 0
    assert "r1@1 (released), simple_grpo@1 (released)" in said
    assert "mine@1 (draft)" in said


@pytest.mark.parametrize(
    ("text", "suite_id", "what"),
    [
        (suite("      - {id: r1.nothing@1}"), "mine@1", "names r1.nothing@1, which no reward has"),
        (suite("      - {id: r1.int}"), "mine@1", "names r1.int, which no reward has"),
        (suite("      - {id: r1.int@1, params: {x: 1}}"), "mine@1", "unknown parameter; parameters of r1.int@1: none"),
        (suite("      - {id: math.numeric@1, params: {rel_tol: a}}"), "mine@1", "rel_tol must be number"),
        (suite("      - {id: math.numeric@1, params: {rel_tol: .nan}}"), "mine@1", "finite"),
        (suite("      - {id: math.numeric@1, params: {rel_tol: 2026-01-01}}"), "mine@1", "params"),
        (suite("      - {id: r1.int@1, weight: .inf}"), "mine@1", "finite"),
        (suite("      - {id: r1.int@1, weight: .nan}"), "mine@1", "finite"),
        (suite("      - {id: r1.int@1, weight: 1" + "0" * 400 + "}"), "mine@1", "weight"),
        (suite("      - {id: r1.int@1, weight: much}"), "mine@1", "rewards.0.weight"),
        (suite("      - {id: r1.int@1, wieght: 1}"), "mine@1", "rewards.0.wieght"),
        (suite("      - {id: r1.int@1}\n      - {id: r1.int@1}"), "mine@1", "two rewards share a name"),
        (suite("      - {id: r1.int@1, name: x}\n      - {id: r1.int@1, name: x}"), "mine@1", "two rewards share"),
        (suite("      []"), "mine@1", "at least 1 item"),
        ("suites:\n  mine:\n    doc: A.\n    rewards: [{id: r1.int@1}]", "mine", "pattern"),
        ("suites:\n  Mine@01:\n    doc: A.\n    rewards: [{id: r1.int@1}]", "Mine@01", "pattern"),
        ("suites:\n  r1@1:\n    doc: A.\n    rewards: [{id: r1.int@1}]", "r1@1", "exists already"),
        (MINE + MINE.removeprefix("\nsuites:\n"), "mine@1", "stands here twice"),
        ("suites: {}\nsweets: {}", "sweets", "Extra inputs"),
        ("", "the file", "valid dictionary"),
        ("suites: [", "line 1", "expected"),
        ("suites: !!python/object/apply:os.system [id]", "line 1", "could not determine a constructor"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_suite(
    text: str, suite_id: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, text)
    code, said = run(capsys, "suites", "check", file)
    assert code == 1
    assert str(file) in said
    assert suite_id in said
    assert what in said
    assert "Traceback" not in said


def test_every_wrong_file_and_suite_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "suites:\n" + "".join(f"  m@{n}: {{doc: A., rewards: [{{id: no.such@{n}}}]}}\n" for n in (1, 2))
    good = tmp_path / "good.yaml"
    good.write_text(MINE)
    code, said = run(capsys, "suites", "check", good, written(tmp_path, bad), tmp_path / "none.yaml")
    assert code == 1
    assert all(one in said for one in ("no.such@1", "no.such@2", "good.yaml: in order", "none.yaml"))


# ---- releases ----------------------------------------------------------------------------------------------


def test_every_built_in_suite_is_released_and_as_it_was_released() -> None:
    recorded = read_released_suites(BUILT_IN)
    assert recorded.keys() >= {"r1@1", "simple_grpo@1"}
    served = {one.id: one.digest for one in Suites(BUILT_IN)}
    assert {suite_id: served.get(suite_id) for suite_id in recorded} == recorded, (
        "a released suite never changes: leave it as it was and add a version"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("weight: 0.2", "weight: 0.25"),
        ("r1.int@1", "r1.int@2"),
        ("{id: r1.int@1", "{id: r1.int@1, name: whole"),
        ("{id: simple_grpo.format@1", "{id: simple_grpo.format@1, params: {a: 1}"),
        ("      - {id: r1.soft_format@1, weight: 0.2}\n", ""),
    ],
)
def test_a_built_in_suite_that_changes_is_refused_by_name(old: str, new: str, tmp_path: Path) -> None:
    file = tmp_path / "suites.yaml"
    shutil.copy(released_file(BUILT_IN), released_file(file))
    text = BUILT_IN.read_text()
    file.write_text(text)
    assert Suites(file).get("r1@1") is not None
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(SuiteError, match=r"suites.yaml: (r1|simple_grpo)@1: is released, but"):
        Suites(file)


def test_a_doc_a_comment_and_the_formatting_move_no_digest(tmp_path: Path) -> None:
    before = Suites(written(tmp_path, MINE)).get("mine@1")
    text = MINE.replace("The first.", "Number one.").replace("  # a comment", "")
    after = Suites(written(tmp_path, text.replace("weight: 2}", "name: r1.int@1, params: {}, weight: 2.0}"))).get(
        "mine@1"
    )
    assert before is not None
    assert after is not None
    assert (before.digest, before.doc) != (after.digest, after.doc)
    assert before.digest == after.digest


def test_a_released_suite_of_the_user_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, MINE)
    code, said = run(capsys, "suites", "release", "mine@1", "--file", file)
    assert code == 0
    record = json.loads((tmp_path / "mine.yaml.released.json").read_text())
    assert record["mine@1"]["digest"] in said
    assert run(capsys, "suites", "check", file) == (0, f"{file}: in order: mine@1 (released)\n")
    assert run(capsys, "suites", "release", "mine@1", "--file", file)[0] == 2

    file.write_text(
        MINE + MINE.removeprefix("\nsuites:\n").replace("mine@1", "mine@2").replace("weight: 2", "weight: 3")
    )
    assert [one.status for one in Suites(file)] == ["released", "draft"]
    file.write_text(MINE.replace("weight: 2", "weight: 3"))
    code, said = run(capsys, "suites", "check", file)
    assert code == 1
    assert re.search(r"mine.yaml: mine@1: is released, but .* add a version", said)


@pytest.mark.parametrize(
    ("suite_id", "text", "what"),
    [
        ("mine@2", MINE, "no suite has the id mine@2"),
        ("mine@1", suite("      - {id: text.no_such@1}"), "which no reward has"),
        ("r1@1", MINE, "released already"),
    ],
)
def test_what_cannot_be_released_is_said(
    suite_id: str, text: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, "suites", "release", suite_id, "--file", written(tmp_path, text))
    assert (code, what in said) == (2, True)
    assert not released_file(tmp_path / "mine.yaml").exists()


def test_a_suite_of_drafts_cannot_be_released(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "plugin_of_drafts.py"
    plugin.write_text(
        "from reward_service.worker.catalogue import Catalogue, reward\n"
        "from reward_service.worker.types import Item\n\n"
        '@reward("drafty.one", version=1, range=(0.0, 1.0))\n'
        'def one(item: Item) -> float:\n    """1."""\n    return 1.0\n\n'
        "CATALOGUE = Catalogue([one])\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWARD_REWARDS_MODULE", str(plugin))
        file = written(tmp_path, suite("      - {id: drafty.one@1}"))
        assert run(capsys, "suites", "check", file)[0] == 0
        code, said = run(capsys, "suites", "release", "mine@1", "--file", file)
    assert (code, "drafty.one@1" in said) == (2, True)


@pytest.mark.parametrize("record", ["", "[]", '{"mine@1": {}}', '{"mine@1": 3}', '{"mine@1"'])
def test_a_broken_record_of_releases_is_refused_and_named(record: str, tmp_path: Path) -> None:
    file = written(tmp_path, MINE)
    released_file(file).write_text(record)
    with pytest.raises(SuiteError, match=r"mine\.yaml\.released\.json"):
        Suites(file)


def test_the_service_refuses_to_start_with_a_changed_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, MINE)
    released_file(file).write_text(json.dumps({"mine@1": {"digest": "sha256:0", "released": "2026-11-30"}}))
    monkeypatch.setenv("REWARD_SUITES", str(file))
    monkeypatch.delitem(__import__("sys").modules, "reward_service.app", raising=False)
    code, said = run(capsys, "serve", "--port", "0")
    assert code == 2
    assert "mine@1: is released, but" in said
