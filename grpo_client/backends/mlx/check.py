"""At start-up, on the user's machine: batches must give the numbers of single rows.

Older MLX turned rows of a batch by wrong angles on Metal, in decoding alone (ml-explore/mlx issue 3494), which no test
on another machine shows.
"""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from grpo_client.backends.mlx.forward import Logprobs, plain_logprobs
from grpo_client.backends.mlx.head import ModelParts
from grpo_client.backends.mlx.models import versions
from grpo_client.errors import ConfigError
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators

_PROMPTS = [(11, 7, 5, 3), (2, 13, 17, 19, 23, 29, 31)]
_COMPLETION = [3, 1, 4, 1, 5]


def check_batches(parts: ModelParts, logprobs_of: Logprobs, *, name: str, tolerance: float) -> None:
    """Logprobs of a few tokens, row by row without a cache, against two batched passes. Raises ConfigError.

    One is the training pass, the other decodes a token at a time on mlx-lm's caches, as the sampler does.
    """
    batch = _batch(_PROMPTS)
    single = mx.concatenate([plain_logprobs(parts, _batch([one]), temperature=1.0)[0] for one in _PROMPTS])
    for what, batched in (
        ("the training pass", logprobs_of(parts, batch, temperature=1.0)[0]),
        ("decoding", _decoded(parts)),
    ):
        gap = float(mx.mean(mx.abs(batched - single)))
        if not gap <= tolerance:  # also when it is NaN
            raise ConfigError(
                f"--model {name}: a batch gives other logprobs than its rows alone ({what}, {gap:.2g} apart on "
                f"average; at most {tolerance:g} is rounding). Bring mlx and mlx-lm up to date ({versions()}), or try "
                "--device cpu; please report it if it stays"
            )


def _batch(prompts: list[tuple[int, ...]]) -> Batch:
    rows = [
        CompletionRow(i, 0, _COMPLETION, [0.0] * len(_COMPLETION), None, advantage=0.0) for i in range(len(prompts))
    ]
    lengths = [len(_COMPLETION)] * len(rows)
    return Batch(prompts, rows, Denominators.from_lengths(lengths, max_completion_length=len(_COMPLETION)))


def _decoded(parts: ModelParts) -> mx.array:
    each = []
    for prompt in _PROMPTS:
        caches = make_prompt_cache(parts.model)
        parts.hidden(mx.array(prompt[:-1])[None], caches)
        each.append(caches)
    merged = [layer[0].merge(list(layer)) for layer in zip(*each, strict=True)]
    given = [[prompt[-1] for prompt in _PROMPTS], *[[token] * len(_PROMPTS) for token in _COMPLETION[:-1]]]
    columns = []
    for tokens, wanted in zip(given, _COMPLETION, strict=True):
        hidden = parts.hidden(mx.array(tokens)[:, None], merged)[:, -1]
        logits = parts.logits(hidden).astype(mx.float32)
        columns.append(logits[:, wanted] - mx.logsumexp(logits, axis=-1))
    return mx.stack(columns, axis=1)
