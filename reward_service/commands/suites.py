"""`reward-service suites`: check suite files, release a suite."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from reward_service.commands import Commands
from reward_service.locks import LOCKS
from reward_service.served import OWN_REWARDS, plugin_modules
from reward_service.settings import Settings
from reward_service.suites import BUILT_IN, SuiteError, Suites, released_file
from reward_service.worker.catalogue import Reward
from reward_service.worker.modules import load


def add(commands: Commands) -> None:
    """Add `suites check` and `suites release`."""
    suites = commands.add_parser("suites", help="check suite files, release a suite")
    actions = suites.add_subparsers(title="actions", required=True)
    check = actions.add_parser("check", help="say what is wrong with suite files")
    check.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="default: the built-in one and REWARD_SUITES"
    )
    check.set_defaults(run=_check)
    release = actions.add_parser("release", help="record a suite as released: from then on it must not change")
    release.add_argument("id", help="such as math@2")
    release.add_argument(
        "--file", type=Path, help="the file that it stands in; default: REWARD_SUITES or the built-in one"
    )
    release.set_defaults(run=_release)


def _check(arguments: argparse.Namespace) -> int:
    own = Settings().suites
    files: list[Path] = arguments.files or [BUILT_IN, *([own] if own else [])]
    rewards, _ = _known()
    return max(_check_file(file, rewards) for file in files)


def _check_file(file: Path, rewards: Mapping[str, Reward]) -> int:
    try:
        suites = load_suites(file)
        suites.check(rewards)
    except SuiteError as error:
        print(error, file=sys.stderr)
        return 1
    mine = [f"{one.id} ({one.status})" for one in suites if suites.file_of(one.id) == file]
    print(f"{file}: in order: {', '.join(mine)}")
    return 0


def _release(arguments: argparse.Namespace) -> int:
    suite_id: str = arguments.id
    rewards, released_rewards = _known()
    try:
        suites = load_suites(arguments.file or Settings().suites)
        suites.check(rewards)
    except SuiteError as error:
        return refuse(str(error))
    suite = suites.get(suite_id)
    if suite is None:
        return refuse(f"no suite has the id {suite_id}; there are {', '.join(one.id for one in suites)}")
    if suite.status == "released":
        return refuse(f"{suite_id} is released already, and a released suite never changes: add a version")
    drafts = [entry.id for entry in suite.rewards if entry.id not in released_rewards]
    if drafts:
        return refuse(f"{suite_id} names drafts, which may still change: {', '.join(drafts)}; release those first")
    record = released_file(suites.file_of(suite_id))
    released = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    released[suite_id] = {"digest": suite.digest, "released": datetime.datetime.now(datetime.UTC).date().isoformat()}
    record.write_text(json.dumps(released, indent=2) + "\n", encoding="utf-8")
    print(f"released {suite_id} {suite.digest} in {record}")
    return 0


def load_suites(file: Path | None) -> Suites:
    """The built-in suites and those of a file, as the service loads them."""
    return Suites(BUILT_IN, *([file] if file and file.absolute() != BUILT_IN else []))


def _known() -> tuple[dict[str, Reward], set[str]]:
    """Every reward that a suite may name (our own, those of plugins and of locks), and which of them are released."""
    every = [load([OWN_REWARDS, *plugin_modules(Settings())]), *(load([lock.module]) for lock in LOCKS)]
    for module, error in every[0].failed.items():
        print(f"{module} is left out: {error}", file=sys.stderr)
    rewards = {reward.id: reward for loaded in every for reward in loaded.catalogue}
    return rewards, {reward_id for loaded in every for reward_id in loaded.released}


def refuse(why: str) -> int:
    """Say why a command does nothing, and the exit code for it."""
    print(why, file=sys.stderr)
    return 2
