"""What this machine has: cores, memory, disk. What cannot be found out is None."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_memory() -> int | None:
    """Bytes of memory, or those that the control group allows."""
    limits = [one for one in (_physical(), _number(Path("/sys/fs/cgroup/memory.max"))) if one is not None]
    return min(limits, default=None)


def free_memory() -> int | None:
    """Bytes that can be had without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None  # no Linux
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = _number(Path("/sys/fs/cgroup/memory.max")), _number(Path("/sys/fs/cgroup/memory.current"))
    if limit is not None and used is not None:
        found.append(max(limit - used, 0))
    return min(found, default=None)


def free_disk(folder: Path) -> tuple[Path, int]:
    """The nearest folder above that exists, and its free bytes. Raises OSError."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    return there, shutil.disk_usage(there).free


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _number(file: Path) -> int | None:
    """The number in a file; None for `max` and where there is no file."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
