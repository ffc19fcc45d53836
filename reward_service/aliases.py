"""Aliases: names such as `math@stable` that point at a suite version, kept in an SQLite file.

The file holds nothing but moves, which are only ever added: an alias stands where its last move put it, and the number
of that move is its etag. Several replicas, and the command line, may share one file. Every call opens it anew: a read
costs about 0.15 ms, only requests that name an alias pay it, and a move holds for all of them at once, which no cache
could promise.
"""

from __future__ import annotations

import datetime
import json
import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from reward_proto import v1

log = logging.getLogger("reward_service.aliases")

# An alias is never all digits: that is a version.
SUITE_NAME = r"[a-z0-9][a-z0-9_.-]*"
ALIAS = r"([a-z]|[0-9]+[a-z-])[a-z0-9-]*"
ALIAS_ID = re.compile(f"{SUITE_NAME}@{ALIAS}")

Condition = Callable[[v1.AliasInfo | None], bool]

_BUSY_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS moves (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out twice: an etag names one state of one alias
    alias TEXT NOT NULL,
    previous TEXT,
    target TEXT NOT NULL,
    author TEXT NOT NULL,
    moved_at TEXT NOT NULL
)
"""
_INDEX = "CREATE INDEX IF NOT EXISTS moves_of_an_alias ON moves (alias, number)"
_LAST = (
    "SELECT alias, number, previous, target, author, moved_at FROM moves WHERE alias = ? ORDER BY number DESC LIMIT ?"
)
_ALL = """
SELECT alias, number, previous, target, author, moved_at FROM moves
WHERE number IN (SELECT max(number) FROM moves GROUP BY alias) ORDER BY alias
"""
_MOVE = "INSERT INTO moves (alias, previous, target, author, moved_at) VALUES (?, ?, ?, ?, ?)"


class StoreError(Exception):
    """The store cannot be read or written: which file, what happened."""


class AliasConflictError(Exception):
    """An alias is not where the mover thought. `current` is where it is, None when it does not exist."""

    def __init__(self, current: v1.AliasInfo | None) -> None:
        super().__init__(current)
        self.current = current


class AliasStore:
    """The aliases of one file, which is made when it is not there. Methods block; they are safe in several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open("rwc") as store:
            store.execute("BEGIN IMMEDIATE")
            store.execute(_SCHEMA)
            store.execute(_INDEX)
            store.execute("COMMIT")

    def get(self, alias: str) -> v1.AliasInfo | None:
        """Where an alias points now, or None."""
        with self._open() as store:
            return _current(store, alias)

    def history(self, alias: str, *, moves: int = 20) -> v1.AliasHistory | None:
        """An alias with its last moves, newest first, or None."""
        with self._open() as store:
            rows = store.execute(_LAST, (alias, moves)).fetchall()
        if not rows:
            return None
        moves_made = [v1.AliasMove.model_validate(_info(row).model_dump()) for row in rows]
        return v1.AliasHistory(**_info(rows[0]).model_dump(), moves=moves_made)

    def all(self) -> list[v1.AliasInfo]:
        """Every alias, by name."""
        with self._open() as store:
            return [_info(row) for row in store.execute(_ALL)]

    def move(self, alias: str, *, target: str, author: str, condition: Condition) -> v1.AliasInfo:
        """Point an alias at a suite version, if `condition` holds of where it is, in one transaction.

        Raises AliasConflictError when it is elsewhere, and then nothing has changed.
        """
        with self._open() as store:
            store.execute("BEGIN IMMEDIATE")  # nobody else moves anything between the look and the move
            current = _current(store, alias)
            if not condition(current):
                raise AliasConflictError(current)
            previous = current.target if current else None
            moved_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
            number = store.execute(_MOVE, (alias, previous, target, author, moved_at)).lastrowid
            store.execute("COMMIT")
        event = {"alias": alias, "from": previous, "to": target, "author": author, "at": moved_at}
        log.info("alias_moved %s", json.dumps(event))
        return _info((alias, number, previous, target, author, moved_at))

    @contextmanager
    def _open(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        # Not "rwc": a file that vanished is an error to report, and not an empty store.
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as store:
                yield store
        except sqlite3.Error as error:
            raise StoreError(f"{self._path} (REWARD_STORE): {error}") from error


def _current(store: sqlite3.Connection, alias: str) -> v1.AliasInfo | None:
    row = store.execute(_LAST, (alias, 1)).fetchone()
    return None if row is None else _info(row)


def _info(row: tuple[Any, ...]) -> v1.AliasInfo:
    alias, number, previous, target, author, moved_at = row
    return v1.AliasInfo(
        alias=alias, etag=f'"{number}"', previous=previous, target=target, author=author, moved_at=moved_at
    )
