"""The trainer's metrics over HTTP, read as Prometheus reads them."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.prometheus import Exporter
from grpo_client.train import train
from grpo_client.types import Metrics
from tests.client.runs import Configure, read
from tests.conftest import free_port

CONFIG = TrainConfig(suite="r1@1", steps=50, model='a "model"\n', run_name="first")
ROW: Metrics = {
    "step": 3,
    "reward": 0.5,
    "rewards/r1.int@1/mean": 0.25,
    "rewards/close/mean": None,
    "loss": None,
    "kl": 0.125,
    "completions/mean_length": 20.0,
    "tok_per_s/rollout": 100.0,
    "peak_mem_gb": 1.5,
    "reward/suite": "r1@1",
    "reward/null/timeout": 2,
    "reward/null/error": 0,
}
Sample = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    one = Exporter(0)
    yield one
    one.close()


def scrape(url: str) -> dict[Sample, float]:
    families = text_string_to_metric_families(httpx.get(url).text)
    return {
        (sample.name.removeprefix("hallmark_train_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def by_name(samples: dict[Sample, float], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(value for _, value in labels): one for (found, labels), one in samples.items() if found == name}


def test_what_is_known_of_the_last_step_is_served_and_nothing_else(exporter: Exporter) -> None:
    exporter.on_start(CONFIG, Path("runs/somewhere"))
    before = scrape(exporter.url)
    assert by_name(before, "planned_steps") == {(): 50}
    assert not by_name(before, "step")
    exporter.on_step({"step": 0, "eval/accuracy": 0.75})
    exporter.on_step(ROW)
    samples = scrape(exporter.url)
    values = {name: value for (name, labels), value in samples.items() if not labels}
    assert values.pop("seconds_since_step") >= 0
    assert values == {
        "planned_steps": 50,
        "step": 3,
        "reward_mean": 0.5,
        "kl": 0.125,
        "completion_tokens_mean": 20,
        "sampling_tokens_per_second": 100,
        "peak_memory_bytes": 1.5e9,
        "held_out_accuracy": 0.75,
    }
    assert by_name(samples, "reward_by_name_mean") == {("r1.int@1",): 0.25}
    ((info, one),) = [item for item in samples.items() if item[0][0] == "run_info"]
    assert dict(info[1]) | {"version": ""} == {
        "run": "first", "model": 'a "model"\n', "data": "addition", "loss": "dapo", "objective": "clipped",
        "suite": "r1@1", "version": "",
    }  # fmt: skip
    assert one == 1


def test_nulls_add_up_over_steps(exporter: Exporter) -> None:
    for _ in range(3):
        exporter.on_step(ROW)
    assert by_name(scrape(exporter.url), "unscored_results_total") == {("timeout",): 6, ("error",): 0}


def test_the_seconds_since_the_last_step_grow_until_the_next(exporter: Exporter) -> None:
    exporter.on_step(ROW)
    first, second = (scrape(exporter.url)["seconds_since_step", ()] for _ in range(2))
    assert 0 <= first < second


def test_openmetrics_is_served_to_who_asks_for_it(exporter: Exporter) -> None:
    exporter.on_step(ROW)
    text = httpx.get(exporter.url, headers={"Accept": "application/openmetrics-text; version=1.0.0"}).text
    assert {family.name for family in openmetrics(text)} >= {"hallmark_train_run", "hallmark_train_unscored_results"}


def test_a_taken_port_is_a_configuration_error_that_names_the_flag() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--metrics-port {port}: .*in use.*choose another"):
            Exporter(port)


def test_the_port_is_free_again_once_closed() -> None:
    port = free_port()
    for _ in range(2):
        one = Exporter(port)
        assert scrape(one.url)
        one.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(one.url)


def test_a_run_is_read_while_it_goes_on_and_not_after(configure: Configure) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    seen: list[dict[Sample, float]] = []

    class Scrape(Callback):
        def on_step(self, row: Metrics) -> None:
            seen.append(scrape(url))

    screen = io.StringIO()
    folder = train(configure(metrics_port=port, steps=2), Console(file=screen, width=200), callbacks=[Scrape()])
    assert f"metrics for Prometheus at {url}" in screen.getvalue()
    rows = read(folder / "metrics.jsonl")
    assert [one["step", ()] for one in seen] == [0, 1, 2]
    assert [one["reward_mean", ()] for one in seen[1:]] == [row["reward"] for row in rows[1:]]
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
