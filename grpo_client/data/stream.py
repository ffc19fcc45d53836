"""The prompts of each step, and where in them a run is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grpo_client.errors import ConfigError
from grpo_client.types import Prompt


class PromptStream:
    """Each step's prompts, and single ones out of them for resampling. Its position is part of a checkpoint.

    Raises ConfigError from `take` when the order, of a caller's making, ends or has a step without prompts.
    """

    def __init__(self, order: Iterable[list[Prompt]], prompts: Sequence[Prompt]) -> None:
        self.prompts = prompts
        self._order = iter(order)
        self._by_index = {prompt.index: prompt for prompt in prompts}
        self._taken = 0
        self._spare: list[Prompt] = []

    def take(self) -> list[Prompt]:
        """The next step's."""
        prompts = next(self._order, None)
        if not prompts:
            what = "ends" if prompts is None else "has a step without prompts"
            raise ConfigError(f"the prompt order {what} after {self._taken} steps; give more, or take fewer --steps")
        self._taken += 1
        return prompts

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
