"""What backends share: the noise of tokens, which of them end a completion or are none, what has been drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from grpo_client.data.prompts import Template, turn_end
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt, Rollout, Sampling


def noise(prompts: Sequence[Prompt], sampling: Sampling) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), (rows, max_tokens), one stream a completion."""
    keys = [sampling.noise_key(prompt.index, g) for prompt in prompts for g in range(sampling.group_size)]
    return np.stack([np.random.default_rng(key).random(sampling.max_tokens) for key in keys])


class Drawn(Protocol):
    """What completions have got so far, in a backend's arrays: ids and logprobs (rows, max_tokens), lengths (rows,)."""

    tokens: Any
    logprobs: Any
    lengths: Any
    stopped: NDArray[np.bool_]  # (rows,)
    kept: list[list[NDArray[np.int32]]]  # of each row, of each token, the ids that it was drawn from


def rollouts_of(drawn: Drawn, place: int, sampling: Sampling) -> list[Rollout]:
    """The completions of a prompt, which all have ended."""
    rows = range(place * sampling.group_size, (place + 1) * sampling.group_size)
    return [
        Rollout(
            drawn.tokens[row, : int(drawn.lengths[row])].tolist(),
            drawn.logprobs[row, : int(drawn.lengths[row])].tolist(),
            "stop" if drawn.stopped[row] else "length",
            drawn.kept[row] if narrows(sampling) else None,
        )
        for row in rows
    ]


def narrows(sampling: Sampling) -> bool:
    """Whether a token may be left out."""
    return bool(sampling.temperature) and (sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0)


def extra_stop_ids(stops: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids of the user's stop tokens, each named by id or by text. Raises ConfigError for a text of several tokens."""
    ids = set()
    for stop in stops:
        encoded = [int(stop)] if stop.isdecimal() else tokenizer.encode(stop, add_special_tokens=False)
        if len(encoded) != 1 or not 0 <= encoded[0] < len(tokenizer):
            raise ConfigError(f"--stop {stop!r} is not one token of this model ({encoded}); name a token's text or id")
        ids.add(encoded[0])
    return frozenset(ids)


def turn_end_note(tokenizer: Any, stop_ids: frozenset[int], template: Template) -> str | None:
    """A warning where the chat template ends an answer with what is no stop token: completions run to the limit."""
    end = turn_end(tokenizer, template)
    ids = tokenizer.encode(end, add_special_tokens=False) if end else []
    if not ids or stop_ids & set(ids):
        return None
    return (
        f"warning: the chat template ends an answer with {end!r}, which holds no stop token of this "
        f"model ({_named(tokenizer, stop_ids)}): if it has learnt the template, its completions all run to the length "
        f"limit. Then add --stop {tokenizer.decode(ids[:1])!r}"
    )


def _named(tokenizer: Any, stop_ids: frozenset[int]) -> str:
    return ", ".join(repr(tokenizer.decode([one])) for one in sorted(stop_ids)) or "there is none"


def check_ids(prompts: Sequence[Prompt], *, vocabulary: int) -> None:
    """Raise ConfigError for a prompt with a token that the model has no embedding of."""
    for prompt in prompts:
        if max(prompt.token_ids, default=0) >= vocabulary:
            raise ConfigError(
                f"prompt {prompt.index + 1} has token {max(prompt.token_ids)}, and the model embeds {vocabulary}: its "
                "tokenizer is another model's, or tokens were added to it after the model was saved; get both anew"
            )
