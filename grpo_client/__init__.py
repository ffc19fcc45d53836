"""A GRPO trainer that is told its rewards by a service: `grpo-client train --reward-url URL --suite NAME@VERSION`.

From Python: `from grpo_client import TrainConfig, train`. What is named here is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_client.config import TrainConfig as TrainConfig
    from grpo_client.config import load_config as load_config
    from grpo_client.reports.callbacks import Callback as Callback
    from grpo_client.train import train as train

__version__ = "0.1.0"

_HOMES = {"Callback": "reports.callbacks", "TrainConfig": "config", "load_config": "config", "train": "train"}


class _Package(ModuleType):
    """Knows where its names live."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __setattr__(self, name: str, value: object) -> None:
        # Importing the module `train` would put it under the name of the function.
        if not (name == "train" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _Package
