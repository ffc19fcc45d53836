"""Records from where data is kept: JSONL, JSON, Parquet, CSV and TSV files, a folder of them, the Hugging Face hub.

A row that cannot be read is a record with a problem, so that every one of them can be told; what is wrong with a whole
file raises ConfigError. Values come as they are: what a question and a gold are is decided in `rows`.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo_client.errors import ConfigError

TRAINING_FILES = ("train",)  # mlx_lm's names for the files of a folder
HELD_OUT_FILES = ("valid", "test")

_LONGEST_CELL = 2**31 - 1  # csv's own limit is 128 kB; a C long has 32 bits on Windows
_NAMES = ("Sara", "Tim", "Lea", "Omar", "Nina", "Paul", "Mia", "Ben")
_THINGS = ("books", "coins", "pens", "cards", "shells", "stamps", "apples", "keys")
_NUMBERS = range(2, 21)
_HELD_OUT_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Record:
    """A row as it was found, and where. `number` counts from 1, in JSONL by lines. `problem`: why it has no values."""

    number: int
    where: str
    values: object = None
    problem: str | None = None


def read_records(name: str, *, config: str | None, split: str, files: Sequence[str]) -> list[Record]:
    """Every record of a file, of the first of `files` that a folder holds, or of a Hugging Face dataset.

    Raises ConfigError when nothing can be read, saying what was looked for and what was found.
    """
    path = Path(name)
    if path.is_dir():
        path = _needed_file(path, files)
    elif path.suffix.lower() not in _READERS and not path.is_file():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise ConfigError(f"{name}: there is no such file or folder")
        return _read_hub(name, config=config, split=split)
    return read_file(path)


def read_file(path: Path) -> list[Record]:
    """Every record of a file, by the end of its name. Raises ConfigError."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: the name of a data file ends with one of {', '.join(_READERS)}")
    records = reader(path)
    if not records:
        raise ConfigError(f"{path} holds no rows")
    return records


def find_file(folder: Path, files: Sequence[str]) -> Path | None:
    """The first of the files (names without their end) that a folder holds. Raises ConfigError when it is not one."""
    for stem in files:
        found = [path for path in _data_files(folder) if path.stem == stem]
        if len(found) > 1:
            raise ConfigError(f"{folder} holds {' and '.join(path.name for path in found)}; name the one that is meant")
        if found:
            return found[0]
    return None


def _needed_file(folder: Path, files: Sequence[str]) -> Path:
    file = find_file(folder, files)
    if file is None:
        found = ", ".join(path.name for path in _data_files(folder)) or "none"
        wanted = " or ".join(f"{stem}.jsonl" for stem in files)
        raise ConfigError(
            f"{folder} holds no {wanted} (nor one that ends with {', '.join(list(_READERS)[1:])}); data files found: "
            f"{found}. Rename one, or name the file itself"
        )
    return file


def _data_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in _READERS)
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}") from error


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{path} is UTF-16; save it as UTF-8")
    return data.removeprefix(codecs.BOM_UTF8)


# ---- JSON --------------------------------------------------------------------------------------------------


