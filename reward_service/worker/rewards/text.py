"""Hallmark's rewards for answers that are text: the same string, or JSON that follows a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry

from reward_service.worker.catalogue import Lock, reward
from reward_service.worker.rewards.blocks import found_v1, last_block_v1
from reward_service.worker.types import NO_ANSWER, BadGold, Found, Item, Outcome

_DEEPEST = 32
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
# Refused in a schema: a pattern can take exponential time on the policy's text, uniqueItems quadratic time, a format
# is checked or not depending on what is installed, and a dynamic or foreign reference leads out of the schema.
_REFUSED = frozenset({"pattern", "patternProperties", "format", "uniqueItems", "$dynamicRef", "$recursiveRef"})
_MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples", "required", "type", "dependentRequired"})


@reward("text.exact", version=1, range=(0.0, 1.0), needs=("gold",), source="Hallmark")
def exact_v1(item: Item, *, ignore_case: bool = False, ignore_space: bool = False) -> Outcome:
    """1.0 when the last complete answer block, else the whole text, stripped, is the gold; else 0.0.

    `ignore_space` takes every run of white space for one space.
    """
    gold, found = (item.gold or "").strip(), _answer_v1(item.completion)
    if not gold:
        raise BadGold
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    pair = [gold, found.answer]
    if ignore_space:
        pair = [" ".join(text.split()) for text in pair]
    if ignore_case:
        pair = [text.casefold() for text in pair]
    return Outcome(1.0 if pair[0] == pair[1] else 0.0, found=found)


def _answer_v1(text: str) -> Found | None:
    return last_block_v1(text, tag="answer") or found_v1(text, start=0, end=len(text), by="whole_text")


JSON_SCHEMA_4_26 = Lock(
    "jsonschema-4.26.0", {"jsonschema": "4.26.0", "jsonschema-specifications": "2025.9.1", "referencing": "0.37.0"}
)


@reward(
    "text.json_schema",
    version=1,
    range=(0.0, 1.0),
    needs=("metadata",),
    source="Hallmark; jsonschema 2020-12",
    lock=JSON_SCHEMA_4_26,
)
def json_schema_v1(item: Item, *, max_characters: int = 65536) -> Outcome:
    """1.0 when the answer is JSON that follows the schema in `metadata["json_schema"]`, else 0.0.

    The answer is the last complete answer block, else the whole text, without a Markdown fence around it. Too long,
    over 32 levels deep, a name twice in an object, NaN: not JSON. A schema with `pattern`, `format`, `uniqueItems` or
    a reference out of itself is refused as a bad gold.
    """
    validator = _validator_v1(item.metadata.get("json_schema"))
    found = _answer_v1(item.completion)
    if found is None:
        return Outcome(0.0, NO_ANSWER)
    text = _without_fence_v1(found.answer)
    if len(text) > max_characters or _depth_v1(text) > _DEEPEST:
        return Outcome(0.0, found=found)
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_object_v1)
    except ValueError:  # JSONDecodeError, a name twice, NaN, and an integer over Python's limit of digits
        return Outcome(0.0, found=found)
    return Outcome(1.0 if validator.is_valid(value) else 0.0, found=found)


def _validator_v1(schema: Any) -> Draft202012Validator:
    if not isinstance(schema, Mapping) or any(_refused_v1(schema)):
        raise BadGold
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise BadGold from error
    return Draft202012Validator(dict(schema), registry=Registry())


def _refused_v1(schema: Any) -> Iterator[str]:
    """The keywords of a schema, at any depth, that are refused."""
    if isinstance(schema, list):
        for part in schema:
            yield from _refused_v1(part)
    elif isinstance(schema, Mapping):
        for keyword, value in schema.items():
            if keyword in _REFUSED or (keyword == "$ref" and not str(value).startswith("#")):
                yield keyword
            elif keyword in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
                yield from _refused_v1(list(value.values()))
            elif keyword not in _NOT_SCHEMAS:
                yield from _refused_v1(value)


def _without_fence_v1(text: str) -> str:
    lines = text.split("\n")
    fenced = len(lines) > 2 and lines[0].strip().lower() in ("```", "```json") and lines[-1].strip() == "```"
    return "\n".join(lines[1:-1]) if fenced else text


def _depth_v1(text: str) -> int:
    """How deep the brackets outside strings are nested."""
    depth = deepest = 0
    for mark in _BRACKET.finditer(text):
        if mark.group() in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark.group() in ("]", "}"):
            depth -= 1
    return deepest


def _object_v1(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name twice")
    return names


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
