"""Every metric of the service. Only the serving process counts, so one registry holds the truth."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reward_service import __version__

# Rewards pay between about -1 and 2; the edges are the values that the known rewards pay.
_VALUE_BUCKETS = (-1.0, -0.5, 0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
_LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0)


class Metrics:
    """One application's metrics, on a registry of their own. Labels are closed sets: routes, reward ids, statuses."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("hallmark_requests", "Answered requests", ["route", "code"], registry=self.registry)
        self.latency = Histogram(
            "hallmark_request_seconds",
            "From the request's first byte to the answer's last",
            ["route"],
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.scores = Counter(
            "hallmark_scores",
            "Scores and nulls given, by reward and status",
            ["reward", "status"],
            registry=self.registry,
        )
        self.values = Histogram(
            "hallmark_reward_value",
            "Values paid, by reward; nulls are not in it",
            ["reward"],
            buckets=_VALUE_BUCKETS,
            registry=self.registry,
        )
        # A histogram with negative values has no usable sum, so the mean comes from two counters that only grow:
        # (rate(paid{sign="+"}) - rate(paid{sign="-"})) / rate(hallmark_reward_value_count)
        self.paid = Counter(
            "hallmark_reward_paid", "Sum of |value|, by reward and sign", ["reward", "sign"], registry=self.registry
        )
        self.queued = Gauge("hallmark_queued_units", "Units waiting (reward × completion)", registry=self.registry)
        self.workers = Gauge("hallmark_workers", "Live worker processes", registry=self.registry)
        self.kills = Counter(
            "hallmark_worker_kills", "Workers killed by the service", ["reason"], registry=self.registry
        )
        self.respawns = Counter(
            "hallmark_worker_respawns", "Workers started after another one ended", registry=self.registry
        )
        build = Gauge("hallmark_build_info", "Always 1", ["version", "python"], registry=self.registry)
        build.labels(version=__version__, python=platform.python_version()).set(1)
