"""What moves a reward's digest, and what does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reward_service.worker import digest

REWARDS = '''
"""Rewards for a test."""
import re
from plugin_under_test.tables import UNITS, unused
from plugin_under_test import helpers
from reward_service.worker.catalogue import reward
from reward_service.worker.types import Item

PATTERN = re.compile(r"\\d+")
LIMIT: int = 3

def helper(text):
    """Count."""
    return len(PATTERN.findall(text)) + LIMIT

@reward("t.count", version=1, range=(0, 1))
def count_v1(item: Item) -> float:
    """Score."""
    # a comment
    return helper(item.completion) + UNITS["m"] + helpers.twice(1)

def unrelated():
    return 1
'''
TABLES = 'UNITS = {"m": 1}\nUNITS["km"] = 1000\nunused = 5\nother = 6\n'
HELPERS = "def twice(x):\n    return 2 * x\n\ndef thrice(x):\n    return 3 * x\n"


@pytest.fixture
def digest_of_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], str]]:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "plugin_under_test"
    package.mkdir()

    def compute(changes: dict[str, str]) -> str:
        for name, text in {"__init__": "", "rewards": REWARDS, "tables": TABLES, "helpers": HELPERS}.items():
            for old, new in changes.items():
                text = text.replace(old, new)
            (package / f"{name}.py").write_text(text)
        for cache in (digest._module, digest._is_module, digest._definition):
            cache.cache_clear()
        for module in [one for one in sys.modules if one.startswith("plugin_under_test")]:
            del sys.modules[module]
        closure = digest.closure_of("plugin_under_test.rewards", "count_v1")
        return digest.digest_of("t.count@1", closure=closure, params={}, uses={}, lock={})

    yield compute
    digest._definition.cache_clear()
    digest._module.cache_clear()
    digest._is_module.cache_clear()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "# another comment\n    # and one more"),
        ('"""Score."""', '"""Something else."""'),
        ('"""Count."""', ""),
        ("def helper(text):", "def helper(\n    text\n):"),
        ("item: Item) -> float", "item) -> object"),
        ("LIMIT: int = 3", "LIMIT = 3"),
        ("return 1\n", "return 2\n\ndef count_v2(item):\n    return 0.0\n"),
        ("unused = 5", "unused = 7"),
        ("other = 6", "other = 7"),
        ("return 3 * x", "return 4 * x"),
        ("range=(0, 1)", "range=(0, 2)"),
        ("Rewards for a test", "Rewards"),
    ],
)
def test_what_moves_no_number_leaves_the_digest(
    old: str, new: str, digest_of_plugin: Callable[[dict[str, str]], str]
) -> None:
    assert any(old in text for text in (REWARDS, TABLES, HELPERS))
    assert digest_of_plugin({old: new}) == digest_of_plugin({})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"\\d+", r"\\d"),
        ("LIMIT: int = 3", "LIMIT: int = 4"),
        ('"m": 1', '"m": 2'),
        ('UNITS["km"] = 1000', 'UNITS["km"] = 1001'),
        ("return 2 * x", "return 2 + x"),
        ("+ LIMIT", "- LIMIT"),
        ("import re\n", "import regex as re\n"),
        ("helpers.twice", "helpers.thrice"),
    ],
)
def test_what_can_move_a_number_moves_the_digest(
    old: str, new: str, digest_of_plugin: Callable[[dict[str, str]], str]
) -> None:
    text = {r"\\d+": "\\d+", r"\\d": "\\d"}
    old, new = text.get(old, old), text.get(new, new)
    assert any(old in one for one in (REWARDS, TABLES, HELPERS))
    assert digest_of_plugin({old: new}) != digest_of_plugin({})


def test_id_parameters_uses_and_lock_are_in_the_digest() -> None:
    base: dict[str, Any] = {"closure": {"m:f": "1"}, "params": {}, "uses": {}, "lock": {}}
    digests = {
        digest.digest_of("a@1", **base),
        digest.digest_of("a@2", **base),
        digest.digest_of("a@1", **base | {"params": {"x": 1}}),
        digest.digest_of("a@1", **base | {"uses": {"b@1": "sha256:1"}}),
        digest.digest_of("a@1", **base | {"lock": {"sympy": "1.14.0"}}),
    }
    assert len(digests) == 5
