"""Rows from records: which column is the question, which the gold, and whether they can be used.

A row's gold is a string. GSM8K's `####` convention is understood: what follows the last `####` is the gold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from reward_proto import v1

from grpo_client.data.sources import Record
from grpo_client.errors import ConfigError

QUESTION_KEYS = ("prompt", "question", "problem", "input", "messages")
GOLD_KEYS = ("gold", "answer", "solution", "target", "ground_truth")

_SHOWN_KEYS = 30


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are read. None stands for the first of the usual names that a row has a value under."""

    question: str | None = None
    gold: str | None = None
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A question (or a list of chat messages) and its gold; where they were found is for reports."""

    question: str | Sequence[Mapping[str, str]]
    gold: str | list[str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    question_column: str = ""
    gold_column: str = ""


def examples_and_problems(records: Iterable[Record], columns: Columns) -> tuple[list[Example], list[str]]:
    """The rows that can be used, and what is wrong with each of the others."""
    rows, problems = [], []
    for record in records:
        if record.problem is not None:
            problems.append(f"{record.where}: {record.problem}")
            continue
        try:
            rows.append(to_example(record.values, where=record.where, number=record.number, columns=columns))
        except ConfigError as error:
            problems.append(str(error))
    return rows, problems


def to_example(record: object, *, where: str, number: int = 0, columns: Columns | None = None) -> Example:
    """A record's question, gold and metadata. Raises ConfigError with the keys found."""
    columns = columns or Columns()
    if not isinstance(record, Mapping):
        raise ConfigError(f"{where}: a JSON object is expected, not {type(record).__name__}")
    question_key = _find(record, columns.question, QUESTION_KEYS, "question", where=where)
    gold_key = _find(record, columns.gold, GOLD_KEYS, "gold", where=where)
    for name in columns.metadata:
        if name not in record:
            raise ConfigError(f"{where}: no column {name} (--metadata-column); keys found: {_listed(record)}")
    row = Example(
        question=_question(record[question_key], question_key, where=where),
        gold=_gold(record[gold_key], where=where),
        metadata={name: record[name] for name in columns.metadata},
        number=number,
        question_column=question_key,
        gold_column=gold_key,
    )
    _check_sendable(row, where=where)
    return row


def _find(record: Mapping[str, Any], named: str | None, usual: Sequence[str], what: str, *, where: str) -> str:
    """The key of the named column, or of the first usual one that has a value."""
    for key in usual if named is None else (named,):
        if not _is_blank(record.get(key)):
            return key
    if named is not None and named in record:
        raise ConfigError(f"{where}: no {what}: {named} (--{what}-column) is empty")
    wanted = " or ".join(usual) if named is None else f"--{what}-column {named}"
    raise ConfigError(f"{where}: no {what} ({wanted}); keys found: {_listed(record)}")


def _is_blank(value: object) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _listed(record: Mapping[str, Any]) -> str:
    names = [name if name.isprintable() else ascii(name) for name in record]
    return ", ".join(names[:_SHOWN_KEYS] + ["…"] * (len(names) > _SHOWN_KEYS)) or "none"


def _question(value: object, key: str, *, where: str) -> str | list[dict[str, str]]:
    if isinstance(value, str) and key != "messages":
        return value
    if not isinstance(value, list) or not all(isinstance(message, Mapping) for message in value):
        raise ConfigError(
            f"{where}: {key} holds {type(value).__name__}, not "
            + ("a list of chat messages" if key == "messages" else "text or a list of chat messages")
        )
    # Parquet and the hub give each message every key that any message has, with null where it had none.
    messages = [{name: part for name, part in message.items() if part is not None} for message in value]
    if messages[-1].get("role") == "assistant":
        raise ConfigError(
            f"{where}: {key} ends with the assistant's turn, which the policy is to write; leave it out, and put the "
            "reference answer into a gold column"
        )
    return messages


def _gold(value: object, *, where: str) -> str | list[str]:
    if isinstance(value, list):
        return [_one_gold(one, where=where) for one in value]
    if not isinstance(value, str) or "####" not in value:
        return _one_gold(value, where=where)
    gold = value.rpartition("####")[2].strip()
    if not gold:
        raise ConfigError(f"{where}: nothing follows the #### of the gold")
    return gold


def _one_gold(value: object, *, where: str) -> str:
    match value:
        case str():
            if not value.strip():
                raise ConfigError(f"{where}: one of the golds is empty")
            return value.strip()
        case bool() | float():
            raise ConfigError(
                f"{where}: the gold is a {type(value).__name__}, which has lost how it was written (1.10 is not 1.1); "
                "write it as a string"
            )
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"  # of Parquet: exact, with its zeros
    raise ConfigError(f"{where}: the gold is a {type(value).__name__}, neither a string nor a list of strings")


def _check_sendable(row: Example, *, where: str) -> None:
    """Raise ConfigError for what the contract does not take, so that it is found before training and not in a step."""
    try:
        group = v1.Group.model_validate(
            {"id": "row", "prompt": row.question, "gold": row.gold, "metadata": dict(row.metadata), "completions": []}
        )
        group.model_dump_json()
    except PydanticSerializationError:
        raise ConfigError(
            f"{where}: question, gold or metadata hold half of a character (a lone surrogate such as \\ud83d), which "
            "UTF-8 cannot; mend the text"
        ) from None
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        match fault["loc"]:
            case ("metadata", name, *_):
                reason = "metadata is text, finite numbers in 64 bits, true, false, null, lists and objects of these"
                raise ConfigError(f"{where}: {name} cannot be sent; {reason}") from None
            case ("prompt", int() as place, *path):
                inside = "".join(f" {part}" for part in path)
                raise ConfigError(
                    f"{where}: message {place + 1}{inside}: {fault['msg']}. A message has role, content and perhaps "
                    "name, each text"
                ) from None
            case (what, *_):
                raise ConfigError(f"{where}: the {what} cannot be sent: {fault['msg']}") from None
        raise
