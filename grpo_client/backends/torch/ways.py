"""How a model's passes are run: the fastest way that gives what its own forward gives, proven on rows of ids.

Sharing prompts, caches and attention of our own save most of the work of a step, and each assumes something of a model.
None of it is taken on trust: a way is held to `model(ids).logits` of single rows, and one that differs, or raises, is
not this model's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from transformers import PreTrainedModel

from grpo_client.backends.torch.attention import shares_in_blocks, use_plain
from grpo_client.backends.torch.forward import Logprobs, shared_logprobs, whole_logprobs
from grpo_client.backends.torch.generation import generate_groups
from grpo_client.backends.torch.sampling import sample_groups
from grpo_client.errors import ConfigError
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.types import Prompt, Rollout, Sampling

TOLERANCE = 1e-3  # nats, of any token, in float32: rounding stays below, and no fault does
_TEMPERATURE = 0.7  # that the head is not run at 1 by chance
_SAMPLED = 6  # tokens of each probe's sample

Sample = Callable[..., Iterator[tuple[int, list[Rollout]]]]
_RAISED = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)  # by a way that misfits


@dataclass(frozen=True)
class Way:
    """One way to run the passes of training and sampling."""

    name: str
    logprobs: Logprobs
    sample: Sample


SHARED = Way("prompts shared by their completions", shared_logprobs, sample_groups)
WHOLE = Way("every row whole, sampled with the model's own cache", whole_logprobs, generate_groups)
UNCACHED = Way("every row whole, sampled without a cache", whole_logprobs, partial(generate_groups, use_cache=False))
_WAYS = (SHARED, WHOLE, UNCACHED)


def slower(*ways: Way) -> Way:
    """The one of them that assumes least."""
    return max(ways, key=_WAYS.index)


@dataclass(frozen=True)
class Row:
    """A row to prove a way on."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def drawn_rows(model: PreTrainedModel) -> list[Row]:
    """Two rows of random ids and unequal lengths."""
    embedding: Any = model.get_input_embeddings()
    vocabulary = int(embedding.weight.shape[0])
    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 13), (31, 9))
    drawn = [torch.randint(vocabulary, (sum(shape),), generator=generator).tolist() for shape in shapes]
    return [Row(tuple(ids[:prompt]), tuple(ids[prompt:])) for ids, (prompt, _) in zip(drawn, shapes, strict=True)]


def long_rows(prompts: Sequence[Prompt], *, completion: int) -> list[Row]:
    """The shortest and the longest prompt, each with as many tokens behind it as a completion may have."""
    by_length = sorted(prompts, key=lambda prompt: len(prompt.token_ids))
    ends = [by_length[0], by_length[-1]][: len(by_length)]
    text = itertools.cycle(token for prompt in (*ends, *by_length[:8]) for token in prompt.token_ids)
    return [Row(prompt.token_ids, tuple(itertools.islice(text, max(completion, _SAMPLED + 1)))) for prompt in ends]


@torch.no_grad()
def check_lengths(model: PreTrainedModel, rows: Sequence[Row]) -> None:
    """Raise ConfigError where a row is longer than the model's positions reach, or moves what stands before its end."""
    for row in rows:
        length = len(row.prompt) + len(row.completion)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        advice = "lower --max-prompt-length or --max-completion-length"
        try:
            whole = own_logprobs(model, row.prompt, row.completion)
        except (IndexError, RuntimeError) as error:
            if limit is None or length <= limit:
                raise
            raise ConfigError(
                f"rows may have {length} tokens, and this model's positions end at {limit}: {advice}"
            ) from error
        early = own_logprobs(model, row.prompt, row.completion[:1])
        gap = _gap(whole[:1], early)
        if not gap <= TOLERANCE:
            raise ConfigError(
                f"{type(model).__name__} computes earlier tokens anew as a row grows to {length} tokens (by {gap:.2g} "
                f"in logprobs; rope scaling {_scaling(model)}): what was sampled could not be learnt from; {advice}"
            )


def _scaling(model: PreTrainedModel) -> str:
    rope: Any = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    kept = {key: rope[key] for key in ("rope_type", "original_max_position_embeddings") if key in rope}
    return ", ".join(f"{key} {value}" for key, value in kept.items()) or "unknown"


