"""A step's row from its optimizer steps: means, the largest of what is a maximum, None for what is unknown."""

from __future__ import annotations

import math

import pytest

from grpo_client.backends.base import UpdateStats
from grpo_client.reports.metrics import update_metrics


def test_of_several_optimizer_steps_maxima_stay_maxima_and_the_rest_is_a_mean() -> None:
    first = {"ratio/mean": 1.0, "ratio/max": 9.0, "sampling/logp_diff_max": 0.25, "kl": 0.5}
    second = {"ratio/mean": 2.0, "ratio/max": 3.0, "sampling/logp_diff_max": 0.75}
    updates = [UpdateStats(1.0, 4.0, True, first), UpdateStats(3.0, 8.0, False, second)]
    assert update_metrics(updates, learning_rate=0.1) == {
        "loss": 2.0,
        "grad_norm": 6.0,
        "ratio/mean": 1.5,
        "ratio/max": 9.0,
        "sampling/logp_diff_max": 0.75,
        "kl": 0.5,
        "learning_rate": 0.1,
        "update/applied": 1,
    }


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_or_was_not_computed_is_none(broken: float) -> None:
    unknown = {"kl": None, "loss": None, "grad_norm": None, "learning_rate": 0.1}
    assert update_metrics([], learning_rate=0.1) == unknown | {"update/applied": 0}
    stats = UpdateStats(broken, broken, False, {"ratio/max": broken})
    assert update_metrics([stats], learning_rate=0.1) == unknown | {"ratio/max": None, "update/applied": 0}
