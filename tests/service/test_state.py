"""What a service takes in, by its settings."""

from __future__ import annotations

import pytest

from reward_service.settings import Settings
from reward_service.state import Service


@pytest.mark.parametrize(
    ("limit", "asked", "given"),
    [(9_000, None, 9_000), (9_000, 500, 500), (9_000, 9_000, 9_000), (9_000, 90_000, 9_000)],
)
def test_a_request_waits_as_long_as_it_asks_and_never_beyond_the_limit(
    limit: int, asked: int | None, given: int
) -> None:
    assert Service(Settings(max_deadline_ms=limit)).deadline_ms(asked) == given
