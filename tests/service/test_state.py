"""What a service takes in, by its settings."""

from __future__ import annotations

import pytest

from reward_service.errors import ProblemError
from reward_service.pool.jobs import Chunk, Job, Portion
from reward_service.settings import Settings
from reward_service.state import Service
from reward_service.worker.messages import PortionContent
from tests.service.test_scoring import resolved


@pytest.mark.parametrize(
    ("limit", "asked", "given"),
    [(9_000, None, 9_000), (9_000, 500, 500), (9_000, 9_000, 9_000), (9_000, 90_000, 9_000)],
)
def test_a_request_waits_as_long_as_it_asks_and_never_beyond_the_limit(
    limit: int, asked: int | None, given: int
) -> None:
    assert Service(Settings(max_deadline_ms=limit)).deadline_ms(asked) == given


def served() -> Service:
    """A service that takes 200 units; it knows a reward and has started no worker, so that all waits."""
    service = Service(Settings(max_queued_units=200, max_completions=100))
    service.served.rewards = {"a.b@1": resolved("one").info}
    return service


def queued(service: Service, units: int) -> None:
    content: PortionContent = {"rewards": [], "golds": None, "prompt": [], "metadata": {}, "completions": []}
    chunk = Chunk("default", [Portion(content, [(unit, 0, 0) for unit in range(units)])])
    service.pool.submit(Job([chunk], units))


@pytest.mark.parametrize(
    ("waiting", "completions", "rewards", "code"),
    [
        (0, 100, 2, None),
        (0, 100, 3, 429),
        (0, 101, 1, 413),
        (199, 1, 1, None),
        (200, 1, 1, 429),
        (150, 25, 2, None),
        (151, 25, 2, 429),
        (200, 0, 5, None),
    ],
)
def test_a_request_is_taken_while_it_and_what_waits_fit_the_queue(
    waiting: int, completions: int, rewards: int, code: int | None
) -> None:
    service = served()
    queued(service, waiting)
    if code is None:
        service.admit(completions, rewards)
        return
    with pytest.raises(ProblemError) as refused:
        service.admit(completions, rewards)
    assert refused.value.status_code == code
