"""`reward-service suites` and `reward-service aliases`: check, release, list and move, on the files themselves."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from reward_proto import v1

from reward_service.aliases import ALIAS_ID, AliasConflictError, AliasStore, StoreError
from reward_service.locks import LOCKS
from reward_service.served import OWN_REWARDS, plugin_modules
from reward_service.settings import Settings
from reward_service.suites import BUILT_IN, SuiteError, Suites, released_file
from reward_service.worker.catalogue import Reward
from reward_service.worker.modules import load

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_suites(commands: Commands) -> None:
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


def add_aliases(commands: Commands) -> None:
    """Add `aliases list`, `aliases show` and `aliases move`."""
    aliases = commands.add_parser("aliases", help="see and move the aliases of suites, in the store itself")
    actions = aliases.add_subparsers(title="actions", required=True)
    listing = actions.add_parser("list", help="list all")
    show = actions.add_parser("show", help="show one with its last moves")
    move = actions.add_parser("move", help="point an alias at a suite version; it is made when it is not there")
    for action in (show, move):
        action.add_argument("alias", metavar="NAME@ALIAS", help="such as math@stable")
    move.add_argument("target", metavar="TARGET", help="such as math@2")
    move.add_argument("--author", required=True, help="who moves it; recorded")
    move.add_argument("--if-match", metavar="ETAG", help="move it only from this state, as `show` prints it")
    for action, run in ((listing, _list), (show, _show), (move, _move)):
        action.add_argument("--store", type=Path, help="the SQLite file; default: REWARD_STORE")
        action.set_defaults(run=run)


# ---- suites ------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    own = Settings().suites
    files: list[Path] = arguments.files or [BUILT_IN, *([own] if own else [])]
    rewards, _ = _known()
    return max(_check_file(file, rewards) for file in files)


def _check_file(file: Path, rewards: Mapping[str, Reward]) -> int:
    try:
        suites = _load(file)
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
        suites = _load(arguments.file or Settings().suites)
        suites.check(rewards)
    except SuiteError as error:
        return _refuse(str(error))
    suite = suites.get(suite_id)
    if suite is None:
        return _refuse(f"no suite has the id {suite_id}; there are {', '.join(one.id for one in suites)}")
    if suite.status == "released":
        return _refuse(f"{suite_id} is released already, and a released suite never changes: add a version")
    drafts = [entry.id for entry in suite.rewards if entry.id not in released_rewards]
    if drafts:
        return _refuse(f"{suite_id} names drafts, which may still change: {', '.join(drafts)}; release those first")
    record = released_file(suites.file_of(suite_id))
    released = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    released[suite_id] = {"digest": suite.digest, "released": datetime.datetime.now(datetime.UTC).date().isoformat()}
    record.write_text(json.dumps(released, indent=2) + "\n", encoding="utf-8")
    print(f"released {suite_id} {suite.digest} in {record}")
    return 0


def _load(file: Path | None) -> Suites:
    """The built-in suites and those of a file, as the service loads them."""
    return Suites(BUILT_IN, *([file] if file and file.absolute() != BUILT_IN else []))


def _known() -> tuple[dict[str, Reward], set[str]]:
    """Every reward that a suite may name (our own, those of plugins and of locks), and which of them are released."""
    every = [load([OWN_REWARDS, *plugin_modules(Settings())]), *(load([lock.module]) for lock in LOCKS)]
    for module, error in every[0].failed.items():
        print(f"{module} is left out: {error}", file=sys.stderr)
    rewards = {reward.id: reward for loaded in every for reward in loaded.catalogue}
    return rewards, {reward_id for loaded in every for reward_id in loaded.released}


# ---- aliases -----------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    try:
        for alias in _store(arguments).all():
            print(f"{alias.alias:28} {alias.target:24} {alias.etag:>6}  {alias.moved_at}  {alias.author}")
    except StoreError as error:
        return _refuse(str(error))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    try:
        found = _store(arguments).history(arguments.alias)
    except StoreError as error:
        return _refuse(str(error))
    if found is None:
        return _refuse(f"there is no alias {arguments.alias}; `reward-service aliases list` lists all")
    print(f"{found.alias} points at {found.target}, ETag {found.etag}")
    for move in found.moves:
        print(f"  {move.moved_at}  {move.previous or '(new)'} -> {move.target}  by {move.author}")
    return 0


def _move(arguments: argparse.Namespace) -> int:
    alias, name = arguments.alias, arguments.alias.partition("@")[0]
    if not ALIAS_ID.fullmatch(alias):
        return _refuse("an alias is NAME@ALIAS: lower-case letters, digits and dashes, and not digits alone")
    try:
        request = v1.AliasRequest(target=arguments.target, author=arguments.author)
        versions = [one.id for one in _load(Settings().suites) if one.id.partition("@")[0] == name]
        if request.target not in versions:
            return _refuse(f"{alias} points at a version of {name} (REWARD_SUITES); there are: {', '.join(versions)}")
        moved = _store(arguments).move(
            alias,
            target=request.target,
            author=request.author,
            condition=lambda current: not arguments.if_match or (current and current.etag) == arguments.if_match,
        )
    except AliasConflictError as error:
        where = f"{error.current.target}, ETag {error.current.etag}" if error.current else "nothing yet"
        return _refuse(f"{alias} has moved: it points at {where}; nothing was changed")
    except (StoreError, SuiteError, ValidationError) as error:
        return _refuse(str(error))
    print(f"{alias}: {moved.previous or '(new)'} -> {moved.target}, ETag {moved.etag}")
    return 0


def _store(arguments: argparse.Namespace) -> AliasStore:
    path = arguments.store or Settings().store
    if path is None:
        raise StoreError("name the file of the aliases: set REWARD_STORE, or give --store")
    return AliasStore(path)


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 2
