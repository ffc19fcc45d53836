"""A run as Prometheus sees it: the last row, read when it is asked for. A number that is not known is left out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.reports.callbacks import Callback
from grpo_client.storage.provenance import versions
from grpo_client.types import Metrics

_HOST = "127.0.0.1"  # who may read a run is for a proxy to say, not for the trainer
_PREFIX = "hallmark_train_"
_NULL = "reward/null/"
# (name, documentation, key of the row, what one of the row's units is in the metric's)
_GAUGES = (
    ("step", "The last step that was finished; 0 is before training", "step", 1.0),
    ("reward_mean", "Mean total reward of the step's scored completions", "reward", 1.0),
    ("reward_std", "Standard deviation of these totals", "reward_std", 1.0),
    ("zero_std_group_ratio", "Share of groups whose rewards are all equal", "frac_reward_zero_std", 1.0),
    ("loss", "The loss; near 0 by construction, watch the reward instead", "loss", 1.0),
    ("kl", "KL to the reference model, a token", "kl", 1.0),
    ("entropy", "Entropy of the sampled distribution, nats a token", "entropy", 1.0),
    ("grad_norm", "Norm of the gradient before clipping", "grad_norm", 1.0),
    ("completion_tokens_mean", "Mean length of the step's completions", "completions/mean_length", 1.0),
    ("clipped_completion_ratio", "Share of completions cut at the length limit", "completions/clipped_ratio", 1.0),
    ("sampling_tokens_per_second", "Sampled tokens a second", "tok_per_s/rollout", 1.0),
    ("step_seconds", "How long the step took, evaluation apart", "time/step", 1.0),
    ("peak_memory_bytes", "The most memory that was in use at a time", "peak_mem_gb", 1e9),
    ("held_out_accuracy", "Accuracy of the last held-out evaluation", "eval/accuracy", 1.0),
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a scrape reads. Replaced whole, so that a scrape never sees half a step."""

    at: float  # time.monotonic() of the last step, or of the start
    row: Metrics = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)  # by status, since the process started
    run: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None


class Exporter(Callback, Collector):
    """Serves a run's metrics over HTTP to this machine, on a registry of its own, until it is closed.

    Raises ConfigError where the port cannot be had. `url` is where it answers.
    """

    def __init__(self, port: int) -> None:
        self._seen = _Seen(at=time.monotonic())
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, addr=_HOST, registry=registry)
        except OSError as error:
            raise ConfigError(f"--metrics-port {port}: {error.strerror}; choose another, or leave it out") from error
        self.url = f"http://{_HOST}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        run = {
            "run": config.run_name or folder.name,
            "model": config.model,
            "data": config.data,
            "loss": config.loss,
            "objective": config.objective,
            "version": versions().get("hallmark-rl", ""),
        }
        self._seen = _Seen(at=time.monotonic(), run=run, steps=config.steps)

    def on_step(self, row: Metrics) -> None:
        before = self._seen
        nulls = Counter(before.nulls)
        for key, value in row.items():
            if key.startswith(_NULL):
                nulls[key.removeprefix(_NULL)] += int(value or 0)
        evaluated = {key: value for key, value in before.row.items() if key.startswith("eval/")}
        self._seen = _Seen(time.monotonic(), evaluated | row, nulls, before.run, before.steps)

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now; called by a scrape, in its thread."""
        seen = self._seen
        yield InfoMetricFamily(_PREFIX + "run", "What is trained", value={**seen.run, "suite": _suite(seen.row)})
        yield GaugeMetricFamily(
            _PREFIX + "seconds_since_step",
            "Since the last step was finished, or since the start",
            value=time.monotonic() - seen.at,
        )
        if seen.steps is not None:
            yield GaugeMetricFamily(_PREFIX + "planned_steps", "The step at which the run ends", value=seen.steps)
        for name, documentation, key, unit in _GAUGES:
            value = seen.row.get(key)
            if value is not None:
                yield GaugeMetricFamily(_PREFIX + name, documentation, value=float(value) * unit)
        yield _by_reward(seen.row)
        nulls = CounterMetricFamily(
            _PREFIX + "unscored_results", "Results without a number, by status", labels=["status"]
        )
        for status, count in seen.nulls.items():
            nulls.add_metric([status], count)
        yield nulls


def _by_reward(row: Metrics) -> Metric:
    family = GaugeMetricFamily(_PREFIX + "reward_by_name_mean", "Mean of each reward", labels=["reward"])
    for key, value in row.items():
        if key.startswith("rewards/") and key.endswith("/mean") and value is not None:
            family.add_metric([key.removeprefix("rewards/").removesuffix("/mean")], float(value))
    return family


def _suite(row: Metrics) -> str:
    return str(row.get("reward/suite") or "")
