"""`reward.png`: what it shows, where it marks a run, and that it is never half written."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import pytest

from grpo_client.config import TrainConfig
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.plots import Plotter, events, plot_run
from grpo_client.reports.reporters import observers
from grpo_client.train import train
from grpo_client.types import Metrics
from tests.client.runs import Configure, read

STEPS: list[Metrics] = [
    {"step": n, "reward": n / 4, "rewards/r1.int@1/mean": 0.5, "rewards/a $x$/mean": None if n == 2 else 0.1 * n,
     "reward/suite": "mine@1" if n < 3 else "mine@2", "kl": None, "eval/accuracy": n / 8}
    for n in range(5)
]  # fmt: skip


def write(folder: Path, rows: list[Metrics]) -> Path:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def pixels(file: Path) -> tuple[int, int]:
    height, width, _ = matplotlib.image.imread(file).shape
    return width, height


def test_resumes_and_changes_of_the_rewards_are_marked_where_they_happen() -> None:
    rows: list[Metrics] = [row | {"reward/suite": None} for row in STEPS[:1]] + STEPS[1:]
    rows[2] = rows[2] | {"resumed_at": 1}
    rows[4] = rows[4] | {"resumed_at": 3, "reward/changed": "digest", "reward/suite": "mine@3"}
    assert [event[:2] for event in events(rows)] == [
        (2, "resumed"),
        (3, "mine@2"),
        (4, "resumed"),
        (4, "rewards changed"),
    ]
    assert events([row | {"reward/suite": None} for row in STEPS]) == []


@pytest.mark.parametrize(
    ("rows", "panels"),
    [
        (STEPS[:1], 3),
        ([{"step": 0}], 2),
        ([], 2),
        ([row | {"rewards/a $x$/mean": None} for row in STEPS], 3),
        ([{key: value for key, value in row.items() if "$" not in key} for row in STEPS], 2),
        ([row | {"completions/mean_length": 9.0} for row in STEPS], 4),
        ([row | {"completions/mean_length": 9.0, "kl": 0.1, "resumed_at": 1} for row in STEPS], 5),
        ([row | {"completions/clipped_ratio": 0.5, "frac_reward_zero_std": 0.0} for row in STEPS], 4),
        ([row | {"entropy": 1.5} for row in STEPS], 4),
    ],
)
def test_panels_without_a_point_are_left_out_but_for_reward_and_accuracy(
    rows: list[Metrics], panels: int, tmp_path: Path
) -> None:
    assert plot_run(write(tmp_path, rows)) == tmp_path / "reward.png"
    assert pixels(tmp_path / "reward.png") == (8 * 120, (1 + 2 * panels) * 120)
    assert {file.name for file in tmp_path.iterdir()} == {"metrics.jsonl", "reward.png"}


def test_the_plot_is_drawn_again_at_each_evaluation_and_at_the_end(tmp_path: Path) -> None:
    plotter, drawn = Plotter(), []
    plotter.on_start(TrainConfig(suite="r1@1"), tmp_path)
    rows: list[Metrics] = [
        {"step": 0, "eval/accuracy": 0.5},
        {"step": 1, "reward": 0.5},
        {"step": 2, "eval/accuracy": None},
    ]
    for row in rows:
        write(tmp_path, [row])
        (tmp_path / "reward.png").unlink(missing_ok=True)
        plotter.on_step(row)
        drawn.append((tmp_path / "reward.png").exists())
    (tmp_path / "reward.png").unlink()
    plotter.on_end(tmp_path)  # nothing came since
    drawn.append((tmp_path / "reward.png").exists())
    plotter.on_step({"step": 3, "reward": 0.5})
    plotter.on_end(tmp_path)
    assert [*drawn, (tmp_path / "reward.png").exists()] == [True, False, True, False, True]


def test_a_plot_that_cannot_be_drawn_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    config = TrainConfig(suite="r1@1")
    (tmp_path / "metrics.jsonl").write_text("not JSON\n")
    with observers(config, said.append) as (plotter,):
        plotter.on_start(config, tmp_path)
        plotter.on_step({"step": 0, "eval/accuracy": 0.5})
        plotter.on_end(tmp_path)
    assert len(said) == 2
    assert said[0].startswith("reward.png: a report failed, and the run goes on: JSONDecodeError")
    assert said[1] == "reward.png: 2 reports failed"


def test_a_run_draws_its_plot_while_it_goes_on(configure: Configure) -> None:
    config = configure()
    seen: list[tuple[object, bool]] = []

    class Looks(Callback):
        def on_save(self, step: int, path: Path) -> None:
            seen.append((step, (config.output_dir / "reward.png").exists()))

        def on_step(self, row: Metrics) -> None:
            if "eval/accuracy" not in row:
                seen.append((row["step"], (config.output_dir / "reward.png").exists()))

    folder = train(config, callbacks=[Looks()])
    assert seen[0] == (1, True)
    assert [row["step"] for row in read(folder / "metrics.jsonl") if "eval/accuracy" in row] == [0, 2, 3]
