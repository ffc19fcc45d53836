"""What uses no CPU time at all is ended by the wall limit, and its neighbours are scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.conftest import Server

PLUGIN = """
import time
from reward_service.worker.catalogue import Catalogue, reward

@reward("mine.sleeps", version=1, range=(0.0, 1.0))
def sleeps_v1(item):
    while item.completion == "sleep":
        time.sleep(3600)
    return 1.0

CATALOGUE = Catalogue([sleeps_v1])
"""


def test_a_reward_that_sleeps_is_a_timeout_by_the_wall_limit(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "sleepy_rewards.py").write_text(PLUGIN)
    server = start_server(rewards_module=tmp_path / "sleepy_rewards.py", allow_drafts=1, unit_wall_seconds=3)
    group = server.score(["mine.sleeps@1"], None, ["a", "sleep", "b"], deadline_ms=50_000)
    assert group["statuses"] == {"mine.sleeps@1": ["scored", "timeout", "scored"]}
    assert group["scores"] == {"mine.sleeps@1": [1.0, None, 1.0]}
