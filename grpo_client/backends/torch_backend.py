"""The PyTorch backend: CUDA when there, else CPU."""

from __future__ import annotations

import copy
import math
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from grpo_client.array_ops import ArrayOps
from grpo_client.backends.base import UpdateStats
from grpo_client.backends.torch_forward import completion_logprobs, run_prompts
from grpo_client.backends.torch_models import load_model, quiet
from grpo_client.backends.torch_sampling import sample_groups
from grpo_client.batch import Batch, Row, micro_batches
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.loss_inputs import LossInputs
from grpo_client.loss_stats import merge_stats
from grpo_client.losses import LossFn
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


class TorchBackend:
    """A transformers model, its frozen reference where the KL needs one, and AdamW."""

    def __init__(self, config: TrainConfig) -> None:
        self._device = choose_device(config.device)
        loaded = load_model(config.model, device=self._device)
        self.tokenizer: Any = loaded.tokenizer
        self.model = loaded.model
        self._stop_ids = loaded.stop_ids
        self._reference = frozen_copy(self.model) if config.kl_coef > 0 else None
        self._temperature = config.temperature
        self._dtype = config.dtype
        self._micro_batch_tokens = config.micro_batch_tokens
        self._skip_flat_rows = config.kl_coef == 0
        self._max_grad_norm = config.max_grad_norm
        self._optimizer = torch.optim.AdamW(
            _parameter_groups(self.model, weight_decay=config.weight_decay), lr=config.learning_rate
        )

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, list[Rollout]]]:
        """Groups as they finish, each with its prompt's place in `prompts`."""
        with self._autocast():
            yield from sample_groups(self.model, prompts, sampling, stop_ids=self._stop_ids)

    def with_logprobs(self, batch: Batch, *, old: bool, ref: bool) -> Batch:
        """The batch with the policy's logprobs as they are now (`old`) and those of the frozen reference (`ref`)."""
        rows: list[Row] = []
        for part in micro_batches(batch, token_budget=self._micro_batch_tokens):
            old_logprobs = self._frozen_logprobs(self.model, part) if old else [None] * len(part.rows)
            ref_logprobs = self._frozen_logprobs(self._reference, part) if ref else [None] * len(part.rows)
            rows += [
                replace(row, old_logprobs=a, ref_logprobs=b)
                for row, a, b in zip(part.rows, old_logprobs, ref_logprobs, strict=True)
            ]
        return batch.having(rows)

    @torch.no_grad()
    def _frozen_logprobs(self, model: PreTrainedModel | None, part: Batch) -> list[list[float]]:
        assert model is not None, "a reference is kept only when kl_coef > 0"
        logprobs, _ = self._logprobs(model, part)
        return [one[: len(row.token_ids)].tolist() for one, row in zip(logprobs, part.rows, strict=True)]

    def _logprobs(self, model: PreTrainedModel, part: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Logprobs and mask, (B, T), of a part's rows; each of its prompts is run once."""
        used = sorted({row.prompt for row in part.rows})
        with self._autocast():
            prefix = run_prompts(model, [part.prompts[place] for place in used])
            prefix = prefix.select(torch.tensor([used.index(row.prompt) for row in part.rows], device=self._device))
            return completion_logprobs(
                model, prefix, [row.token_ids for row in part.rows], temperature=self._temperature
            )

    def update(self, batch: Batch, loss_fn: LossFn) -> UpdateStats:
        """One optimizer step. Rows of zero advantage add nothing without a KL: they stay in the denominator alone."""
        self._optimizer.zero_grad(set_to_none=True)
        rows = [row for row in batch.rows if row.advantage != 0] if self._skip_flat_rows else batch.rows
        loss, stats = 0.0, []
        for part in micro_batches(batch.having(rows), token_budget=self._micro_batch_tokens):
            logprobs, mask = self._logprobs(self.model, part)
            outputs = loss_fn(TORCH_OPS, self._inputs(part, logprobs, mask), batch.denominators)
            outputs.loss.backward()
            loss += float(outputs.loss.detach())
            stats.append(outputs.stats)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._max_grad_norm)) if stats else 0.0
        applied = math.isfinite(loss) and math.isfinite(norm)
        if applied:
            self._optimizer.step()
        return UpdateStats(loss, norm, applied, merge_stats(stats))

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
        """Model, tokenizer and generation config in Hugging Face format."""
        with quiet():
            self.model.save_pretrained(path)
            self.tokenizer.save_pretrained(path)

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
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: this PyTorch ({torch.__version__}) sees no CUDA device; use --device cpu")
    return name


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that takes no gradient: the reference of a full fine-tune."""
    reference = copy.deepcopy(model)
    reference.requires_grad_(False)
    return reference


def _parameter_groups(model: PreTrainedModel, *, weight_decay: float) -> list[dict[str, Any]]:
    parameters = [one for one in model.parameters() if one.requires_grad]
    return [
        {"params": [one for one in parameters if one.dim() >= 2], "weight_decay": weight_decay},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
