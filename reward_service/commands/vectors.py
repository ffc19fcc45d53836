"""`hallmark-rewards-test`: golden vectors in, verdict out. For the rewards of a plugin, and for our own.

A vector is a JSON line: `{"completion", "gold"?, "prompt"?, "metadata"?, "token_count"?, "token_ids"?,
"finish_reason"?, "params"?, "value", "status"?}`; of a group reward `{"items": [...], "values": [...]}`. Values agree
to 1e-9.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_service.served import OWN_REWARDS
from reward_service.worker.catalogue import Catalogue, Reward
from reward_service.worker.evaluate import evaluate, evaluate_group
from reward_service.worker.loop import restore_state
from reward_service.worker.modules import load
from reward_service.worker.types import Item, Outcome

_TOLERANCE = 1e-9


def main(argv: Sequence[str] | None = None) -> None:
    """Run vectors and exit with 1 when one differs."""
    parser = argparse.ArgumentParser("hallmark-rewards-test", description=__doc__)
    parser.add_argument("id", help="the reward, such as mine.quiet@1")
    parser.add_argument("vectors", type=Path, help="a JSONL file; - for standard input")
    parser.add_argument("--outcomes", action="store_true", help="print what is paid as JSON, and judge nothing")
    parser.add_argument("--rewards-module", help="a module or .py file with rewards of your own")
    arguments = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    loaded = load([OWN_REWARDS, *([arguments.rewards_module] if arguments.rewards_module else [])])
    for module, error in loaded.failed.items():
        sys.exit(f"{module}: {error}")
    if arguments.id not in loaded.catalogue:
        sys.exit(f"no reward has the id {arguments.id}; `reward-service rewards` lists all")
    lines = read_vectors(arguments.vectors)
    if arguments.outcomes:
        outcomes = (outcomes_of(loaded.catalogue, arguments.id, line) for line in lines)
        print(json.dumps([[[one.value, one.status] for one in some] for some in outcomes]))
        return
    faults = list(check(loaded.catalogue, arguments.id, lines))
    print("\n".join([*faults, f"{arguments.id}: {len(lines)} vectors, {len(faults)} differ"]))
    sys.exit(1 if faults else 0)


def read_vectors(file: Path) -> list[dict[str, Any]]:
    """The vectors of a JSONL file, or of standard input for `-`."""
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def check(catalogue: Catalogue, reward_id: str, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each vector that a reward does not pay as written."""
    for number, line in enumerate(lines, start=1):
        name = line.get("id", f"line {number}")
        outcomes = outcomes_of(catalogue, reward_id, line)
        if "items" in line:
            wanted = list(zip(line["values"], line.get("statuses", [None] * len(outcomes)), strict=True))
        else:
            wanted = [(line["value"], line.get("status"))]
        for outcome, (value, status) in zip(outcomes, wanted, strict=True):
            if not _agrees(outcome, value, status):
                yield f"{name}: wanted {value} ({status or 'any status'}), got {outcome.value} ({outcome.status})"


def outcomes_of(catalogue: Catalogue, reward_id: str, line: Mapping[str, Any]) -> list[Outcome]:
    """What a reward pays for a vector: one outcome, or of a group one an item."""
    reward = catalogue[reward_id]
    return _group_outcomes(catalogue, reward, line) if "items" in line else [_outcome(reward, line)]


def _agrees(outcome: Outcome, value: float | None, status: str | None) -> bool:
    if status is not None and status != outcome.status:
        return False
    if value is None or outcome.value is None:
        return value is outcome.value
    return math.isclose(outcome.value, value, rel_tol=0.0, abs_tol=_TOLERANCE)


def _outcome(reward: Reward, line: Mapping[str, Any]) -> Outcome:
    restore_state()
    gold = line.get("gold")
    golds = [_expanded(gold, line)] if isinstance(gold, str) else gold
    return evaluate(reward, _item(line), golds=golds, params=line.get("params", {}))


def _group_outcomes(catalogue: Catalogue, reward: Reward, line: Mapping[str, Any]) -> list[Outcome]:
    used = {used: [_outcome(catalogue[used], item) for item in line["items"]] for used in reward.uses}
    items = [_item(item) for item in line["items"]]
    return evaluate_group(reward, items, used=used, params=line.get("params", {}))


def _expanded(text: str, line: Mapping[str, Any]) -> str:
    """A text with its tokens written out: `expand` keeps long vectors short in the file."""
    for one in line.get("expand", []):
        text = text.replace(one["token"], one["text"] * one["times"])
    return text


def _item(line: Mapping[str, Any]) -> Item:
    ids = line.get("token_ids")
    return Item(
        completion=_expanded(str(line["completion"]), line),
        prompt=tuple(line.get("prompt", ())),
        metadata=line.get("metadata", {}),
        token_count=line.get("token_count"),
        token_ids=None if ids is None else tuple(ids),
        finish_reason=line.get("finish_reason"),
    )


if __name__ == "__main__":
    main()
