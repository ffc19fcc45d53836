"""`reward-service aliases`: list, show and move aliases, in the store itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import ValidationError
from reward_proto import v1

from reward_service.aliases import ALIAS_ID, AliasConflictError, AliasStore, StoreError
from reward_service.commands import Commands
from reward_service.commands.suites import load_suites, refuse
from reward_service.settings import Settings
from reward_service.suites import SuiteError


def add(commands: Commands) -> None:
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


def _list(arguments: argparse.Namespace) -> int:
    try:
        for alias in _store(arguments).all():
            print(f"{alias.alias:28} {alias.target:24} {alias.etag:>6}  {alias.moved_at}  {alias.author}")
    except StoreError as error:
        return refuse(str(error))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    try:
        found = _store(arguments).history(arguments.alias)
    except StoreError as error:
        return refuse(str(error))
    if found is None:
        return refuse(f"there is no alias {arguments.alias}; `reward-service aliases list` lists all")
    print(f"{found.alias} points at {found.target}, ETag {found.etag}")
    for move in found.moves:
        print(f"  {move.moved_at}  {move.previous or '(new)'} -> {move.target}  by {move.author}")
    return 0


def _move(arguments: argparse.Namespace) -> int:
    alias, name = arguments.alias, arguments.alias.partition("@")[0]
    if not ALIAS_ID.fullmatch(alias):
        return refuse("an alias is NAME@ALIAS: lower-case letters, digits and dashes, and not digits alone")
    try:
        request = v1.AliasRequest(target=arguments.target, author=arguments.author)
        versions = [one.id for one in load_suites(Settings().suites) if one.id.partition("@")[0] == name]
        if request.target not in versions:
            return refuse(f"{alias} points at a version of {name} (REWARD_SUITES); there are: {', '.join(versions)}")
        moved = _store(arguments).move(
            alias,
            target=request.target,
            author=request.author,
            condition=lambda current: not arguments.if_match or (current and current.etag) == arguments.if_match,
        )
    except AliasConflictError as error:
        where = f"{error.current.target}, ETag {error.current.etag}" if error.current else "nothing yet"
        return refuse(f"{alias} has moved: it points at {where}; nothing was changed")
    except (StoreError, SuiteError, ValidationError) as error:
        return refuse(str(error))
    print(f"{alias}: {moved.previous or '(new)'} -> {moved.target}, ETag {moved.etag}")
    return 0


def _store(arguments: argparse.Namespace) -> AliasStore:
    path = arguments.store or Settings().store
    if path is None:
        raise StoreError("name the file of the aliases: set REWARD_STORE, or give --store")
    return AliasStore(path)
