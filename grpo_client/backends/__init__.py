"""One file or folder a tensor library, imported only when it is chosen."""

from __future__ import annotations

import importlib.util
import platform
from typing import Literal

from grpo_client.backends.base import Backend
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.ranks import Alone, Ranks


def load_backend(config: TrainConfig) -> Backend:
    """The backend with the run's model in it. Raises ConfigError."""
    return {"torch": _torch, "mlx": _mlx}[backend_name(config)](config)


def join_ranks(config: TrainConfig) -> Ranks:
    """This process among those that share the run (`mlx.launch`), before any model is loaded."""
    if backend_name(config) == "mlx" and importlib.util.find_spec("mlx"):
        from grpo_client.backends.mlx.ranks import MlxRanks

        return MlxRanks()
    return Alone()


def backend_name(config: TrainConfig) -> Literal["torch", "mlx"]:
    """Which one the config means on this machine."""
    if config.backend != "auto":
        return config.backend
    apple_silicon = (platform.system(), platform.machine()) == ("Darwin", "arm64")
    return "mlx" if apple_silicon and importlib.util.find_spec("mlx_lm") else "torch"


def _torch(config: TrainConfig) -> Backend:
    try:
        from grpo_client.backends.torch.backend import TorchBackend
    except ImportError as error:
        raise ConfigError(f"training needs PyTorch ({error}): pip install 'hallmark-rl[torch]'") from error
    return TorchBackend(config)


def _mlx(config: TrainConfig) -> Backend:
    try:
        from grpo_client.backends.mlx.backend import MlxBackend
    except ImportError as error:
        raise ConfigError(
            f"--backend mlx needs MLX ({error}): pip install 'hallmark-rl[mlx]' (on Linux 'mlx[cpu]' as well)"
        ) from error
    return MlxBackend(config)
