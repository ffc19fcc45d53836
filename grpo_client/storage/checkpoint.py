"""Checkpoints: a model folder with all that an exact resume needs, written beside and renamed whole.

`checkpoints/step-000012/` is a Hugging Face model (or adapter) folder with the backend's training state and
`run_state.json`, which lists every other file with its size and SHA-256: what was cut short is recognised and passed
over. A step is either in a checkpoint whole, with all its optimizer steps, or not at all, so no half-used rollouts have
to be kept; what is sampled again is the same again, since noise is keyed by seed, step, prompt and completion.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grpo_client.backends.base import Backend
from grpo_client.errors import ConfigError

CHECKPOINTS = "checkpoints"
LATEST = "latest"
RUN_STATE = "run_state.json"
MODEL_CARD = "README.md"
_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: where, after which step, and what the run remembered."""

    path: Path
    step: int
    state: Mapping[str, Any]


# ---- writing -----------------------------------------------------------------------------------------------


def save_model(backend: Backend, folder: Path, name: str, *, card: str) -> Path:
    """Save a model as `folder/name`: written beside and renamed whole, so that what bears the name is complete."""

    def write(beside: Path) -> None:
        backend.save(beside)
        (beside / MODEL_CARD).write_text(card, encoding="utf-8")

    return _whole(folder / name, write)


def save_checkpoint(backend: Backend, folder: Path, step: int, state: Mapping[str, Any], *, card: str) -> Path:
    """Save all that a resume needs after `step`; `state` is what the run remembers, as JSON. Raises OSError."""

    def write(beside: Path) -> None:
        backend.save(beside)
        backend.save_state(beside)
        (beside / MODEL_CARD).write_text(card, encoding="utf-8")
        files = {str(file.relative_to(beside)): _fingerprint(file) for file in _files(beside)}
        document = {"format": _FORMAT, "step": step, "random": _random_state(), "files": files} | dict(state)
        (beside / RUN_STATE).write_text(json.dumps(document, indent=1), encoding="utf-8")

    path = _whole(_path(folder, step), write)
    _point_to_latest(folder)
    return path


def _point_to_latest(folder: Path) -> None:
    """`latest` of the run's folder is its newest checkpoint: a model or adapter that rolls on under one name."""
    link = folder / LATEST
    newest = checkpoint_folders(folder)[-1:]
    if not newest:
        link.unlink(missing_ok=True)
        return
    beside = link.with_name(f".{LATEST}.{os.getpid()}.partial")
    beside.unlink(missing_ok=True)
    try:
        beside.symlink_to(newest[0].relative_to(folder))
    except PermissionError:  # a file system without links
        return
    beside.replace(link)


def set_later_aside(folder: Path, step: int) -> list[str]:
    """Take checkpoints after a step out of the row: of a branch that is left, or not whole. What was done, in words.

    They would count as the newest, be gone on from and crowd out those that are written from now on.
    """
    said = []
    for path in checkpoint_folders(folder):
        if _step_of(path) > step:
            aside = path.with_name(f"aside-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            said.append(f"{path} is after step {step}; set aside as {aside.name}")
    if said:
        _point_to_latest(folder)
    return said


def prune(folder: Path, *, keep: int, best: int | None) -> None:
    """Remove all but the last `keep` checkpoints and that of step `best`; none where `keep` is -1."""
    for path in checkpoint_folders(folder)[:-keep] if keep != -1 else ():
        if best is None or path != _path(folder, best):
            _remove(path)


def clear_remains(folder: Path) -> None:
    """Remove what a killed run left half written or half removed."""
    for parent in (folder, folder / CHECKPOINTS):
        for path in parent.glob(".*.partial"):
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def _whole(target: Path, write: Callable[[Path], None]) -> Path:
    beside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        write(beside)
        for file in _files(beside):
            file.chmod(0o666 & ~_umask())  # safetensors writes for its owner alone
            _flush(file)
        if target.exists():
            _remove(target)
        beside.rename(target)
        _flush(target.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove(path: Path) -> None:
    """Out of sight in one step, so that nobody finds half of it."""
    doomed = path.with_name(f".{path.name}.{os.getpid()}.doomed.partial")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _flush(path: Path) -> None:
    """To the disk itself: a rename that outlives a power cut must not name files that do not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- reading -----------------------------------------------------------------------------------------------


def find_checkpoint(resume: str, folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint that `--resume` means, and what was passed over and why.

    `auto` is the newest whole one of the output folder, None where there is none. A path is that checkpoint, or the
    newest whole one of that run. Raises ConfigError for a path that holds none.
    """
    where = folder if resume == "auto" else Path(resume)
    candidates = [where] if (where / RUN_STATE).exists() else checkpoint_folders(where)[::-1]
    faults: list[str] = []
    for path in candidates:
        fault, state = _read(path)
        if fault is None:
            return Checkpoint(path, int(state["step"]), state), faults
        faults.append(f"{path} is not whole ({fault})")
    if resume == "auto" and not faults:
        return None, []
    raise ConfigError(
        f"--resume {resume}: no whole checkpoint in {where}" + ("".join(f"; {one}" for one in faults) or " at all")
    )


def checkpoint_folders(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [path for path in (folder / CHECKPOINTS).glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=_step_of)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def restore_random(state: Mapping[str, Any]) -> None:
    """Put Python's and numpy's generators where they were. Nothing here draws from them; a caller's code may."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(("MT19937", np.array(state["numpy"][0], dtype=np.uint32), *state["numpy"][1:]))


def _random_state() -> dict[str, Any]:
    _, keys, *rest = np.random.get_state(legacy=True)
    return {"python": random.getstate(), "numpy": [keys.tolist(), *rest]}  # type: ignore[union-attr]


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """What is wrong with a checkpoint, or None, and its state."""
    try:
        state = json.loads((path / RUN_STATE).read_text(encoding="utf-8"))
    except OSError as error:
        return f"{RUN_STATE}: {error.strerror}", {}
    except ValueError:
        return f"{RUN_STATE} is cut short", {}
    if not isinstance(state, dict) or not {"format", "step", "files"} <= state.keys():
        return f"{RUN_STATE} is not what this client writes", {}
    if state["format"] != _FORMAT:
        return f"its format is {state['format']}, this client writes and reads {_FORMAT}", {}
    for name, (size, digest) in state["files"].items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing", {}
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes of {size}", {}
        if _fingerprint(file)[1] != digest:
            return f"{name} has other content than was written", {}
    return None, state


def _path(folder: Path, step: int) -> Path:
    return folder / CHECKPOINTS / f"step-{step:06d}"


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _fingerprint(file: Path) -> tuple[int, str]:
    with file.open("rb") as content:
        return file.stat().st_size, hashlib.file_digest(content, "sha256").hexdigest()
