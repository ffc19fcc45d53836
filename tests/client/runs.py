"""What tests of whole runs share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from grpo_client.config import TrainConfig


class Configure(Protocol):
    """Makes the configuration of a short run on a tiny model, with changes."""

    def __call__(self, **changes: object) -> TrainConfig: ...


Run = Callable[..., tuple[int, str, str]]  # arguments of grpo-client -> exit code, output, errors


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().rstrip("\n").split("\n")]
