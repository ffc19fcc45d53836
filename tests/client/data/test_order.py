"""Which prompts each step takes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_client.config import TrainConfig
from grpo_client.data.order import prompt_order, steps_of, with_steps
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt


def configured(**changes: object) -> TrainConfig:
    return TrainConfig.model_validate({"suite": "r1@1"} | changes)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Prompt], dict[str, Any]]:
    """Prompts whose indices have gaps, as those of filtered data have, and the arguments of a stream of them."""
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=25))
    prompts = [Prompt(3 * place, [], (0,) * length, "") for place, length in enumerate(lengths)]
    return prompts, {
        "size": draw(st.integers(1, len(prompts))),
        "seed": draw(st.integers(0, 3)),
        "shuffle": draw(st.booleans()),
        "length_buckets": draw(st.booleans()),
    }


@given(streams())
def test_every_prompt_comes_once_an_epoch_and_never_twice_in_a_step(case: tuple[list[Prompt], dict[str, Any]]) -> None:
    prompts, options = case
    count, size = len(prompts), options["size"]
    steps = list(itertools.islice(prompt_order(prompts, **options), steps_of(4, count, size)))
    order = [prompt.index for step in steps for prompt in step]
    everyone = sorted(prompt.index for prompt in prompts)
    assert [sorted(order[start : start + count]) for start in range(0, 4 * count, count)] == [everyone] * 4
    assert all(len({prompt.index for prompt in step}) == len(step) == size for step in steps)


@given(streams(), st.integers(0, 12))
def test_the_stream_depends_on_its_arguments_alone_so_a_run_can_skip_ahead(
    case: tuple[list[Prompt], dict[str, Any]], skipped: int
) -> None:
    prompts, options = case
    whole = list(itertools.islice(prompt_order(prompts, **options), skipped + 3))
    assert list(itertools.islice(prompt_order(prompts, **options), skipped, skipped + 3)) == whole[skipped:]


@given(streams())
def test_length_buckets_cut_an_epoch_into_ranges_that_do_not_overlap(case: tuple[list[Prompt], dict[str, Any]]) -> None:
    prompts, options = case
    size, seed = options["size"], options["seed"]
    steps = itertools.islice(prompt_order(prompts, size=size, seed=seed, length_buckets=True), len(prompts) // size)
    ranges = sorted(
        (min(lengths), max(lengths)) for lengths in ([len(one.token_ids) for one in step] for step in steps)
    )
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))


def test_a_step_over_the_end_of_an_epoch_is_filled_with_like_lengths() -> None:
    prompts = [Prompt(i, [], (0,) * (i + 1), "") for i in range(100)]
    for step in itertools.islice(prompt_order(prompts, size=8, seed=0, length_buckets=True), 200):
        lengths = [len(prompt.token_ids) for prompt in step]
        assert max(lengths) - min(lengths) <= 16


def test_epochs_differ_when_shuffled_and_keep_the_order_of_the_data_when_not() -> None:
    prompts = [Prompt(i, [], (0,) * (10 - i), "") for i in range(10)]

    def epochs(**options: Any) -> list[tuple[int, ...]]:
        order = [
            one.index for step in itertools.islice(prompt_order(prompts, size=5, seed=0, **options), 8) for one in step
        ]
        return [tuple(order[start : start + 10]) for start in range(0, 40, 10)]

    assert len(set(epochs())) == 4
    assert len(set(epochs(length_buckets=True))) > 1
    assert set(epochs(shuffle=False)) == {tuple(range(10))}
    assert set(epochs(shuffle=False, length_buckets=True)) == {tuple(reversed(range(10)))}


@pytest.mark.parametrize("count", [0, 2])
def test_fewer_prompts_than_a_step_takes_are_refused(count: int) -> None:
    prompts = [Prompt(i, [], (i,), "") for i in range(count)]
    with pytest.raises(ConfigError, match=f"--prompts-per-step 3 is more than the {count} prompts"):
        prompt_order(prompts, size=3, seed=0)


@pytest.mark.parametrize(
    ("epochs", "prompts", "size", "steps"), [(1, 8, 4, 2), (1, 9, 4, 3), (2, 9, 4, 5), (3, 5, 5, 3)]
)
def test_epochs_are_whole_steps(epochs: int, prompts: int, size: int, steps: int) -> None:
    assert steps_of(epochs, prompts, size) == steps
    config = configured(epochs=epochs, prompts_per_step=size)
    told = with_steps(config, [Prompt(i, [], (i,), "") for i in range(prompts)])
    assert (told.steps, told.epochs) == (steps, None)
    assert with_steps(configured(steps=7), []).steps == 7
