"""`reward-service release`: record a reward as released; from then on it pays what it pays."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from reward_service.commands import Commands
from reward_service.commands.rewards import every_reward
from reward_service.commands.same_numbers import differences
from reward_service.commands.vectors import check, read_vectors
from reward_service.worker.modules import read_released, record_release, released_file


def add(commands: Commands) -> None:
    """Add `release`."""
    release = commands.add_parser("release", help="record a reward of this source tree as released")
    release.add_argument("id", help="such as math.equal@2")
    release.add_argument("--rewards-module", help="a module or .py file with rewards of your own")
    release.add_argument(
        "--same-numbers",
        action="store_true",
        help="of a released reward whose source moved for speed or safety: proven against --against on --vectors",
    )
    release.add_argument("--vectors", type=Path, help="JSONL of its golden vectors (tests/golden/ID.jsonl)")
    release.add_argument("--against", default="HEAD", help="the commit to compare with (HEAD)")
    release.set_defaults(run=_release)


def _release(arguments: argparse.Namespace) -> int:
    loaded = every_reward(arguments.rewards_module)
    reward_id, catalogue = arguments.id, loaded.catalogue
    if arguments.same_numbers and arguments.vectors is None:
        print("--same-numbers is proven on vectors: name them with --vectors", file=sys.stderr)
        return 2
    if reward_id not in catalogue:
        print(f"no reward has the id {reward_id}; `reward-service rewards` lists all", file=sys.stderr)
        return 2
    file = released_file(catalogue[reward_id].function.__module__)
    if reward_id in read_released(file) and not arguments.same_numbers:
        print(f"{reward_id} is released already, and a released version never moves: add a version", file=sys.stderr)
        return 2
    if arguments.same_numbers:
        differing = list(check(catalogue, reward_id, read_vectors(arguments.vectors)))
        # A plugin's earlier source is not in our history: its vectors are the proof.
        if arguments.rewards_module is None:
            differing += differences(reward_id, arguments.vectors, against=arguments.against)
        if differing:
            print("\n".join(differing), file=sys.stderr)
            print(f"{reward_id} does not pay what it paid: add a version", file=sys.stderr)
            return 1
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    digest = record_release(file, catalogue, reward_id, date=today)
    print(f"released {reward_id} {digest} in {file}")
    return 0
