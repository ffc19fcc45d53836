"""What a reward may declare, and what a catalogue may hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from reward_service.worker.catalogue import Catalogue, Reward, reward


def plain(item: Any) -> float:
    """Nothing."""
    return 0.0


def with_parameters(item: Any, *, most: int = 3, share: float = 0.5, strict: bool = False, tag: str = "a") -> float:
    """Nothing."""
    return 0.0


def without_default(item: Any, *, most: int) -> float:
    """Nothing."""
    return 0.0


def without_type(item: Any, *, most=3) -> float:  # type: ignore[no-untyped-def]
    """Nothing."""
    return 0.0


def declared(function: Callable[..., float] = plain, name: str = "t.one", version: int = 1, **more: Any) -> Reward:
    return reward(name, version=version, range=(0.0, 1.0), **more)(function)


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ({"needs": ("gold", "completion")}, "needs ['completion'], which no request carries"),
        ({"needs": ("group", "gold")}, "sees a whole group; let a reward that it `uses` compare with the gold"),
        ({"version": 0}, "versions count from 1, not 0"),
        ({"function": without_default}, "parameter 'most' wants a default and a type"),
        ({"function": without_type}, "parameter 'most' wants a default and a type"),
    ],
)
def test_a_reward_that_could_not_be_served_is_refused_where_it_is_declared(
    declaration: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        declared(**declaration)


def test_a_reward_is_named_with_its_version_and_described_by_its_function() -> None:
    one = declared(with_parameters, version=12, needs=("prompt",))
    assert (one.id, one.doc, one.needs, one.whole_group) == ("t.one@12", "Nothing.", ("prompt",), False)
    assert one.params == {
        "type": "object",
        "properties": {
            "most": {"type": "integer", "default": 3},
            "share": {"type": "number", "default": 0.5},
            "strict": {"type": "boolean", "default": False},
            "tag": {"type": "string", "default": "a"},
        },
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([declared(), declared(with_parameters)], "two rewards are called t.one@1"),
        ([declared(needs=("group",), uses=("t.two@1",))], "t.one@1 uses t.two@1, which is not in the catalogue"),
        ([declared(needs=("group",), uses=("t.two@1",)), declared(name="t.two", version=2)], "uses t.two@1"),
    ],
)
def test_a_catalogue_with_an_id_twice_or_one_that_is_missing_is_refused(members: list[Reward], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Catalogue(members)


def test_versions_of_a_reward_stand_side_by_side() -> None:
    one, two = declared(), declared(version=2)
    catalogue = Catalogue([one, two])
    assert [member.id for member in catalogue] == ["t.one@1", "t.one@2"]
    assert catalogue["t.one@2"] is two
