"""The prompts of each step, and where in them a run is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from grpo_client.errors import ConfigError
from grpo_client.types import Prompt

Batches = Callable[..., Iterable[list[Prompt]]]  # (prompts, *, size, seed) -> the prompts of each step, without end


class PromptStream:
    """Batches without end, and single prompts out of them for resampling. Its position is part of a checkpoint.

    Raises ConfigError from `take` when the batches, of a caller's making, end or are empty.
    """

    def __init__(self, batches: Iterable[list[Prompt]], prompts: Sequence[Prompt]) -> None:
        self._batches = iter(batches)
        self._by_index = {prompt.index: prompt for prompt in prompts}
        self._taken = 0
        self._spare: list[Prompt] = []

    def take(self) -> list[Prompt]:
        """The next batch."""
        batch = next(self._batches, None)
        if not batch:
            what = "have ended" if batch is None else "go on with an empty one"
            raise ConfigError(f"the batches {what} after {self._taken}; give more of them, or take fewer --steps")
        self._taken += 1
        return batch

    def spare(self) -> Iterator[Prompt]:
        """Prompts one by one, in place of those of dead groups."""
        while True:
            if not self._spare:
                self._spare = list(self.take())
            yield self._spare.pop(0)

    def position(self) -> dict[str, Any]:
        """Where the stream is, as JSON."""
        return {"batches": self._taken, "spare": [prompt.index for prompt in self._spare]}

    def skip_to(self, position: Mapping[str, Any]) -> None:
        """Go on from where another stream over the same prompts was."""
        while self._taken < position["batches"]:
            self.take()
        self._spare = [self._by_index[index] for index in position["spare"]]
