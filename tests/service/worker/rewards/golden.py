"""Golden vectors: what each served reward pays for completions that stay what they are. One JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reward_service.worker.types import Item

FOLDER = Path(__file__).parents[3] / "golden"


def lines_of(reward_id: str) -> list[dict[str, Any]]:
    """The vectors of a reward."""
    with (FOLDER / f"{reward_id}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def item_of(line: Mapping[str, Any]) -> Item:
    """The item of a vector, its `expand` carried out: each token replaced by a text repeated."""
    completion, gold = line["completion"], line.get("gold")
    for expand in line.get("expand", ()):
        completion = completion.replace(expand["token"], expand["text"] * expand["times"])
        gold = gold and gold.replace(expand["token"], expand["text"] * expand["times"])
    ids = line.get("token_ids")
    return Item(
        completion,
        gold=gold,
        prompt=tuple(line.get("prompt", ())),
        metadata=line.get("metadata", {}),
        token_count=line.get("token_count"),
        token_ids=None if ids is None else tuple(ids),
        finish_reason=line.get("finish_reason"),
    )
