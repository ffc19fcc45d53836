"""One rank of two steps: `mlx.launch -n 2 python -m tests.client.backends.mlx.rank CONFIG OUTPUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grpo_client.backends.mlx.backend import MlxBackend
from grpo_client.config import TrainConfig
from grpo_client.learning.losses import make_loss
from grpo_client.ranks import own_rows
from tests.client.backends.mlx.steps import batch_of, step_batch


def main(config_file: str, output: str) -> None:
    """Each rank takes every n-th prompt; in the second step there is but one, and the other ranks have no rows."""
    config = TrainConfig.model_validate_json(Path(config_file).read_text())
    backend = MlxBackend(config)
    loss_fn = make_loss(config.loss_config())
    stats = []
    for prompts in ({0, 1, 2}, {0}):
        whole = batch_of([row for row in step_batch().rows if row.prompt in prompts])
        batch = backend.with_logprobs(own_rows(backend.ranks, whole), old=True, ref=True)
        one = backend.update(batch, loss_fn, learning_rate=1e-3)
        stats.append({"loss": one.loss, "grad_norm": one.grad_norm, "applied": one.applied} | dict(one.metrics))
    folder = Path(output) / str(backend.ranks.rank)
    backend.save(folder)
    (folder / "stats.json").write_text(json.dumps(stats))


if __name__ == "__main__":
    main(*sys.argv[1:])
