"""Runs that are killed and go on: the same numbers as of a run that nobody killed, bit for bit."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_client.errors import ConfigError, RewardServiceError
from grpo_client.reports.callbacks import Callback
from grpo_client.train import train
from grpo_client.types import Metrics
from tests.client import children
from tests.client.failing import Answer, proxy
from tests.client.runs import Configure, read
from tests.conftest import Server

STEPS = 12
NOT_NUMBERS = ("time/", "tok_per_s/", "peak", "resumed_at")
Settings = dict[str, Any]


def numbers(folder: Path) -> list[dict[str, Any]]:
    rows = read(folder / "metrics.jsonl")
    return [{key: value for key, value in row.items() if not key.startswith(NOT_NUMBERS)} for row in rows]


def weights(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "final").glob("*.safetensors")}


def check_equal(folder: Path, whole: Path) -> None:
    assert numbers(folder) == numbers(whole)
    assert read(folder / "rollouts.jsonl") == read(whole / "rollouts.jsonl")
    assert read(folder / "evals.jsonl") == read(whole / "evals.jsonl")
    assert weights(folder) == weights(whole)
    assert weights(whole)


class Killer:
    """Kills a training at a named moment. It sits where the run's rewards pass, and looks at the run's folder."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.calls = 0
        self.ask: Callable[[], bool] | None = None
        self.answer: Callable[[], bool] | None = None
        self.process: Any = None

    def behave(self, path: str, answer: Answer) -> Answer:
        if path == "/v1/score":
            self.calls += 1
            if self.ask and self.ask():
                self.process.kill()
            if self.answer and self.answer():
                self.process.kill()
        return answer

    def run(self, settings: Settings, moment: str, rng: random.Random) -> int:
        """Start, kill at the moment, and say how many steps there are now."""
        self.calls, self.ask, self.answer = 0, None, None
        at = rng.randint(8, 14)  # calls: 5 of the first evaluation may come before, 3 a step
        if moment == "scoring":
            self.ask = lambda: self.calls == at
        if moment == "update":  # the last answer of a step is on its way
            self.answer = lambda: self.calls >= at and self.calls % 3 == 2
        with proxy(self.server.url, self.behave) as url:
            self.process = children.start(settings | {"reward_url": url})
            before = self.rows()
            while self.process.is_alive():
                if moment == "save" and self.rows() > before and list(self.folder.glob("checkpoints/.*.partial")):
                    self.process.kill()
                if moment == "sampling" and self.rows() > before + 2:
                    time.sleep(rng.random() * 0.02)
                    self.process.kill()
                time.sleep(0.0005)
            self.process.join()
        assert self.process.exitcode == -9, f"not killed at {moment}"
        return self.rows()

    def rows(self) -> int:
        file = self.folder / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0


def finish(settings: Settings) -> None:
    process = children.start(settings)
    process.join(120)
    assert process.exitcode == 0


RUNS: dict[str, Settings] = {
    "full": {},
    "lora, two iterations": {"lora_rank": 4, "num_iterations": 2, "kl_coef": 0.1},
    "resampled, minibatches, sgd": {
        "dynamic_sampling": "resample",
        "minibatches": 3,
        "lr_schedule": "linear",
        "optimizer": "sgd",
    },
}


FIVE = ("scoring", "update", "save", "sampling", "scoring")


@pytest.mark.parametrize(
    ("name", "moments"),
    [("full", ("update", "save")), *(pytest.param(name, FIVE, marks=pytest.mark.slow) for name in RUNS)],
)
def test_a_run_killed_again_and_again_gives_the_numbers_of_one_never_killed(
    name: str, moments: tuple[str, ...], configure: Configure, server: Server, tmp_path: Path
) -> None:
    def settings(folder: str) -> Settings:
        config = configure(
            steps=STEPS,
            save_every=2,
            eval_every=4,
            output_dir=tmp_path / folder,
            show_completions_every=0,
            **RUNS[name],
        )
        return config.model_dump(mode="json")

    finish(settings("whole"))
    seed = random.randrange(10**6)
    print(f"kills by seed {seed}")
    rng, killer = random.Random(seed), Killer(server, tmp_path / "killed")
    killed = settings("killed") | {"resume": "auto"}
    for moment in moments:
        killer.run(killed, moment, rng)
    finish(killed)
    check_equal(tmp_path / "killed", tmp_path / "whole")
    assert not list((tmp_path / "killed").rglob("*.partial"))
    assert len(list((tmp_path / "killed" / "checkpoints").iterdir())) <= 3


