"""One file or folder a tensor library, imported only when it is chosen."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path
from typing import Literal

from grpo_client.backends.base import Backend, Device
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


def devices() -> list[Device]:
    """Devices with memory of their own. Raises ImportError or OSError where PyTorch is broken; none without it."""
    if importlib.util.find_spec("torch") is None:
        return []
    from grpo_client.backends.torch.machine import cuda_devices

    return cuda_devices()


def threads() -> int | None:
    """Threads of one operation on the CPU; None without PyTorch. Raises as `devices` does."""
    if importlib.util.find_spec("torch") is None:
        return None
    from grpo_client.backends.torch import machine

    return machine.threads()


def device_of(config: TrainConfig) -> Device | None:
    """The one that the config means for its model; None where that goes into the machine's own memory."""
    if backend_name(config) == "mlx" or not (config.device == "auto" or config.device.startswith("cuda")):
        return None
    name = config.device if ":" in config.device else "cuda:0"
    return next((one for one in devices() if one.name == name), None)


def merge_adapter(model: str, adapter: Path, output: Path, *, dtype: str, same_base: bool) -> int:
    """Write base + adapter as a Hugging Face model. Returns its weights' number. Raises ConfigError, OSError."""
    try:
        from grpo_client.backends.torch import merge
    except ImportError as error:
        raise ConfigError(f"merging needs PyTorch ({error}): pip install 'hallmark-rl[torch]'") from error
    return merge.merge_adapter(model, adapter, output, dtype=dtype, same_base=same_base)


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
