"""`reward.png`: what a run's rewards and held-out accuracy did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grpo_client.checkpoint import METRICS

PLOT = "reward.png"


def plot_run(folder: Path) -> Path:
    """Draw a run's `reward.png` from its metrics."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with (folder / METRICS).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    keys = dict.fromkeys(key for row in rows for key in row)
    components = [key for key in keys if key.startswith("rewards/") and key.endswith("/mean")]
    figure = Figure(figsize=(8, 7), layout="constrained")
    FigureCanvasAgg(figure)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    _draw(top, rows, ["reward"], title="reward (mean over scored completions)")
    _draw(middle, rows, components, title="each reward")
    _draw(bottom, rows, ["eval/accuracy"], title="held-out accuracy", marker="o")
    bottom.set_ylim(-0.02, 1.02)
    bottom.set_xlabel("step")
    figure.savefig(folder / PLOT, dpi=120)
    return folder / PLOT


def _draw(axes: Any, rows: Iterable[dict[str, Any]], keys: Sequence[str], *, title: str, marker: str = ".") -> None:
    rows = list(rows)
    for key in keys:
        points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            label = key.removeprefix("rewards/").removesuffix("/mean")
            axes.plot([step for step, _ in points], [value for _, value in points], marker=marker, label=label)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    if len(axes.lines) > 1:
        axes.legend(fontsize=8)