def choose_way(model: PreTrainedModel, rows: Sequence[Row]) -> tuple[Way, str | None]:
    """The fastest way that holds on all rows, and a note where it is not the fastest there is.

    May turn attention in blocks off. Raises ConfigError where no way holds.
    """
    found: list[str] = []
    blocks = shares_in_blocks(model)
    fault = fault_of(SHARED, model, rows)
    if fault is None:
        return SHARED, None
    found.append(f"{SHARED.name}: {fault}")
    if blocks:
        use_plain(model)
        fault = fault_of(SHARED, model, rows)
        if fault is None:
            return SHARED, f"PyTorch's attention instead of attention in blocks ({found[0].partition(': ')[2]})"
    for way in (WHOLE, UNCACHED):
        fault = fault_of(way, model, rows)
        if fault is None:
            return way, f"slower passes for this model, {way.name} ({found[0]})"
        found.append(f"{way.name}: {fault}")
    raise ConfigError(
        f"{type(model).__name__}: no way to run it gives what its own forward gives, so its numbers would be wrong. "
        + "; ".join(found)
    )


@torch.no_grad()
def fault_of(way: Way, model: PreTrainedModel, rows: Sequence[Row]) -> str | None:
    """How a way differs from the model's own forward on these rows; None where it does not."""
    try:
        logprobs, _ = way.logprobs(model, _batch(rows), temperature=_TEMPERATURE)
        trained = (
            _gap(own_logprobs(model, row.prompt, row.completion), one[: len(row.completion)])
            for row, one in zip(rows, logprobs, strict=True)
        )
        for what, gaps in (("", trained), ("sampled ", _sampling_gaps(way, model, rows))):
            wide = next((gap for gap in gaps if not gap <= TOLERANCE), None)  # also where it is NaN
            if wide is not None:
                return f"{what}logprobs differ by {wide:.2g}"
        return None
    except ConfigError:
        raise
    except _RAISED as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else 'no message'}"


def _sampling_gaps(way: Way, model: PreTrainedModel, rows: Sequence[Row]) -> Iterator[float]:
    """Of a few tokens sampled after all but the last of each row, so that they stand as deep as its completion does."""
    prompts = [Prompt(place, [], (*row.prompt, *row.completion[:-_SAMPLED]), "") for place, row in enumerate(rows)]
    sampling = Sampling(group_size=1, max_tokens=_SAMPLED, temperature=_TEMPERATURE, ignore_eos=True)
    for place, group in way.sample(model, prompts, sampling, stop_ids=frozenset()):
        for rollout in group:
            own = own_logprobs(model, prompts[place].token_ids, rollout.token_ids)
            yield _gap(own, torch.tensor(rollout.sampling_logprobs))


def own_logprobs(model: PreTrainedModel, prompt: Sequence[int], completion: Sequence[int]) -> torch.Tensor:
    """What the model's own forward gives a completion's tokens, (T,): one row, no cache, no mask, no padding.

    Raises ConfigError where that is not finite.
    """
    ids = torch.tensor([[*prompt, *completion]], device=model.device)
    # Of a long prompt over a large vocabulary, all logits would be gigabytes.
    few = {"logits_to_keep": len(completion) + 1} if "logits_to_keep" in signature(model.forward).parameters else {}
    logits: Any = model(input_ids=ids, use_cache=False, **few).logits[0, -len(completion) - 1 : -1]
    logits = logits.float() / _TEMPERATURE
    chosen: torch.Tensor = logits.gather(-1, ids[0, len(prompt) :, None])[:, 0] - logits.logsumexp(-1)
    if not chosen.isfinite().all():
        raise ConfigError(
            f"the logits of this {type(model).__name__} are not finite: its weights are broken (NaN or infinite in its "
            "files, or a training that went wrong). Get them anew, or take an earlier checkpoint"
        )
    return chosen


def _gap(own: torch.Tensor, other: torch.Tensor) -> float:
    return float((own.cpu() - other.cpu()).abs().max())


def _batch(rows: Sequence[Row]) -> Batch:
    made = [
        CompletionRow(place, 0, list(row.completion), [0.0] * len(row.completion), None, 0.0)
        for place, row in enumerate(rows)
    ]
    lengths = [len(row.completion) for row in rows]
    return Batch(
        [row.prompt for row in rows], made, Denominators.from_lengths(lengths, max_completion_length=max(lengths))
    )
