"""An optimizer on float32 weights, whatever dtype the model computes in, and its state in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.optimizers import SGD, Adam, AdamW, MultiOptimizer, Optimizer
from mlx.utils import tree_map, tree_map_with_path

from grpo_client.backends.mlx.trees import Tree, leaves, named
from grpo_client.errors import ConfigError

OPTIMIZERS: dict[str, Callable[[float, float], Optimizer]] = {  # (learning rate, weight decay)
    "adamw": lambda rate, decay: AdamW(rate, weight_decay=decay, bias_correction=True),  # MLX leaves that out
    "adam": lambda rate, decay: Adam(rate, bias_correction=True),
    "sgd": lambda rate, decay: SGD(rate, weight_decay=decay),
}
STATE_FILE = "trainer_state.safetensors"


class FloatOptimizer:
    """PyTorch's AdamW, Adam or SGD on float32 copies of what learns; weight decay on matrices only."""

    def __init__(self, model: nn.Module, *, name: str, learning_rate: float, weight_decay: float) -> None:
        self._model = model
        decaying, other = (OPTIMIZERS[name](learning_rate, decay) for decay in (weight_decay, 0.0))
        self._inner = MultiOptimizer([decaying, other], [lambda name, weight: weight.ndim >= 2])
        trained = leaves(model.trainable_parameters())
        self._dtypes = tree_map(lambda weight: weight.dtype, trained)
        self.weights = tree_map(lambda weight: weight.astype(mx.float32), trained)
        self._inner.init(self.weights)

    def step(self, gradients: Tree, *, learning_rate: float) -> None:
        """Move the weights, and the model's with them."""
        self._inner.learning_rate = learning_rate
        self.weights = leaves(self._inner.apply_gradients(gradients, self.weights))
        self._show()

    def _show(self) -> None:
        """Give the model the weights in its own dtypes."""
        shown = tree_map(lambda weight, dtype: weight.astype(dtype), self.weights, self._dtypes)
        self._model.update(shown)
        mx.eval(shown, self.weights, self._inner.state)

    def write(self, path: Path) -> None:
        """Weights in float32, moments and counts. MLX draws no numbers in training. Raises OSError."""
        try:
            mx.save_safetensors(str(path / STATE_FILE), self._arrays())
        except RuntimeError as error:
            raise OSError(None, str(error)) from error

    def read(self, path: Path) -> None:
        """Take up what `write` wrote. Raises ConfigError where it is of other weights."""
        try:
            found: dict[str, mx.array] = mx.load(str(path / STATE_FILE))  # type: ignore[assignment]
        except RuntimeError as error:
            raise ConfigError(f"{path / STATE_FILE} cannot be read: {error}") from error
        ours = self._arrays()
        unlike = sorted(ours.keys() ^ found.keys()) or [name for name in ours if ours[name].shape != found[name].shape]
        if unlike:
            raise ConfigError(f"{path / STATE_FILE} belongs to another model: {unlike[0]} does not fit")
        taken = tree_map_with_path(lambda name, one: found.get(name, one), self._state())
        self.weights, self._inner.state = taken["weights"], taken["optimizer"]
        self._show()

    def _state(self) -> Tree:
        return {"weights": self.weights, "optimizer": self._inner.state}

    def _arrays(self) -> dict[str, mx.array]:
        return dict(named(self._state()))