def test_a_run_goes_on_further_than_it_was_meant_to(configure: Configure, tmp_path: Path) -> None:
    whole = train(configure(steps=6, output_dir=tmp_path / "whole", eval_every=0))
    folder = train(configure(steps=3, output_dir=tmp_path / "run", eval_every=0))
    train(configure(steps=6, output_dir=tmp_path / "run", eval_every=0, resume="auto"))
    check_numbers = [row for row in numbers(whole) if row["step"]]
    assert [row for row in numbers(folder) if row["step"]] == check_numbers
    assert weights(folder) == weights(whole)


def test_auto_begins_where_there_is_nothing_to_go_on_from(configure: Configure) -> None:
    folder = train(configure(steps=2, resume="auto"))
    assert [row["step"] for row in read(folder / "metrics.jsonl")] == [0, 1, 2]


# ---- what is not whole, or not the same --------------------------------------------------------------------


def damage(file: Path, how: str) -> None:
    if how == "cut short":
        file.write_bytes(file.read_bytes()[:-100])
    elif how == "another byte":
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif how == "another document":
        file.write_text("[]")
    else:
        file.unlink()


KEPT_FILES = ("model.safetensors", "trainer_state.safetensors", "run_state.json")
DAMAGES = ("cut short", "another byte", "missing")
ONE_EACH = set(zip(DAMAGES, KEPT_FILES, strict=True))


@pytest.mark.parametrize(
    ("how", "name"),
    [
        pytest.param(*pair, marks=() if pair in ONE_EACH else pytest.mark.slow)
        for pair in itertools.product(DAMAGES, KEPT_FILES)
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_it(
    how: str, name: str, configure: Configure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if (how, name) == ("another byte", "run_state.json"):
        how = "another document"
    folder = train(configure(steps=4, save_every=2))
    expected = weights(folder)
    damage(folder / "checkpoints" / "step-000004" / name, how)
    with pytest.raises(ConfigError, match="no whole checkpoint"):
        train(configure(steps=4, resume=str(folder / "checkpoints" / "step-000004")))
    train(configure(steps=4, save_every=2, resume="auto"))
    assert weights(folder) == expected
    said = " ".join(capsys.readouterr().out.split())
    assert "step-000004 is not whole" in said
    assert "after step 2" in said


def test_when_no_checkpoint_is_whole_the_run_is_not_begun_anew(configure: Configure) -> None:
    folder = train(configure(steps=2, save_every=2))
    damage(folder / "checkpoints" / "step-000002" / "model.safetensors", "cut short")
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="safetensors has"):
        train(configure(steps=4, resume="auto"))
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learning_rate": 2e-3}, "--learning-rate was 0.001, is 0.002"),
        ({"group_size": 6}, "--group-size was 4, is 6"),
        ({"lora_rank": 4}, "--lora-rank was 0, is 4"),
        ({"seed": 7}, "--seed was 0, is 7"),
    ],
)
def test_a_changed_configuration_is_refused(change: Settings, said: str, configure: Configure) -> None:
    train(configure(steps=2, save_every=2))
    with pytest.raises(ConfigError, match=said):
        train(configure(steps=4, resume="auto", **change))


