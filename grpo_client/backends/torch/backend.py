"""The PyTorch backend: CUDA when there, else CPU."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from grpo_client.backends.base import UpdateStats
from grpo_client.backends.draws import check_ids, extra_stop_ids, turn_end_note
from grpo_client.backends.torch.adapters import prepare_training, trainable
from grpo_client.backends.torch.attention import use_blocks
from grpo_client.backends.torch.machine import resident_bytes
from grpo_client.backends.torch.matmul import packed_weights, use_onednn
from grpo_client.backends.torch.models import load_model, quiet
from grpo_client.backends.torch.sizes import model_sizes
from grpo_client.backends.torch.state import read_state, weights_fingerprint, write_errors, write_state
from grpo_client.backends.torch.ways import Way, check_lengths, choose_way, drawn_rows, long_rows, slower
from grpo_client.config import TrainConfig
from grpo_client.data.prompts import template_of
from grpo_client.errors import ConfigError
from grpo_client.learning.array_ops import ArrayOps
from grpo_client.learning.batch import Batch, micro_batches
from grpo_client.learning.loss_inputs import LossInputs
from grpo_client.learning.loss_stats import merge_stats
from grpo_client.learning.losses import LossFn
from grpo_client.memory import ModelSizes
from grpo_client.ranks import Alone, Ranks
from grpo_client.types import Prompt, Rollout, Sampling

TORCH_OPS = ArrayOps(
    exp=torch.exp,
    expm1=torch.expm1,
    where=torch.where,
    minimum=torch.minimum,
    clip=lambda x, low, high: torch.clamp(x, min=low, max=high),
    sum=torch.sum,
    sum_rows=lambda x: x.sum(dim=-1, keepdim=True),
    max=torch.max,
    ones_like=torch.ones_like,
    stop_gradient=lambda x: x.detach(),
)
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
_PACKING_PAYS = 16  # tokens of a completion from which packing the weights costs less than it saves
_LOGPROB_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}  # mean over tokens; bfloat16 has three significant digits


class TorchBackend:
    """A transformers model, its reference where the KL needs one, and an optimizer."""

    def __init__(self, config: TrainConfig) -> None:
        self.ranks: Ranks = Alone()
        self._device = choose_device(config.device)
        self._library_bytes = 0 if self._device.startswith("cuda") else resident_bytes()
        loaded = load_model(config.model, device=self._device)
        self.tokenizer: Any = loaded.tokenizer
        self.fingerprint = weights_fingerprint(loaded.model)
        self._stop_ids = loaded.stop_ids | extra_stop_ids(config.stop, loaded.tokenizer)
        torch.manual_seed(config.seed)  # a new adapter's weights are drawn
        self._trained = prepare_training(loaded.model, config, device=self._device)
        self.model = self._trained.policy
        self.logprob_tolerance = _LOGPROB_TOLERANCE[config.dtype]
        self._temperature = config.temperature
        self._dtype = config.dtype
        self._micro_batch_tokens = config.micro_batch_tokens
        self._max_grad_norm = config.max_grad_norm
        self._optimizer: torch.optim.Optimizer = OPTIMIZERS[config.optimizer](
            _parameter_groups(self.model, weight_decay=config.weight_decay), lr=config.learning_rate, fused=True
        )
        use_onednn(self.model)
        use_blocks(self.model)
        self._way, plainer = choose_way(self.model, drawn_rows(self.model))
        turns = turn_end_note(self.tokenizer, self._stop_ids, template_of(config))
        self.notes = [note for note in (self._trained.note, plainer, turns) if note is not None]
        if config.checkpoint_activations:
            checkpoint_layers(self.model)

    def settle(self, prompts: Sequence[Prompt], *, max_completion_length: int) -> str | None:
        """Prove how passes are run on real prompts, as long as rows may become; a note where that changes the way."""
        embedding: Any = self.model.get_input_embeddings()
        check_ids(prompts, vocabulary=int(embedding.weight.shape[0]))
        rows = long_rows(prompts, completion=max_completion_length)
        check_lengths(self.model, rows)
        before = self._way
        self._way, plainer = choose_way(self.model, rows)
        return plainer if self._way is not before else None

    def _way_of(self, model: PreTrainedModel) -> Way:
        theirs = self._trained.reference_way
        return self._way if model is self.model or theirs is None else slower(theirs, self._way)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, list[Rollout]]]:
        """Groups as they finish, each with its prompt's place in `prompts`."""
        rows = min(len(prompts) * sampling.group_size, sampling.rows)
        packing = packed_weights(self.model, rows=rows) if sampling.max_tokens >= _PACKING_PAYS else nullcontext()
        with self._autocast(), packing:
            yield from self._way.sample(self.model, prompts, sampling, stop_ids=self._stop_ids)

    def with_logprobs(self, batch: Batch, *, old: bool, ref: bool) -> Batch:
        """The batch with the policy's logprobs as they are now (`old`) and those of the frozen reference (`ref`)."""
        parts = micro_batches(batch, token_budget=self._micro_batch_tokens)
        rows = [row for part in parts for row in part.rows]
        if old:
            rows = [replace(row, old_logprobs=a) for row, a in zip(rows, self._frozen(self.model, parts), strict=True)]
        if ref:
            with self._trained.reference() as reference:
                frozen = self._frozen(reference, parts)
            rows = [replace(row, ref_logprobs=a) for row, a in zip(rows, frozen, strict=True)]
        return batch.having(rows)

    @torch.no_grad()
    def _frozen(self, model: PreTrainedModel, parts: Sequence[Batch]) -> list[list[float]]:
        """The logprobs of each row, (T,), part by part."""
        logprobs = []
        for part in parts:
            array, _ = self._logprobs(model, part)
            logprobs += [one[: len(row.token_ids)].tolist() for one, row in zip(array, part.rows, strict=True)]
        return logprobs

    def _logprobs(self, model: PreTrainedModel, part: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logprobs and mask, (B, T), of a part's rows."""
        with self._autocast():
            return self._way_of(model).logprobs(model, part, temperature=self._temperature)

    def update(self, batch: Batch, loss_fn: LossFn, *, learning_rate: float) -> UpdateStats:
        """One optimizer step; none where no row makes a gradient. Rows left out stay in the denominators."""
        self._optimizer.zero_grad(set_to_none=True)
        parts = micro_batches(batch, token_budget=self._micro_batch_tokens)
        counts = replace(batch.denominators, micro_batches=max(len(parts), 1))
        loss, stats = 0.0, []
        for part in parts:
            logprobs, mask = self._logprobs(self.model, part)
            outputs = loss_fn(TORCH_OPS, self._inputs(part, logprobs, mask), counts)
            outputs.loss.backward()
            loss += float(outputs.loss.detach())
            stats.append(outputs.stats)
        norm = float(torch.nn.utils.clip_grad_norm_(trainable(self.model), self._max_grad_norm)) if stats else 0.0
        applied = math.isfinite(loss) and math.isfinite(norm)
        if applied and stats:
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return UpdateStats(loss, norm, applied, merge_stats(stats))

    @torch.no_grad()
    def loss(self, batch: Batch, loss_fn: LossFn) -> UpdateStats:
        """The loss of a batch as if the policy had just sampled it: nothing is learnt, and no gradient made."""
        parts = micro_batches(batch, token_budget=self._micro_batch_tokens)
        counts = replace(batch.denominators, micro_batches=max(len(parts), 1))
        loss, stats = 0.0, []
        for part in parts:
            logprobs, mask = self._logprobs(self.model, part)
            inputs = replace(self._inputs(part, logprobs, mask), sampling_logprobs=logprobs)
            outputs = loss_fn(TORCH_OPS, inputs, counts)
            loss += float(outputs.loss)
            stats.append(outputs.stats)
        return UpdateStats(loss, 0.0, math.isfinite(loss), merge_stats(stats))

    def _inputs(self, part: Batch, logprobs: torch.Tensor, mask: torch.Tensor) -> LossInputs:
        def padded(lists: Sequence[Sequence[float] | None]) -> torch.Tensor | None:
            if any(one is None for one in lists):
                return None
            array = torch.zeros(logprobs.shape, dtype=logprobs.dtype)
            for i, one in enumerate(lists):
                array[i, : len(one or ())] = torch.tensor(one, dtype=logprobs.dtype)
            return array.to(self._device)

        return LossInputs(
            logprobs=logprobs,
            advantages=torch.tensor([row.advantage for row in part.rows], dtype=logprobs.dtype, device=self._device),
            mask=mask,
            old_logprobs=padded([row.old_logprobs for row in part.rows]),
            ref_logprobs=padded([row.ref_logprobs for row in part.rows]),
            sampling_logprobs=padded([row.sampling_logprobs for row in part.rows]),
        )

    def _autocast(self) -> AbstractContextManager[Any]:
        """Float32 weights, computed with in the chosen dtype."""
        if self._dtype == "float32":
            return nullcontext()
        return torch.autocast(self._device.partition(":")[0], dtype=getattr(torch, self._dtype))

    def save(self, path: Path) -> None:
        """Model (or adapter), tokenizer and generation config in Hugging Face format. Raises OSError."""
        with quiet(), write_errors():
            self._trained.save(path)
            self.tokenizer.save_pretrained(path)

    def save_state(self, path: Path) -> None:
        """What `save` leaves out and an exact resume needs: optimizer and random generators. Raises OSError."""
        with write_errors():
            write_state(path, self._optimizer, device=self._device)

    def load_state(self, path: Path) -> None:
        """The weights that `save` wrote into this folder, and what `save_state` did. Raises ConfigError."""
        self._trained.load(path)
        read_state(path, self._optimizer, device=self._device)

    def sizes(self) -> ModelSizes:
        """Of the model with its adapter."""
        return model_sizes(self.model, library_bytes=self._library_bytes)

    def peak_memory_gb(self) -> float:
        """The most memory that was in use at a time: of the device, or of the process on a CPU."""
        if self._device.startswith("cuda"):
            return torch.cuda.max_memory_allocated(self._device) / 1e9
        unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def choose_device(name: str) -> str:
    """`auto` is CUDA when there, else the CPU. Raises ConfigError for CUDA where there is none."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.device(name)
    except RuntimeError:
        raise ConfigError(f"--device {name}: there is no such device; write auto, cpu, cuda or cuda:1") from None
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: this PyTorch ({torch.__version__}) sees no CUDA device; use --device cpu")
    return name


def checkpoint_layers(model: PreTrainedModel) -> None:
    """Keep only what goes into each layer, and compute the layer again in the backward pass.

    transformers' own switch turns the cache off, and with it the shared prompts; our cache may be run through twice.
    """
    for layer in [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]:
        layer.forward = _checkpointed(layer.forward)


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def _parameter_groups(model: PreTrainedModel, *, weight_decay: float) -> list[dict[str, Any]]:
    parameters = trainable(model)
    return [
        {"params": [one for one in parameters if one.dim() >= 2], "weight_decay": weight_decay},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
