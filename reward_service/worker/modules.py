"""The modules whose catalogues a worker serves: our own, and plugins, which may fail without harm to the rest."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from reward_service.worker.catalogue import Catalogue, Reward

OWN_PACKAGE = "reward_service."
_IMPORT_SECONDS = 20


@dataclass
class Loaded:
    """What was loaded. `released`: by reward id, what the file beside its module records of it."""

    catalogue: Catalogue
    own: list[Reward]
    released: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # plugin module → what its import raised


def load(modules: Sequence[str]) -> Loaded:
    """Import modules and join their catalogues. A plugin that fails to import, or takes another's id, is left out."""
    members: list[Reward] = []
    loaded = Loaded(Catalogue([]), [])
    for name in modules:
        if name.startswith(OWN_PACKAGE):
            own = _members(name)
            loaded.own += own
            members += own
        else:
            try:
                with _clock():
                    plugin = _members(_importable(name))
                Catalogue([*members, *plugin])
                members += plugin
            except BaseException as error:  # noqa: BLE001  an import of somebody else's code: SystemExit included
                loaded.failed[name] = f"{type(error).__name__}: {error}"[:500]
                continue
        loaded.released |= read_released(released_file(_importable(name)))
    loaded.catalogue = Catalogue(members)
    return loaded


def released_file(module: str) -> Path:
    """Where the releases of a module's rewards are recorded: `NAME.released.json` beside it; our own in one file."""
    if module.startswith(OWN_PACKAGE):
        return Path(__file__).parents[1] / "released.json"
    file = Path(str(importlib.import_module(module).__file__))
    return file.with_name(f"{module.rpartition('.')[2]}.released.json")


def read_released(file: Path) -> dict[str, Any]:
    """id → digests (newest last), lock, date. Nothing else says what is released."""
    rewards: dict[str, Any] = _record(file)["rewards"]
    return rewards


def record_release(file: Path, catalogue: Catalogue, reward_id: str, *, date: str) -> str:
    """Write down that a reward is released as it is now, beside earlier digests of it. Returns its digest."""
    record, digest, lock = _record(file), catalogue.digest(reward_id), catalogue[reward_id].lock
    entry: dict[str, Any] = {"digests": [], "lock": lock.name if lock else None, "released": date}
    entry = record["rewards"].setdefault(reward_id, entry)
    entry["digests"] = [one for one in entry["digests"] if one != digest] + [digest]
    record["definitions"] |= {name: content[:16] for name, content in catalogue.closure(reward_id).items()}
    record["definitions"] = dict(sorted(record["definitions"].items()))
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return digest


def _record(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {"rewards": {}, "definitions": {}}
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def _members(module: str) -> list[Reward]:
    catalogue = importlib.import_module(module).CATALOGUE
    if not isinstance(catalogue, Catalogue):
        raise TypeError(f"{module}.CATALOGUE is no Catalogue")
    return list(catalogue)


def _importable(name: str) -> str:
    """A module's name. A path to a .py file is one too: its folder goes last on the import path, to shadow nothing."""
    if not name.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        return name
    path = Path(name).resolve()
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return path.stem


@contextmanager
def _clock() -> Iterator[None]:
    """An import that does not end raises TimeoutError."""

    def ring(number: int, frame: object) -> NoReturn:
        raise TimeoutError(f"its import took over {_IMPORT_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_IMPORT_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
