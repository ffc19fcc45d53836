"""One file or folder a tensor library, imported only when it is chosen."""

from __future__ import annotations

from grpo_client.backends.base import Backend
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError


def load_backend(config: TrainConfig) -> Backend:
    """The backend with the run's model in it. Raises ConfigError."""
    try:
        from grpo_client.backends.torch_backend import TorchBackend
    except ImportError as error:
        raise ConfigError(f"training needs PyTorch ({error}): pip install 'hallmark-rl[torch]'") from error
    return TorchBackend(config)
