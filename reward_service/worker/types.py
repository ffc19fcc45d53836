"""The values that travel between the worker's loop and a reward function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCORED = "scored"
NO_ANSWER = "no_answer"
BAD_GOLD = "bad_gold"
TOO_LARGE = "too_large"
ERROR = "error"


@dataclass(frozen=True, slots=True)
class Item:
    """One completion and what is known about it. `gold` is one string: of a list of golds the caller tries each."""

    completion: str
    gold: str | None = None
    prompt: tuple[Mapping[str, str], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    token_count: int | None = None
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """An answer inside a completion: its text, the name of the rule that found it, its span in code points if known."""

    answer: str
    by: str
    span: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reward says of one item: a number (`scored`, `no_answer`), or None with the status that says why not."""

    value: float | None
    status: str = SCORED
    found: Found | None = None
    error: str | None = None


class BadGold(Exception):
    """The gold is missing, or cannot be read by the rule that needs it: the data set's fault, never the policy's."""


class TooLarge(Exception):
    """A guard refuses the work before it begins: it could not end within the item's clock or memory."""