def test_another_model_under_the_same_name_is_refused(
    configure: Configure, tmp_path: Path, tiny: str, one_more_tiny: Path
) -> None:
    train(configure(model=str(one_more_tiny), steps=2))
    from tests.client.tiny import save_tiny

    save_tiny(one_more_tiny, seed=5)
    with pytest.raises(ConfigError, match="content has changed"):
        train(configure(model=str(one_more_tiny), steps=4, resume="auto"))


@pytest.fixture
def one_more_tiny(tmp_path: Path) -> Path:
    from tests.client.tiny import save_tiny

    return Path(save_tiny(tmp_path / "model"))


def test_other_data_under_the_same_name_is_refused(configure: Configure, data: Path) -> None:
    train(configure(steps=2))
    data.write_text(data.read_text().replace('"answer": "3"', '"answer": "4"'))
    with pytest.raises(ConfigError, match="content has changed"):
        train(configure(steps=4, resume="auto"))


def steps_of(folder: Path) -> list[int]:
    return [row["step"] for row in read(folder / "metrics.jsonl")]


def checkpoints(folder: Path) -> list[str]:
    return sorted(one.name for one in (folder / "checkpoints").iterdir())


def test_a_damaged_checkpoint_does_not_crowd_out_whole_ones(configure: Configure) -> None:
    folder = train(configure(steps=4, save_every=2, eval_every=0))
    damage(folder / "checkpoints" / "step-000004" / "model.safetensors", "cut short")
    train(configure(steps=3, save_every=1, keep_checkpoints=1, eval_every=0, resume="auto"))
    assert checkpoints(folder) == ["aside-step-000004", "step-000003"]
    train(configure(steps=4, save_every=1, keep_checkpoints=1, eval_every=0, resume="auto"))
    assert steps_of(folder) == [0, 1, 2, 3, 4]


def test_going_back_leaves_the_other_branch_aside(configure: Configure, tmp_path: Path) -> None:
    whole = train(configure(steps=8, output_dir=tmp_path / "whole", eval_every=0))
    folder = train(configure(steps=6, save_every=2, keep_checkpoints=9, eval_every=0))
    back = str(folder / "checkpoints" / "step-000002")
    train(configure(steps=4, save_every=2, eval_every=0, resume=back))
    assert checkpoints(folder) == ["aside-step-000004", "aside-step-000006", "step-000002", "step-000004"]
    train(configure(steps=8, save_every=2, eval_every=0, resume="auto"))
    assert numbers(folder) == numbers(whole)
    assert weights(folder) == weights(whole)


def test_another_output_folder_takes_a_run_up_without_touching_it(configure: Configure, tmp_path: Path) -> None:
    folder = train(configure(steps=2, save_every=2, eval_every=0))
    before = checkpoints(folder), (folder / "metrics.jsonl").read_bytes()
    busy = train(configure(steps=1, eval_every=0, output_dir=tmp_path / "busy"))
    with pytest.raises(ConfigError, match="holds another run"):
        train(configure(steps=4, eval_every=0, output_dir=busy, resume=str(folder)))
    other = train(configure(steps=4, eval_every=0, output_dir=busy, resume=str(folder), overwrite=True))
    assert steps_of(other) == [3, 4]
    assert checkpoints(other) == ["step-000004"]
    assert (checkpoints(folder), (folder / "metrics.jsonl").read_bytes()) == before


def test_two_runs_in_one_folder_are_refused(configure: Configure) -> None:
    refused: list[str] = []

    class Second(Callback):
        def on_step(self, row: Metrics) -> None:
            with pytest.raises(ConfigError, match="another run is at work") as error:
                train(configure(steps=2, eval_every=0, resume="auto"))
            refused.append(str(error.value))

    folder = train(configure(steps=2, eval_every=0), callbacks=[Second()])
    assert len(refused) == 3
    assert steps_of(folder) == [0, 1, 2]


