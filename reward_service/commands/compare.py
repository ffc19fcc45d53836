"""`reward-service compare`: the completions that two rewards of a running service judge differently."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import httpx
from reward_proto import v1

from reward_service.commands import Commands

_COMPARED_AT_ONCE = 256


def add(commands: Commands) -> None:
    """Add `compare`."""
    compare = commands.add_parser(
        "compare", help="list the completions that two rewards of a running service judge differently"
    )
    compare.add_argument("first", help="a reward id")
    compare.add_argument("second", help="another")
    compare.add_argument("file", type=Path, help='JSONL with "gold" and "completion" (or "text") in each line')
    compare.add_argument("--url", default="http://127.0.0.1:8000", help="where the service answers")
    compare.set_defaults(run=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    rows = [json.loads(line) for line in arguments.file.read_text(encoding="utf-8").split("\n") if line.strip()]
    rules, differing = (arguments.first, arguments.second), 0
    with httpx.Client(base_url=arguments.url, timeout=600) as http:
        for start in range(0, len(rows), _COMPARED_AT_ONCE):
            part = rows[start : start + _COMPARED_AT_ONCE]
            groups = [
                {"id": str(n), "gold": row.get("gold"), "completions": [row.get("completion", row.get("text", ""))]}
                for n, row in enumerate(part)
            ]
            response = http.post(v1.SCORE_PATH, json={"rewards": [{"id": one} for one in rules], "groups": groups})
            if response.status_code != 200:
                print(f"{response.status_code}: {response.text}", file=sys.stderr)
                return 1
            for row, group in zip(part, response.json()["groups"], strict=True):
                (first,), (second,) = (group["scores"][rule] for rule in rules)
                if first != second:
                    differing += 1
                    print(f"{first!s:>5} {second!s:>5}  gold {row.get('gold')!a}  {_cut(row)!a}")
    print(f"{differing} of {len(rows)} differ ({arguments.first}, {arguments.second})")
    return 0


def _cut(row: dict[str, object]) -> str:
    return str(row.get("completion", row.get("text", "")))[:120]
