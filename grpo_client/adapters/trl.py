"""Rewards of a service as TRL's reward functions.

    rewards = TrlRewards("http://127.0.0.1:8000", suite="r1@1", gold_column="answer")
    trainer = GRPOTrainer(model, rewards.functions, args=GRPOConfig(reward_weights=rewards.weights, …), …)

One call of the service scores a batch for all functions, one a reward, so that TRL charts each and weighs them. Where
one reward of a completion is null, all functions return None: TRL (1.16) leaves such a completion out of its group's
statistics and learns nothing from it, while a single None would count as 0 in its total.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from reward_proto import v1

from grpo_client.errors import ConfigError
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.terminal import one_line

_NOT_COLUMNS = {"trainer_state", "log_extra", "log_metric", "environments"}


class TrlRewards:
    """A suite, or rewards with their weights, of a service: resolved once, digests included (`manifest`).

    gold_column and metadata_columns name columns of the dataset, as far as the rewards need them. Rows that follow each
    other with the same prompt, gold and metadata are a group: where a reward needs it (`kimi.length@1`), each process's
    batch must hold whole groups. Raises ConfigError for what cannot be, RewardServiceError for a service that does not
    answer within `retry_seconds`.
    """

    def __init__(
        self,
        url: str,
        *,
        suite: str | None = None,
        rewards: Mapping[str, float] | None = None,
        gold_column: str = "answer",
        metadata_columns: Sequence[str] = (),
        timeout: float = 60.0,
        retry_seconds: float = 600.0,
        run_id: str | None = None,
    ) -> None:
        if (suite is None) == (rewards is None):
            raise ConfigError("name a suite, or rewards with their weights, such as {'math.equal@2': 1.0}")
        self._client = RewardClient(url, timeout=timeout, retry_seconds=retry_seconds, on_retry=_say)
        self.manifest: Manifest = self._client.resolve(suite=suite, rewards=list((rewards or {}).items()))
        self._gold_column = gold_column
        self._metadata_columns = tuple(metadata_columns)
        self._run_id = run_id
        self._last: tuple[object, dict[str, list[float | None]]] | None = None

    @property
    def weights(self) -> list[float]:
        """For `GRPOConfig(reward_weights=…)`."""
        return [spec.weight for spec in self.manifest.rewards]

    @property
    def functions(self) -> list[Callable[..., list[float | None]]]:
        """For `GRPOTrainer(reward_funcs=…)`, in the order of `weights`; TRL charts each by its name."""
        return [self._function(name) for name in self.manifest.names]

    def _function(self, name: str) -> Callable[..., list[float | None]]:
        def scores(prompts: Sequence[Any], completions: Sequence[Any], **others: Any) -> list[float | None]:
            if self._last is None or self._last[0] is not completions:  # TRL hands one batch to each function in turn
                self._last = (completions, self._score(prompts, completions, **others))
            return self._last[1][name]

        scores.__name__ = name
        return scores

    def _score(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        completion_ids: Sequence[Sequence[int]] | None = None,
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> dict[str, list[float | None]]:
        """Every reward's scores of a batch, in order; None in all where one is null."""
        groups = list(self._groups(prompts, completions, completion_ids, columns))
        run = v1.Run(id=self._run_id, step=getattr(trainer_state, "global_step", None))
        scored = self._client.score(self.manifest, groups, run=run)
        names = self.manifest.names
        if log_metric is not None:
            nulls = Counter(
                status
                for group in scored
                for name in names
                for value, status in zip(group.scores[name], group.statuses[name], strict=True)
                if value is None
            )
            for status in v1.NULL_STATUSES:
                log_metric(f"reward/null/{status}", float(nulls[status]))
        return {
            name: [
                value if all(group.scores[one][i] is not None for one in names) else None
                for group in scored
                for i, value in enumerate(group.scores[name])
            ]
            for name in names
        }

    def _groups(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Any],
    ) -> Iterator[v1.Group]:
        needs = self.manifest.needs()
        judged = "gold" in needs or any(info.uses for info in self.manifest.infos.values())
        golds = self._column(self._gold_column, columns) if judged else [None] * len(prompts)
        metadata = {name: self._column(name, columns) for name in self._metadata_columns}
        if "metadata" in needs and not metadata:
            raise ConfigError("the rewards need metadata of each row; name its columns with metadata_columns")
        if completion_ids is None and needs & {"token_count", "token_ids"}:
            raise ConfigError("the rewards need token ids, and this trainer passes no completion_ids")

        def of_row(row: int) -> dict[str, Any]:
            return (
                {"gold": golds[row]}
                | ({"prompt": prompts[row]} if "prompt" in needs else {})
                | ({"metadata": {name: values[row] for name, values in metadata.items()}} if metadata else {})
            )

        rows = itertools.groupby(range(len(prompts)), key=lambda row: (prompts[row], of_row(row)))
        for number, ((_, fields), members) in enumerate(rows):
            items = [
                {"text": text_of(completions[row])}
                | ({"token_count": len(completion_ids[row])} if completion_ids and "token_count" in needs else {})
                | ({"token_ids": list(completion_ids[row])} if completion_ids and "token_ids" in needs else {})
                for row in members
            ]
            try:
                group = v1.Group.model_validate({"id": str(number), "completions": items} | fields)
            except ValidationError as error:
                fault = error.errors(include_input=False)[0]
                where = ".".join(map(str, fault["loc"]))
                raise ConfigError(f"group {number} of the batch cannot be scored: {where}: {fault['msg']}") from error
            yield group

    def _column(self, name: str, columns: Mapping[str, Any]) -> Sequence[Any]:
        if name not in columns:
            there = ", ".join(sorted(set(columns) - _NOT_COLUMNS)) or "none"
            raise ConfigError(f"the rewards need the column {name!r}, and the dataset's other columns are: {there}")
        column: Sequence[Any] = columns[name]
        return column


def text_of(completion: Any) -> str:
    """The text of a completion: itself, or the content of the last of its chat messages."""
    if isinstance(completion, str):
        return completion
    return str(completion[-1]["content"] or "") if completion else ""


def _say(message: str) -> None:
    """A line in the log; it may hold what a service said."""
    print(one_line(message), flush=True)
