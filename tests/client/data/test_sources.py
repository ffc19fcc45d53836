"""Records from every kind of file, from folders and through the datasets library, with what can be wrong in them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_client.data import sources
from grpo_client.data.sources import HELD_OUT_FILES, TRAINING_FILES, find_file, read_file, read_records
from grpo_client.errors import ConfigError

ROWS = [{"question": 'say "2+2",\nplease', "answer": "4"}, {"question": "ü\u2028x", "answer": "007"}]


def write_jsonl(path: Path) -> None:
    path.write_bytes(b"\n".join(json.dumps(row, ensure_ascii=False).encode() for row in ROWS))


def write_json(path: Path) -> None:
    path.write_text(json.dumps(ROWS, indent=1))


def write_csv(path: Path, delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["question", "answer"], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


WRITERS: dict[str, Callable[[Path], None]] = {
    ".jsonl": write_jsonl,
    ".JSONL": write_jsonl,
    ".json": write_json,
    ".csv": write_csv,
    ".tsv": lambda path: write_csv(path, "\t"),
    ".parquet": write_parquet,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_records(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"data{suffix}"
    WRITERS[suffix](file)
    records = read_file(file)
    assert [record.values for record in records] == ROWS
    assert [record.number for record in records] == [1, 2]
    assert records[1].where.startswith(f"{file}, row 2")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}\r\n', [(1, {"a": 1}), (4, {"a": 2})]),
        ("a.json", b'{"a": 1}\n{"a": 2}\n', [(1, {"a": 1}), (2, {"a": 2})]),
        ("a.csv", b'\xef\xbb\xbfa,b\r\n\r\n1,"x\r\ny"\r\n,\r\n2,\r\n',
         [(1, {"a": "1", "b": "x\r\ny"}), (2, {"a": "2", "b": ""})]),
        ("a.csv", b",a , b\n0,1,2\n", [(1, {"a": "1", "b": "2"})]),
        ("a.csv", b"a\n" + b"x" * 300_000, [(1, {"a": "x" * 300_000})]),
        ("a.csv", b'a\n"[1, 2]"\n"[{""x"": 1}]"\n"[{"\n',
         [(1, {"a": "[1, 2]"}), (2, {"a": '[{"x": 1}]'}), (3, {"a": "[{"})]),
        ("a.csv", b'a\n"[{""role"": ""user"", ""content"": ""q""}]"\n',
         [(1, {"a": [{"role": "user", "content": "q"}]})]),
        ("a.tsv", b"a\tb\n1,2\t3\n", [(1, {"a": "1,2", "b": "3"})]),
    ],
)  # fmt: skip
def test_marks_line_ends_empty_lines_and_quotes_are_read(
    name: str, content: bytes, expected: list[tuple[int, Any]], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    records = read_file(tmp_path / name)
    assert [(record.number, record.values) for record in records] == expected
    assert all(record.problem is None for record in records)


def test_reading_csv_leaves_the_limit_of_other_readers_alone(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    (tmp_path / "a.csv").write_bytes(b"a\n" + b"x" * 200_000)
    read_file(tmp_path / "a.csv")
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("name", "content", "problems"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": \n{"a": "\xff"}\n',
         {2: "not JSON (Expecting value, column", 3: "not UTF-8 (byte 8 of"}),
        ("a.jsonl", b'{"a": 1, "a": 2}\n', {1: "the key 'a' twice"}),
        ("a.jsonl", b'{"a": ' + b"1" * 5_000 + b"}\n", {1: "4300 digits"}),
        ("a.jsonl", b"[" * 200_000 + b'\n{"a": 1}', {1: "recursion"}),
        ("a.csv", b"a,b\n1\n1,2,3\n1,2\n", {1: "1 cells, and the header names 2", 2: "3 cells"}),
        ("a.csv", b"a,b\n1,2\n\xff,2\n", {2: "not UTF-8"}),
        ("a.csv", b'a,b\n1,2\n1,"x\ny,2\n', {2: "not CSV (unexpected end of data)"}),
        ("a.csv", b'a,b\n"x"y,2\n1,2\n', {1: "Nothing below it was read"}),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_told_beside_those_that_can(
    name: str, content: bytes, problems: dict[int, str], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    found = {record.number: record.problem or "" for record in read_file(tmp_path / name) if record.problem}
    assert found.keys() == problems.keys()
    assert all(text in found[number] for number, text in problems.items())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"\n\n", "a.jsonl holds no rows"),
        ("a.json", b"[]", "a.json holds no rows"),
        ("a.json", b'[{"a": 1},', "a.json cannot be read as a JSON array"),
        ("a.csv", b"a,b\n", "a.csv holds no rows"),
        ("a.csv", b"a,b, a\n1,2,3\n", "the column 'a' is there twice"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("a.parquet", b"PAR1 and then nothing", "a.parquet cannot be read as Parquet"),
        ("a.parquet", b"", "a.parquet"),
        ("a.xlsx", b"PK", "ends with one of .jsonl, .json, .parquet, .csv, .tsv"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_records(str(tmp_path / name), config=None, split="train", files=TRAINING_FILES)
    assert message in str(error.value)
    assert str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.csv", "cannot read"),
        ("nowhere", "there is no such file or folder"),
        ("data.jsonl/x.csv", "cannot read"),
    ],
)
def test_what_is_not_there_is_named(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("{}")
    with pytest.raises(ConfigError, match=message) as error:
        read_records(str(tmp_path / name), config=None, split="train", files=TRAINING_FILES)
    assert name in str(error.value)


def test_parquet_keeps_integers_beside_nulls_and_lists_of_messages(tmp_path: Path) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": "q"}], "answer": 7},
        {"prompt": [{"role": "user", "content": "q"}], "answer": None},
    ]
    folder = tmp_path / "level=3"  # to Parquet, the name of a partition
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    assert [record.values for record in read_file(folder / "a.parquet")] == rows


def test_parquet_with_broken_text_or_a_column_twice_is_told(tmp_path: Path) -> None:
    broken = pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"a": broken}), tmp_path / "broken.parquet")
    records = read_file(tmp_path / "broken.parquet")
    assert [record.values for record in records] == [{"a": "good"}, None]
    assert "not UTF-8" in str(records[1].problem)
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(ConfigError, match="the column 'a' is there twice"):
        read_file(tmp_path / "twice.parquet")


def test_a_folder_gives_the_file_of_its_part(tmp_path: Path) -> None:
    for name in ("train.jsonl", "test.jsonl", "valid.csv", "notes.txt"):
        (tmp_path / name).write_text("a\n1\n" if name.endswith(".csv") else json.dumps({"from": name}))
    assert find_file(tmp_path, TRAINING_FILES) == tmp_path / "train.jsonl"
    assert find_file(tmp_path, HELD_OUT_FILES) == tmp_path / "valid.csv"
    (tmp_path / "valid.csv").unlink()
    assert find_file(tmp_path, HELD_OUT_FILES) == tmp_path / "test.jsonl"
    (record,) = read_records(str(tmp_path), config=None, split="train", files=TRAINING_FILES)
    assert record.values == {"from": "train.jsonl"}
    (tmp_path / "train.parquet").touch()
    with pytest.raises(ConfigError, match=r"holds train\.jsonl and train\.parquet; name the one"):
        find_file(tmp_path, TRAINING_FILES)


def test_a_folder_without_the_file_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds no train\.jsonl .* data files found: training\.jsonl"):
        read_records(str(tmp_path), config=None, split="train", files=TRAINING_FILES)
    with pytest.raises(ConfigError, match=r"holds no valid\.jsonl or test\.jsonl"):
        read_records(str(tmp_path), config=None, split="train", files=HELD_OUT_FILES)


def test_a_hugging_face_dataset_is_read_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "someone" / "some"  # the library takes a folder for a dataset
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([{"question": "q", "answer": 7}]), folder / "train.parquet")
    (record,) = sources._read_hub("someone/some", config=None, split="train")
    assert record.values == {"question": "q", "answer": 7}
    assert record.where == "someone/some, row 1"
    with pytest.raises(ConfigError, match=r"cannot be loaded as a Hugging Face dataset .*split missing"):
        sources._read_hub("someone/some", config=None, split="missing")
