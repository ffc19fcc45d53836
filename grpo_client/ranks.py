"""Processes that share a run: each samples and scores prompts of its own and learns from their rows; all take one step.

Every rank knows every group: advantages, denominators, metrics and decisions to stop are then the same everywhere, and
only gradients have to be added up. Groups travel as JSON, whose floats are exact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np

from grpo_client.learning.batch import Batch
from grpo_client.types import Group, Prompt, Rollout, Scores


class Ranks(Protocol):
    """The processes of a run. Every rank must make the same calls in the same order."""

    rank: int
    size: int

    def gather(self, own: bytes) -> list[bytes]:
        """What each rank gives, in the order of the ranks."""


class Alone:
    """A run of one process."""

    rank = 0
    size = 1

    def gather(self, own: bytes) -> list[bytes]:
        """What this one gives."""
        return [own]


def own_places(ranks: Ranks, count: int) -> range:
    """Which of a step's prompts belong to this rank."""
    return range(ranks.rank, count, ranks.size)


def own_rows(ranks: Ranks, batch: Batch) -> Batch:
    """The rows of this rank's prompts; the denominators stay those of the whole step."""
    return batch.having([row for row in batch.rows if row.prompt % ranks.size == ranks.rank])


def anyone(ranks: Ranks, said: bool) -> bool:
    """Whether some rank says so: all must stop after the same step."""
    return any(json.loads(one) for one in ranks.gather(json.dumps(said).encode()))


def all_groups(ranks: Ranks, own: Mapping[int, Group], prompts: Sequence[Prompt]) -> list[Group]:
    """The groups of every rank, in the order of the prompts; `own` holds this rank's by their place."""
    if ranks.size == 1:
        return [own[place] for place in range(len(prompts))]
    groups: dict[int, Group] = {}
    for message in ranks.gather(json.dumps({place: _record(group) for place, group in own.items()}).encode()):
        groups |= {int(place): _group(record, prompts[int(place)]) for place, record in json.loads(message).items()}
    return [groups[place] for place in range(len(prompts))]


def _record(group: Group) -> dict[str, Any]:
    rollouts = [
        asdict(replace(one, kept=None)) | {"kept": None if one.kept is None else [ids.tolist() for ids in one.kept]}
        for one in group.rollouts
    ]
    scores = group.scores
    return {
        "rollouts": rollouts,
        "texts": group.texts,
        "scores": [scores.totals, dict(scores.values), dict(scores.statuses)],
    }


def _group(record: Mapping[str, Any], prompt: Prompt) -> Group:
    rollouts = [
        Rollout(**one | {"kept": None if one["kept"] is None else [np.array(ids, np.int32) for ids in one["kept"]]})
        for one in record["rollouts"]
    ]
    return Group(prompt, rollouts, record["texts"], Scores(*record["scores"]))