def _read_jsonl(path: Path) -> list[Record]:
    lines = _bytes(path).split(b"\n")  # bytes, and not splitlines: U+2028 is text
    return [_json_record(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _json_record(path: Path, number: int, line: bytes) -> Record:
    record = partial(Record, number, f"{path}, row {number}")
    try:
        return record(_loads(line.decode()))
    except UnicodeDecodeError as error:
        return record(problem=f"not UTF-8 (byte {error.start + 1} of the line); save the file as UTF-8")
    except json.JSONDecodeError as error:
        return record(problem=f"not JSON ({error.msg}, column {error.colno}); each line is one JSON object")
    except (ValueError, RecursionError) as error:
        return record(problem=f"cannot be used: {error}")


def _read_json(path: Path) -> list[Record]:
    """An array of objects; without the bracket, the file is taken for JSONL, as other tools do."""
    data = _bytes(path)
    if not data.lstrip().startswith(b"["):
        return _read_jsonl(path)
    try:
        items = _loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as a JSON array: {error}") from None
    return [Record(number, f"{path}, row {number}", item) for number, item in enumerate(items, start=1)]


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice!r} twice")
    return values


# ---- CSV ---------------------------------------------------------------------------------------------------


def _read_csv(path: Path, *, delimiter: str) -> list[Record]:
    # Broken bytes become lone surrogates, which UTF-8 cannot hold: each row with one is told from the others.
    text = _bytes(path).decode("utf-8", errors="surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        return list(_csv_records(path, rows))
    finally:
        csv.field_size_limit(limit)


def _csv_records(path: Path, rows: Any) -> Iterator[Record]:
    """Records below the header. After a broken quote nothing can be trusted, so that row is the last."""
    header: list[str] | None = None
    numbers = itertools.count(1)
    while True:
        first_line = rows.line_num + 1
        try:
            cells = next(rows, None)
        except csv.Error as error:
            problem = f"not CSV ({error}); a quote in a quoted text is doubled. Nothing below it was read"
            yield Record(next(numbers), f"{path}, line {first_line}", problem=problem)
            return
        if cells is None:
            return
        if not any(cells):
            continue  # an empty line, or a spreadsheet's empty row
        if header is None:
            header = _header(path, cells)
        else:
            number = next(numbers)
            yield _csv_record(number, f"{path}, row {number} (line {first_line})", header, cells)


def _header(path: Path, cells: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: the column {twice[0]!r} is there twice; rename one of them")
    return names


def _csv_record(number: int, where: str, header: Sequence[str], cells: Sequence[str]) -> Record:
    if not all(_is_unicode(cell) for cell in cells):
        return Record(number, where, problem="not UTF-8; save the file as UTF-8")
    if len(cells) != len(header):
        return Record(
            number,
            where,
            problem=f"{len(cells)} cells, and the header names {len(header)}; a text with the delimiter or a newline "
            "in it stands in quotes",
        )
    return Record(number, where, {name: _cell(cell) for name, cell in zip(header, cells, strict=True) if name})


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cell(text: str) -> object:
    """A cell's text; chat messages where it is a JSON array of objects with a role, for CSV has no lists."""
    if not text.lstrip().startswith("["):
        return text
    try:
        items = _loads(text)
    except (ValueError, RecursionError):
        return text
    return items if items and all(isinstance(item, dict) and "role" in item for item in items) else text


# ---- Parquet and the hub -----------------------------------------------------------------------------------


def _read_parquet(path: Path) -> list[Record]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f"{path}: to read Parquet: pip install pyarrow") from None
    try:
        with path.open("rb") as file:
            table = pyarrow.parquet.ParquetFile(file).read()  # read_table makes columns of folders named a=b
    except OSError as error:  # also what pyarrow raises for broken pages
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except pyarrow.ArrowException as error:
        raise ConfigError(f"{path} cannot be read as Parquet: {error}") from error
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: the column {twice[0]!r} is there twice; rename one of them")
    try:
        return [
            Record(number, f"{path}, row {number}", values) for number, values in enumerate(table.to_pylist(), start=1)
        ]
    except UnicodeDecodeError:  # somewhere: row by row is slow, and says where
        return [_parquet_record(path, table, place) for place in range(table.num_rows)]


def _parquet_record(path: Path, table: Any, place: int) -> Record:
    record = partial(Record, place + 1, f"{path}, row {place + 1}")
    try:
        return record(table.slice(place, 1).to_pylist()[0])
    except UnicodeDecodeError:
        return record(problem="holds text that is not UTF-8; write the file anew from UTF-8 text")


def _read_hub(name: str, *, config: str | None, split: str) -> list[Record]:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"{name!r} is no file here; to load it as a Hugging Face dataset: pip install datasets"
        ) from None
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"{name!r} is no file or folder here, and cannot be loaded as a Hugging Face dataset (--data-config "
            f"{config}, split {split}): {error}"
        ) from error
    records = [Record(number, f"{name}, row {number}", values) for number, values in enumerate(rows, start=1)]
    if not records:
        raise ConfigError(f"dataset {name!r} (config {config}, split {split}) holds no rows")
    return records


# ---- addition ----------------------------------------------------------------------------------------------


def addition_records(*, seed: int, held_out: bool) -> list[Record]:
    """Addition word problems over 2…20. An (unordered) pair of numbers is in training or held out, never in both."""
    rng = random.Random(f"addition {seed}")
    pairs = list(itertools.combinations_with_replacement(_NUMBERS, 2))
    rng.shuffle(pairs)
    border = round(len(pairs) * _HELD_OUT_SHARE)
    chosen = pairs[:border] if held_out else pairs[border:]
    problems = [pair for a, b in chosen for pair in dict.fromkeys([(a, b), (b, a)])]
    rng.shuffle(problems)
    return [
        Record(number, f"addition, row {number}", _word_problem(a, b, rng))
        for number, (a, b) in enumerate(problems, start=1)
    ]


def _word_problem(a: int, b: int, rng: random.Random) -> dict[str, str]:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    return {"question": f"{name} has {a} {things} and gets {b} more. How many {things}?", "gold": str(a + b)}


_READERS: dict[str, Callable[[Path], list[Record]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".csv": partial(_read_csv, delimiter=","),
    ".tsv": partial(_read_csv, delimiter="\t"),
}
