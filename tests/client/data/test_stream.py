"""Where a run is in its prompts: batches, spare ones, and going on from a position."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from grpo_client.data.order import prompt_order
from grpo_client.data.stream import PromptStream
from grpo_client.types import Prompt

PROMPTS = [Prompt(index, [], (index,), str(index)) for index in range(11)]


def stream() -> PromptStream:
    return PromptStream(prompt_order(PROMPTS, size=3, seed=5), PROMPTS)


def draw(prompts: PromptStream, action: int) -> list[int]:
    """Take a batch (0) or so many spare prompts."""
    drawn = itertools.islice(prompts.spare(), action) if action else prompts.take()
    return [prompt.index for prompt in drawn]


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_a_stream_goes_on_from_a_position_as_if_it_had_not_stopped(before: list[int], after: list[int]) -> None:
    whole, stopped, resumed = stream(), stream(), stream()
    for action in before:
        assert draw(whole, action) == draw(stopped, action)
    resumed.skip_to(json.loads(json.dumps(stopped.position())))
    assert [draw(resumed, action) for action in after] == [draw(whole, action) for action in after]


def test_spare_prompts_come_from_batches_of_their_own() -> None:
    prompts = stream()
    first, spare, second = prompts.take(), list(itertools.islice(prompts.spare(), 2)), prompts.take()
    plain = prompt_order(PROMPTS, size=3, seed=5)
    expected = [next(plain) for _ in range(3)]
    assert [first, spare, second] == [expected[0], expected[1][:2], expected[2]]
