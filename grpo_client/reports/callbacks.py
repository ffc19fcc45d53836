"""What a run tells to code of others: `train(config, callbacks=[...])`."""

from __future__ import annotations

from pathlib import Path

from grpo_client.config import TrainConfig
from grpo_client.evaluation import Evaluation
from grpo_client.types import Metrics


class Callback:
    """Hears of a run as it goes. Override what you need; called in the training thread, in the order of the list.

    What a callback raises ends the run: catch what may pass.
    """

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        """The run begins, or goes on after a resume; `folder` is where it is kept."""

    def on_step(self, row: Metrics) -> None:
        """The row of metrics.jsonl of a step, `eval/*` included where it was evaluated; step 0 is before training."""

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """A held-out evaluation with every completion."""

    def on_save(self, step: int, path: Path) -> None:
        """A whole model or checkpoint is in `path`."""

    def on_end(self, folder: Path) -> None:
        """The run ends, also where it fails; the files in `folder` are written."""
