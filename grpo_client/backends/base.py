"""What the training page asks of a tensor library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grpo_client.data.prompts import Tokenizer
from grpo_client.learning.batch import Batch
from grpo_client.learning.losses import LossFn
from grpo_client.memory import ModelSizes
from grpo_client.ranks import Ranks
from grpo_client.types import Prompt, Rollout, Sampling


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """One optimizer step. `metrics` are the loss's own; `applied` is false when loss or gradient were not finite."""

    loss: float
    grad_norm: float
    applied: bool
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Device:
    """A device with memory of its own, in bytes, under the name that `--device` knows it by."""

    name: str
    model: str
    free: int
    total: int


class Backend(Protocol):
    """A model that can be sampled from and learnt with."""

    tokenizer: Tokenizer
    ranks: Ranks  # the processes that share the run
    notes: list[str]  # what was chosen for this model, for the log
    logprob_tolerance: float  # mean difference of two computations of one logprob that rounding explains
    fingerprint: str  # of the weights as training starts, adapters apart: a run resumes on these alone

    def settle(self, prompts: Sequence[Prompt], *, max_completion_length: int) -> str | None:
        """Prove on real prompts, and rows as long as they may become, that passes give what the model's forward does.

        Returns a note where a slower way is taken. Raises ConfigError where none holds, or rows may be too long.
        """

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, list[Rollout]]]:
        """Groups as they finish, each with its prompt's place in `prompts`."""

    def with_logprobs(self, batch: Batch, *, old: bool, ref: bool) -> Batch:
        """The batch with the policy's logprobs as they are now (`old`) and those of the frozen reference (`ref`)."""

    def update(self, batch: Batch, loss_fn: LossFn, *, learning_rate: float) -> UpdateStats:
        """One optimizer step on a batch, of which this rank has its own rows. Every rank must take it, rows or not."""

    def loss(self, batch: Batch, loss_fn: LossFn) -> UpdateStats:
        """The loss of a batch as if the policy had just sampled it: nothing is learnt, and no gradient made."""

    def save(self, path: Path) -> None:
        """Model (or adapter), tokenizer and generation config in Hugging Face format. Raises OSError."""

    def save_state(self, path: Path) -> None:
        """What `save` leaves out and an exact resume needs: optimizer and random generators. Raises OSError."""

    def load_state(self, path: Path) -> None:
        """The weights that `save` wrote into this folder, and what `save_state` did. Raises ConfigError."""

    def sizes(self) -> ModelSizes:
        """What an estimate of a run's memory is made from."""

    def peak_memory_gb(self) -> float:
        """The most memory that was in use at a time: of the device, or of the process on a CPU."""
