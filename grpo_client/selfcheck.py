"""Before training: the sampler and the trainer must compute the same logprobs for the same tokens.

The cheapest detector there is of a wrong mask, position, template or cache: a few short completions of unequal prompts,
sampled, then run through the pass that the update uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpo_client.backends.base import Backend
from grpo_client.errors import ConfigError
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.types import Prompt, Sampling

_TOKENS = 8
_PROMPTS = 2
_COMPLETIONS = 2


def check_sampler(backend: Backend, prompts: Sequence[Prompt], sampling: Sampling) -> str:
    """What was found, as a line for the log. Raises ConfigError when the two differ by more than rounding."""
    asked = _unequal(prompts)
    short = replace(sampling, group_size=_COMPLETIONS, max_tokens=_TOKENS, ignore_eos=True)
    rows = [
        CompletionRow(place, g, rollout.token_ids, rollout.sampling_logprobs, rollout.kept, advantage=0.0)
        for place, rollouts in backend.sample(asked, short)
        for g, rollout in enumerate(rollouts)
    ]
    counts = Denominators.from_lengths([_TOKENS] * len(rows), max_completion_length=_TOKENS)
    batch = Batch([prompt.token_ids for prompt in asked], rows, counts)
    gaps = [
        abs(sampled - trained)
        for row in backend.with_logprobs(batch, old=True, ref=False).rows
        for sampled, trained in zip(row.sampling_logprobs, row.old_logprobs or (), strict=True)
    ]
    mean = sum(gaps) / len(gaps)
    if not mean <= backend.logprob_tolerance:  # also when it is NaN
        raise ConfigError(
            f"sampler and trainer disagree about the same tokens: their logprobs differ by {mean:.2g} on average "
            f"(at most {backend.logprob_tolerance:g} is rounding). Caching or masking is wrong for this model; "
            "please report it with the model's name"
        )
    return f"sampler and trainer agree: their logprobs differ by {mean:.1g} on average, {max(gaps):.1g} at most"


def _unequal(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The shortest and the longest of the first few: a mask that is wrong shows where lengths differ."""
    first = sorted(prompts[:64], key=lambda prompt: len(prompt.token_ids))
    return [first[0], first[-1]][: min(_PROMPTS, len(first))]
