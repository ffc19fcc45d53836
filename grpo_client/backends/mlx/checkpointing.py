"""Activations that are computed again in the backward pass instead of being kept."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from grpo_client.backends.mlx.forward import Before, PassCache


def checkpoint_layers(model: Any) -> None:
    """Keep only what goes into each layer, its keys and its values.

    mlx-lm's own switch knows nothing of what a layer leaves in a cache, and changes the class for all models.
    """
    for layer in model.layers:
        kind = type(layer)
        layer.__class__ = type(kind.__name__, (kind,), {"__call__": _checkpointed(kind)})


def _checkpointed(kind: type[nn.Module]) -> Any:
    forward: Any = kind.__call__

    def run(layer: nn.Module, hidden: mx.array, *args: Any, **kwargs: Any) -> Any:
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, PassCache)]
        if not given:
            if any(hasattr(type(one), "state") for one in (*args, *kwargs.values())):
                return forward(layer, hidden, *args, **kwargs)  # sampling: no gradient, and a cache that is written to
            return nn.utils.checkpoint(layer, lambda x: forward(layer, x, *args, **kwargs))(hidden)
        (cache,) = given

        def inner(hidden: mx.array, *before: mx.array) -> tuple[mx.array, ...]:
            own = PassCache(window=cache.window)
            if cache.before is not None:
                own = PassCache(window=cache.window, before=Before((before[0], before[1]), cache.before.lengths))
            swapped = [own if one is cache else one for one in args]
            named = {name: own if one is cache else one for name, one in kwargs.items()}
            made = forward(layer, hidden, *swapped, **named)
            assert own.pair is not None
            return (made, *own.pair)

        before = () if cache.before is None else cache.before.pair
        made, keys, values = nn.utils.checkpoint(layer, inner)(hidden, *before)
        cache.pair = keys, values
        return made

    return run
