"""`reward-service locks`: build and list the package versions that rewards promise their numbers on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reward_service.commands import Commands
from reward_service.locks import LOCKS, LockError, build, how_to_build, python_of
from reward_service.settings import Settings


def add(commands: Commands) -> None:
    """Add `locks build` and `locks list`."""
    locks = commands.add_parser("locks", help="package versions that rewards promise their numbers on")
    actions = locks.add_subparsers(title="commands", required=True)
    build_locks = actions.add_parser("build", help="build the virtual environments of locks")
    build_locks.add_argument("names", nargs="*", help="which locks (all)")
    build_locks.add_argument("--wheels", type=Path, help="install offline, from a folder of wheels")
    build_locks.set_defaults(run=_build)
    actions.add_parser("list", help="list the locks and whether they are built").set_defaults(run=_list)


def _build(arguments: argparse.Namespace) -> int:
    wanted = [lock for lock in LOCKS if not arguments.names or lock.name in arguments.names]
    unknown = set(arguments.names) - {lock.name for lock in LOCKS}
    if unknown:
        print(
            f"no lock is called {', '.join(unknown)}; there are {', '.join(one.name for one in LOCKS)}", file=sys.stderr
        )
        return 2
    for lock in wanted:
        try:
            print(f"{lock.name}: {build(lock, Settings().locks_dir, wheels=arguments.wheels)}")
        except LockError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _list(arguments: argparse.Namespace) -> int:
    for lock in LOCKS:
        state = "built" if python_of(lock, Settings().locks_dir) else f"not built: {how_to_build(lock)}"
        print(f"{lock.name:20} {', '.join(lock.rewards):28} {state}")
    return 0
