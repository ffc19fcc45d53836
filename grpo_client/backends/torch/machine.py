"""What PyTorch finds on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from grpo_client.backends.base import Device


def cuda_devices() -> list[Device]:
    """Each CUDA device; none where there is none."""
    if not torch.cuda.is_available():
        return []
    return [
        Device(f"cuda:{number}", torch.cuda.get_device_name(number), *torch.cuda.mem_get_info(number))
        for number in range(torch.cuda.device_count())
    ]


def threads() -> int:
    """Threads of one operation on the CPU."""
    return torch.get_num_threads()


def resident_bytes() -> int:
    """Of this process, as it is now; 0 where that cannot be found out."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0  # no Linux
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
