"""Tiny models are fastest on one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the commands that tests start
    yield
    del os.environ["OMP_NUM_THREADS"]
    torch.set_num_threads(threads)
