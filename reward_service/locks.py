"""Locks: package versions that a reward promises its numbers on, each in a virtual environment of its own.

The default lock is the environment of the serving process. Every other one is built by `reward-service locks build`
from a requirements file with hashes; into it goes a copy of this distribution's worker, without its dependencies.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_BUILT = ".built"


class LockError(Exception):
    """A lock that could not be built: what failed and what now."""


@dataclass(frozen=True)
class LockedEnvironment:
    """The environment of a lock (other than the default one), and the rewards that are served from it."""

    name: str
    module: str
    rewards: tuple[str, ...]

    @property
    def requirements(self) -> Path:
        """Exact versions with hashes."""
        return _HERE / "locks" / f"{self.name}.txt"


LOCKS = (
    LockedEnvironment("math-verify-0.8.0", "reward_service.worker.locked.math_verify_0_8", ("math_verify.equal@1",)),
)


def folder(lock: LockedEnvironment, root: Path) -> Path:
    """Where a lock is built: another folder for other requirements, another worker or another interpreter."""
    content = hashlib.sha256(lock.requirements.read_bytes())
    content.update(sysconfig.get_python_version().encode())
    for file in sorted((_HERE / "worker").rglob("*.py")):
        content.update(file.relative_to(_HERE).as_posix().encode() + file.read_bytes())
    return root / f"{lock.name}-{content.hexdigest()[:16]}"


def python_of(lock: LockedEnvironment, root: Path) -> str | None:
    """The interpreter of a lock; None when it is not built."""
    built = folder(lock, root)
    return str(built / "bin" / "python") if (built / _BUILT).exists() else None


def how_to_build(lock: LockedEnvironment) -> str:
    """The command."""
    return f"reward-service locks build {lock.name}"


def build(lock: LockedEnvironment, root: Path, *, wheels: Path | None) -> Path:
    """Build a lock, from the package index or (offline) from a folder of wheels. Raises LockError."""
    target = folder(lock, root)
    if (target / _BUILT).exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    venv.create(target, with_pip=True, symlinks=True)
    python = target / "bin" / "python"
    offline = [] if wheels is None else ["--no-index", "--find-links", str(wheels)]
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "-r",
        str(lock.requirements),
        *offline,
    ]
    try:
        subprocess.run([str(python), *install], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(target, ignore_errors=True)
        last = (error.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise LockError(f"lock {lock.name}: pip failed: {last}") from error
    _copy_worker(target)
    (target / _BUILT).touch()
    return target


def _copy_worker(environment: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    package = environment / "lib" / version / "site-packages" / _HERE.name
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_HERE / "worker", package / "worker", ignore=ignore)
    shutil.copy(_HERE / "__init__.py", package / "__init__.py")
    shutil.copy(_HERE / "released.json", package / "released.json")
