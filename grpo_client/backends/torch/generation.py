"""Sampling as transformers itself generates: each prompt's group by itself, on the caches that the model makes.

For models whose layers keep more than keys and values, or share them: slower than `sampling`, and as right as the
model's own `generate`. The noise is the same, so the same logits give the same tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel, StoppingCriteria
from transformers.generation.stopping_criteria import StoppingCriteriaList

from grpo_client.backends.torch.sampling import Drawn
from grpo_client.types import Prompt, Rollout, Sampling


@torch.no_grad()
def generate_groups(
    model: PreTrainedModel,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    stop_ids: frozenset[int],
    use_cache: bool = True,
) -> Iterator[tuple[int, list[Rollout]]]:
    """Sample `group_size` completions of each prompt; yield (place of the prompt, rollouts) as groups finish.

    use_cache: without it, each token runs the whole row again.
    """
    drawn = Drawn(prompts, sampling, stop_ids, device=model.device)
    for place, prompt in enumerate(prompts):
        group = _Group(drawn, place, sampling.group_size, device=model.device)
        ids = torch.tensor([prompt.token_ids] * sampling.group_size, device=model.device)
        with _nothing_but(model, GenerationConfig(max_new_tokens=sampling.max_tokens, use_cache=use_cache)):  # type: ignore[no-untyped-call]
            cast("Any", model).generate(
                ids,
                attention_mask=torch.ones_like(ids),
                logits_processor=LogitsProcessorList([group]),
                stopping_criteria=StoppingCriteriaList([_Over(group)]),
            )
        yield place, drawn.rollouts(place)


class _Group(LogitsProcessor):
    """Draws each next token, and leaves `generate` nothing else to choose."""

    def __init__(self, drawn: Drawn, place: int, size: int, *, device: torch.device) -> None:
        self._drawn = drawn
        self._rows = torch.arange(place * size, (place + 1) * size, device=device)
        self.alive = np.ones(size, dtype=bool)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token, ended = self._drawn.draw(self._rows, scores.float(), self.alive)
        self.alive &= ~ended
        return torch.full_like(scores, -torch.inf).scatter(1, token[:, None], 0.0)


class _Over(StoppingCriteria):
    """Every completion of the group has ended. Until then `generate` goes on with all of them."""

    def __init__(self, group: _Group) -> None:
        self._group = group

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), not self._group.alive.any(), device=input_ids.device)


@contextlib.contextmanager
def _nothing_but(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """With this generation config alone: the model's own would bring penalties, stop tokens and the like."""
    own, model.generation_config = model.generation_config, config
    try:
        yield
    finally:
        model.generation_config = own
