"""Hallmark's layout reward for any two tags; the rule of `r1.soft_format@2` and `r1.strict_format@2`."""

from __future__ import annotations

import re

from reward_service.worker.catalogue import reward
from reward_service.worker.rewards.blocks import blocks_v1, is_soft_v1, is_strict_v1
from reward_service.worker.types import Item

_TAG_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@reward("format.tags", version=1, range=(0.0, 1.0), source="Hallmark")
def tags_v1(item: Item, *, first: str = "think", second: str = "answer", strict: bool = False) -> float:
    r"""1.0 when the text is one block of each tag, balanced and in order, the second one not blank; else 0.0.

    Soft: white space before and between the blocks, anything after. Strict: every tag on a line of its own, `\n` as
    line end, and nothing more than a newline after.
    """
    if first == second or not (_TAG_NAME.fullmatch(first) and _TAG_NAME.fullmatch(second)):
        raise ValueError(f"first and second want to be two tag names, not {first!r} and {second!r}")
    blocks = blocks_v1(item.completion, first=first, second=second)
    return 1.0 if (is_strict_v1 if strict else is_soft_v1)(blocks) else 0.0
