"""An alias that moves while a run goes on: pinned runs never feel it, a following one takes it up at the next step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from grpo_client.config import TrainConfig
from grpo_client.data.order import prompt_order
from grpo_client.train import train
from grpo_client.types import Prompt
from tests.client.tiny import save_tiny
from tests.conftest import Server

SUITES = """
suites:
  mine@1: {doc: One., rewards: [{id: r1.int@1}]}
  mine@2: {doc: Two., rewards: [{id: r1.count_xml@1}]}
"""
HEADERS = {"Authorization": "Bearer secret"}


@pytest.mark.parametrize(
    ("follow", "suites"),
    [(False, ["mine@1", "mine@1", "mine@1", "mine@1"]), (True, ["mine@1", "mine@1", "mine@2", "mine@2"])],
)
def test_a_moved_alias_is_taken_up_at_a_step_boundary_on_request_only(
    follow: bool, suites: list[str], start_server: Callable[..., Server], tmp_path: Path
) -> None:
    file = tmp_path / "suites.yaml"
    file.write_text(SUITES)
    server = start_server(suites=file, store=tmp_path / "aliases.db", admin_token="secret")
    url = server.url + "/v1/aliases/mine/stable"
    move = {"author": "ada", "target": "mine@1"}
    assert httpx.put(url, json=move, headers=HEADERS | {"If-None-Match": "*"}).status_code == 201

    def moving(prompts: Any, *, size: int, seed: int) -> Iterator[list[Prompt]]:
        for step, batch in enumerate(prompt_order(prompts, size=size, seed=seed), start=1):
            if step == 3:
                moved = httpx.put(url, json=move | {"target": "mine@2"}, headers=HEADERS | {"If-Match": "*"})
                assert moved.status_code == 200
            yield batch

    config = TrainConfig(
        model=save_tiny(tmp_path / "tiny"), reward_url=server.url, suite="mine@stable", follow=follow, steps=4,
        prompts_per_step=1, group_size=2, max_completion_length=4, eval_every=4, eval_prompts=2,
        eval_reward="r1.accuracy@1", output_dir=tmp_path / "run",
    )  # fmt: skip
    start, *rows = [
        json.loads(line) for line in (train(config, prompt_order=moving) / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["reward/suite"] for row in rows] == suites
    for row in rows:
        name = "r1.int@1" if row["reward/suite"] == "mine@1" else "r1.count_xml@1"
        assert f"rewards/{name}/mean" in row
    # A run whose rewards move is held out to its judge alone: the others would not compare.
    told = {key for key in start if key.startswith("eval/rewards/")}
    assert told == {"eval/rewards/r1.accuracy@1/mean"} | (set() if follow else {"eval/rewards/r1.int@1/mean"})
