"""The MLX backend: the GPU of Apple silicon, else what MLX finds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.optimizers import clip_grad_norm
from mlx.utils import tree_map

from grpo_client.backends.base import UpdateStats
from grpo_client.backends.draws import check_ids, extra_stop_ids, turn_end_note
from grpo_client.backends.mlx.adapters import prepare_training
from grpo_client.backends.mlx.check import check_batches
from grpo_client.backends.mlx.checkpointing import checkpoint_layers
from grpo_client.backends.mlx.forward import choose_forward
from grpo_client.backends.mlx.head import ModelParts, cut_model
from grpo_client.backends.mlx.models import ignored_window, load_model, prepare_device, weights_fingerprint
from grpo_client.backends.mlx.optimizer import FloatOptimizer
from grpo_client.backends.mlx.ranks import MlxRanks
from grpo_client.backends.mlx.sampling import sample_groups
from grpo_client.backends.mlx.sizes import model_sizes
from grpo_client.backends.mlx.trees import Tree, leaves
from grpo_client.config import TrainConfig
from grpo_client.data.prompts import template_of
from grpo_client.errors import ConfigError
from grpo_client.learning.array_ops import ArrayOps
from grpo_client.learning.batch import Batch, micro_batches
from grpo_client.learning.loss_inputs import Denominators, LossInputs
from grpo_client.learning.loss_stats import LossStats, merge_stats
from grpo_client.learning.losses import LossFn
from grpo_client.memory import ModelSizes
from grpo_client.ranks import Ranks
from grpo_client.types import Prompt, Rollout, Sampling

MLX_OPS = ArrayOps(
    exp=mx.exp,
    expm1=mx.expm1,
    where=mx.where,
    minimum=mx.minimum,
    clip=mx.clip,
    sum=mx.sum,
    sum_rows=lambda x: mx.sum(x, axis=-1, keepdims=True),
    max=mx.max,
    ones_like=mx.ones_like,
    stop_gradient=mx.stop_gradient,
)
# Mean over tokens that rounding explains: bfloat16 has three significant digits; some GPUs multiply float32 as TF32.
_LOGPROB_TOLERANCE = {("float32", mx.cpu): 1e-3, ("float32", mx.gpu): 0.02}
_COARSE_TOLERANCE = 0.1


class MlxBackend:
    """A model of mlx-lm, its reference where the KL needs one, and AdamW."""

    def __init__(self, config: TrainConfig) -> None:
        self.notes = prepare_device(config.device)
        self._mlx_ranks = MlxRanks()
        self.ranks: Ranks = self._mlx_ranks
        loaded = load_model(config.model, dtype=config.dtype)
        self.tokenizer: Any = loaded.tokenizer
        self.fingerprint = weights_fingerprint(loaded.model)
        self._stop_ids = loaded.stop_ids | extra_stop_ids(config.stop, loaded.tokenizer)
        self._generation = loaded.generation
        self._model_config = loaded.config
        self._window = ignored_window(loaded)
        mx.random.seed(config.seed)  # a new adapter's weights are drawn
        self._trained = prepare_training(loaded, config)
        self.model = self._trained.policy
        self._logprobs_of, plain_note = choose_forward(self.model)
        self._parts, head_note = cut_model(self.model)
        self.logprob_tolerance = _LOGPROB_TOLERANCE.get((config.dtype, mx.default_device().type), _COARSE_TOLERANCE)
        check_batches(self._parts, self._logprobs_of, name=config.model, tolerance=self.logprob_tolerance)
        turns = turn_end_note(self.tokenizer, self._stop_ids, template_of(config))
        self.notes += [note for note in (self._trained.note, plain_note, head_note, turns) if note is not None]
        self._temperature = config.temperature
        self._micro_batch_tokens = config.micro_batch_tokens
        self._max_grad_norm = config.max_grad_norm
        self._optimizer = FloatOptimizer(
            self.model, name=config.optimizer, learning_rate=config.learning_rate, weight_decay=config.weight_decay
        )
        if config.checkpoint_activations:
            checkpoint_layers(self.model)

    def settle(self, prompts: Sequence[Prompt], *, max_completion_length: int) -> str | None:
        """Raise ConfigError for ids out of range, and where rows may grow past a window that mlx-lm's model ignores."""
        check_ids(prompts, vocabulary=self._parts.vocabulary)
        longest = max(len(prompt.token_ids) for prompt in prompts) + max_completion_length
        if self._window is not None and longest > self._window:
            raise ConfigError(
                f"rows may have {longest} tokens, and mlx-lm {version('mlx-lm')} ignores this model's sliding window "
                f"of {self._window}: beyond it its numbers are another model's. Lower --max-prompt-length or "
                "--max-completion-length, or use --backend torch"
            )
        return None

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, list[Rollout]]]:
        """Groups as they finish, each with its prompt's place in `prompts`."""
        yield from sample_groups(self.model, prompts, sampling, stop_ids=self._stop_ids)

    def with_logprobs(self, batch: Batch, *, old: bool, ref: bool) -> Batch:
        """The batch with the policy's logprobs as they are now (`old`) and those of the frozen reference (`ref`)."""
        parts = micro_batches(batch, token_budget=self._micro_batch_tokens)
        rows = [row for part in parts for row in part.rows]
        if old:
            rows = [replace(row, old_logprobs=a) for row, a in zip(rows, self._frozen(self._parts, parts), strict=True)]
        if ref:
            with self._trained.reference() as reference:
                cut = self._parts if reference is self.model else cut_model(reference)[0]
                frozen = self._frozen(cut, parts)
            rows = [replace(row, ref_logprobs=a) for row, a in zip(rows, frozen, strict=True)]
        return batch.having(rows)

    def _frozen(self, model: ModelParts, parts: Sequence[Batch]) -> list[list[float]]:
        """The logprobs of each row, (T,), part by part."""
        logprobs: list[list[float]] = []
        for part in parts:
            array, _ = self._logprobs_of(model, part, temperature=self._temperature)
            lists: Any = array.tolist()
            logprobs += [one[: len(row.token_ids)] for one, row in zip(lists, part.rows, strict=True)]
        mx.clear_cache()
        return logprobs

    def update(self, batch: Batch, loss_fn: LossFn, *, learning_rate: float) -> UpdateStats:
        """One optimizer step; none where no rank's row makes a gradient. Rows left out stay in the denominators."""
        parts = micro_batches(batch, token_budget=self._micro_batch_tokens)
        counts = replace(batch.denominators, micro_batches=max(self._mlx_ranks.count(len(parts)), 1))
        total = tree_map(mx.zeros_like, self._optimizer.weights)
        loss, stats = mx.array(0.0), []
        for part in parts:
            share, one, gradients = self._gradients(part, loss_fn, counts)
            loss, total = loss + share, tree_map(mx.add, total, gradients)
            mx.eval(loss, total, one.tokens, dict(one.means), dict(one.maxima))
            stats.append(one)
        mx.clear_cache()
        loss, total = self._mlx_ranks.total([loss, total])
        stats = self._mlx_ranks.stats(stats)
        total, norm = clip_grad_norm(total, self._max_grad_norm)
        applied = math.isfinite(loss.item()) and math.isfinite(norm.item())
        if applied and stats:
            self._optimizer.step(total, learning_rate=learning_rate)
        return UpdateStats(float(loss.item()), float(norm.item()), applied, merge_stats(stats))

    def loss(self, batch: Batch, loss_fn: LossFn) -> UpdateStats:
        """The loss of a batch as if the policy had just sampled it: nothing is learnt, and no gradient made."""
        parts = micro_batches(batch, token_budget=self._micro_batch_tokens)
        counts = replace(batch.denominators, micro_batches=max(len(parts), 1))
        loss, stats = 0.0, []
        for part in parts:
            logprobs, mask = self._logprobs_of(self._parts, part, temperature=self._temperature)
            outputs = loss_fn(MLX_OPS, replace(_inputs(part, logprobs, mask), sampling_logprobs=logprobs), counts)
            loss += float(outputs.loss.item())
            stats.append(outputs.stats)
        mx.clear_cache()
        return UpdateStats(loss, 0.0, math.isfinite(loss), merge_stats(stats))

    def _gradients(self, part: Batch, loss_fn: LossFn, counts: Denominators) -> tuple[mx.array, LossStats, Tree]:
        """A part's share of the loss, its statistics, and its gradient."""

        def loss() -> tuple[mx.array, LossStats]:
            logprobs, mask = self._logprobs_of(self._parts, part, temperature=self._temperature)
            outputs = loss_fn(MLX_OPS, _inputs(part, logprobs, mask), counts)
            return outputs.loss, outputs.stats

        weights = self.model.trainable_parameters()
        (share, stats), gradients = nn.value_and_grad(self.model, loss)()
        self.model.update(weights)  # what ran again in the backward pass has left its own arrays in the model
        return share, stats, leaves(gradients)

    def save(self, path: Path) -> None:
        """Model in Hugging Face format, or adapter in mlx-lm's, tokenizer and generation config. Raises OSError."""
        self._trained.save(path)
        self.tokenizer.save_pretrained(path)
        self._generation.save_pretrained(path)

    def save_state(self, path: Path) -> None:
        """What `save` leaves out and an exact resume needs: the optimizer and weights in float32. Raises OSError."""
        self._optimizer.write(path)

    def load_state(self, path: Path) -> None:
        """The weights and what else `save_state` wrote beside a saved model. Raises ConfigError if they misfit."""
        if not any(path.glob(self._trained.saved_as)):
            raise ConfigError(f"{path} holds no {self._trained.saved_as}; it was not saved by a run like this one")
        self._optimizer.read(path)

    def sizes(self) -> ModelSizes:
        """Of the model with its adapter."""
        return model_sizes(self._parts, self._model_config)

    def peak_memory_gb(self) -> float:
        """The most memory that MLX had in use at a time."""
        return mx.get_peak_memory() / 1e9


def _inputs(part: Batch, logprobs: mx.array, mask: mx.array) -> LossInputs:
    width = logprobs.shape[1]

    def padded(lists: Sequence[Sequence[float] | None]) -> mx.array | None:
        if any(one is None for one in lists):
            return None
        return mx.array([[*(one or ()), *[0.0] * (width - len(one or ()))] for one in lists])

    return LossInputs(
        logprobs=logprobs,
        advantages=mx.array([row.advantage for row in part.rows]),
        mask=mask,
        old_logprobs=padded([row.old_logprobs for row in part.rows]),
        ref_logprobs=padded([row.ref_logprobs for row in part.rows]),
        sampling_logprobs=padded([row.sampling_logprobs for row in part.rows]),
    )
