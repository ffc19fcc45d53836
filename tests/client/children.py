"""Trainings in processes of their own, forked from one that has imported everything: they can be killed for real."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any


def _train(settings: Mapping[str, Any]) -> None:
    import torch
    from rich.console import Console

    from grpo_client.config import TrainConfig
    from grpo_client.train import train

    torch.set_num_threads(1)
    train(TrainConfig.model_validate(settings), Console(quiet=True))


def context() -> ForkServerContext:
    """Where processes are forked from."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["grpo_client.train", "grpo_client.backends.torch.backend", "tests.client.children"])
    return made


def start(settings: Mapping[str, Any]) -> ForkServerProcess:
    """A training that has been started."""
    process = context().Process(target=_train, args=(settings,), daemon=True)
    process.start()
    return process
