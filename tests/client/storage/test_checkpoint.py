"""Which checkpoints are kept: the last ones and the best."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_client.storage.checkpoint import CHECKPOINTS, checkpoint_folders, clear_remains, prune, set_later_aside
from grpo_client.train import train
from tests.client.failing import Answer, Behaviour, proxy
from tests.client.runs import Configure
from tests.conftest import Server


def made(folder: Path, steps: list[int]) -> None:
    for step in steps:
        (folder / CHECKPOINTS / f"step-{step:06d}").mkdir(parents=True)
        (folder / CHECKPOINTS / f"step-{step:06d}" / "model.safetensors").touch()


def steps_of(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoint_folders(folder)]


@pytest.mark.parametrize(
    ("keep", "best", "kept"),
    [
        (2, None, [30, 1_000_000]),
        (1, None, [1_000_000]),
        (9, None, [2, 9, 10, 30, 1_000_000]),
        (-1, None, [2, 9, 10, 30, 1_000_000]),
        (2, 2, [2, 30, 1_000_000]),
        (1, 9, [9, 1_000_000]),
        (2, 30, [30, 1_000_000]),
        (2, 7, [30, 1_000_000]),  # of a checkpoint that is not there any longer
    ],
)
def test_the_last_checkpoints_are_kept_and_the_best_however_old(
    keep: int, best: int | None, kept: list[int], tmp_path: Path
) -> None:
    made(tmp_path, [1_000_000, 9, 2, 30, 10])
    prune(tmp_path, keep=keep, best=best)
    assert steps_of(tmp_path) == kept
    assert {path.name for path in (tmp_path / CHECKPOINTS).iterdir()} == {f"step-{step:06d}" for step in kept}


def graded(right: list[bool], *, prompts: int) -> Behaviour:
    """The answers to evaluations of so many prompts, each evaluation all right or all wrong."""
    calls = [0]

    def behave(path: str, answer: Answer) -> Answer:
        code, headers, content = answer
        if path != "/v1/score" or b"length.near@1" not in content:
            return answer
        document, at = json.loads(content), calls[0] // prompts
        calls[0] += 1
        for group in document["groups"]:
            group["scores"]["length.near@1"] = [float(right[at])] * len(group["totals"])  # the judge's, of weight 0
        return code, headers, json.dumps(document).encode()

    return behave


def test_a_run_keeps_the_checkpoint_of_its_first_best_evaluation(configure: Configure, server: Server) -> None:
    with proxy(server.url, graded([False, True, False, True, False], prompts=2)) as url:
        settings = {"eval_every": 1, "save_every": 2, "keep_checkpoints": 1, "eval_reward": "length.near@1"}
        folder = train(configure(reward_url=url, steps=4, eval_prompts=2, **settings))
    # Evaluated before training and after each step: 1 and 3 are right, and 3 is no better than 1.
    assert steps_of(folder) == [1, 4]


def test_latest_is_the_newest_checkpoint_under_one_name(configure: Configure) -> None:
    folder = train(configure(steps=4, save_every=2, keep_checkpoints=1, eval_every=0))
    assert (folder / "latest").resolve() == (folder / "checkpoints" / "step-000004").resolve()
    assert (folder / "latest" / "model.safetensors").is_file()
    train(configure(steps=6, save_every=2, keep_checkpoints=-1, eval_every=0, resume=str(folder / "latest")))
    assert steps_of(folder) == [4, 6]
    assert (folder / "latest").readlink() == Path("checkpoints") / "step-000006"


def test_latest_goes_back_with_a_run_that_goes_back(configure: Configure) -> None:
    folder = train(configure(steps=4, save_every=1, keep_checkpoints=-1, eval_every=0))
    assert steps_of(folder) == [1, 2, 3, 4]  # -1 keeps all
    assert set_later_aside(folder, 2) != []
    assert (folder / "latest").readlink() == Path("checkpoints") / "step-000002"
    assert set_later_aside(folder, 0) != []
    assert not (folder / "latest").is_symlink()


def test_what_a_kill_left_of_a_link_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".latest.7.partial").symlink_to("checkpoints/step-000002")
    clear_remains(tmp_path)
    assert list(tmp_path.iterdir()) == []