def test_a_run_killed_before_its_first_checkpoint_begins_anew_and_says_so(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(configure(steps=2, save_every=0))
    (folder / "final").rename(folder / "elsewhere")
    train(configure(steps=3, save_every=0, resume="auto"))
    assert steps_of(folder) == [0, 1, 2, 3]
    assert not (folder / "elsewhere").exists()
    assert "the run begins anew" in capsys.readouterr().out


def test_fewer_steps_than_were_taken_are_refused(configure: Configure) -> None:
    train(configure(steps=4, eval_every=0))
    with pytest.raises(ConfigError, match="is past --steps 3"):
        train(configure(steps=3, eval_every=0, resume="auto"))


def test_a_service_that_fails_during_an_evaluation_loses_nothing(
    configure: Configure, server: Server, tmp_path: Path
) -> None:
    whole = train(configure(steps=4, output_dir=tmp_path / "whole"))
    phases: list[str] = []

    def behave(path: str, answer: Answer) -> Answer:
        if path == "/v1/score":
            phases.append(path)
            if len(phases) > 5 + 2 * 3 + 2:  # in the evaluation after step 2
                return 422, {}, b"{}"
        return answer

    with proxy(server.url, behave) as url, pytest.raises(RewardServiceError) as error:
        train(configure(steps=4, reward_url=url))
    assert any("step-000002" in note for note in error.value.__notes__)
    folder = configure().output_dir
    assert steps_of(folder) == [0, 1]
    train(configure(steps=4, resume="auto"))
    check_equal(folder, whole)


@pytest.mark.parametrize("batches", [[[0, 1, 2], [3, 4, 5]], [[0, 1, 2], [3, 4, 5], []]])
def test_batches_that_end_early_end_the_run_with_a_checkpoint(batches: list[list[int]], configure: Configure) -> None:
    def order(prompts: Any, **_: Any) -> Any:
        return [[prompts[i] for i in batch] for batch in batches]

    with pytest.raises(ConfigError, match="after 2 steps; give more") as error:
        train(configure(steps=4, eval_every=0), prompt_order=order)
    assert any("step-000002" in note for note in error.value.__notes__)


def test_a_finished_run_is_not_begun_anew_by_auto(configure: Configure) -> None:
    folder = train(configure(steps=2, save_every=0))
    with pytest.raises(ConfigError, match="holds a run already"):
        train(configure(steps=2, save_every=0, resume="auto"))
    assert (folder / "final").exists()


# ---- the rewards are not the same --------------------------------------------------------------------------


def other_digest(path: str, answer: Answer) -> Answer:
    code, headers, content = answer
    if path == "/v1/rewards/r1.accuracy@1":
        document = json.loads(content)
        document["digest"], document["history"] = "sha256:" + "0" * 64, []
        content = json.dumps(document).encode()
    return code, headers, content


def test_a_digest_that_moved_stops_a_resume(configure: Configure, server: Server) -> None:
    folder = train(configure(steps=2))
    with (
        proxy(server.url, other_digest) as url,
        pytest.raises(ConfigError, match=r"r1\.accuracy@1: digest was") as told,
    ):
        train(configure(steps=4, resume="auto", reward_url=url))
    assert "--accept-reward-change" in str(told.value)
    assert len(read(folder / "metrics.jsonl")) == 3


def test_a_suite_that_weighs_otherwise_stops_a_resume(configure: Configure) -> None:
    weighed = {"suite": None, "reward": ["r1.int@1=1", "r1.count_xml@1=2"]}
    train(configure(steps=2, **weighed))
    with pytest.raises(ConfigError, match=r"weight was 2\.0, is 3\.0"):
        train(configure(steps=4, resume="auto", suite=None, reward=["r1.int@1=1", "r1.count_xml@1=3"]))
    folder = train(
        configure(
            steps=4, resume="auto", suite=None, reward=["r1.int@1=1", "r1.count_xml@1=3"], accept_reward_change=True
        )
    )
    rows = read(folder / "metrics.jsonl")
    assert "weight was 2.0, is 3.0" in rows[3]["reward/changed"]
    assert "reward/changed" not in rows[4]
