"""`reward.png`: what a run's rewards, held-out accuracy, lengths and KL did."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grpo_client.reports.callbacks import Callback
from grpo_client.reports.metrics import read_rows
from grpo_client.storage.output import METRICS
from grpo_client.types import Metrics

PLOT = "reward.png"


class Panel(NamedTuple):
    """One picture over the steps. Drawn always, or only where some row has a number for it."""

    title: str
    keys: Sequence[str]
    marker: str = "."
    always: bool = False
    limits: tuple[float, float] | None = None


class Plotter(Callback):
    """Draws `reward.png` again at each evaluation and at the end. Raises what drawing raises."""

    def on_start(self, config: object, folder: Path) -> None:
        self._folder = folder
        self._drawn = False

    def on_step(self, row: Metrics) -> None:
        self._drawn = False
        if "eval/accuracy" in row:
            self._draw()

    def on_end(self, folder: Path) -> None:
        if not self._drawn:
            self._draw()

    def _draw(self) -> None:
        plot_run(self._folder)
        self._drawn = True


def plot_run(folder: Path) -> Path:
    """Draw a run's `reward.png` from its metrics. Raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = read_rows(folder / METRICS)
    panels = [panel for panel in _panels(rows) if panel.always or _has_points(rows, panel.keys)]
    height = 1 + 2 * len(panels)
    figure = Figure(figsize=(8, height))
    FigureCanvasAgg(figure)
    # Margins in inches over the height: matplotlib's own layout costs as much again as the drawing.
    margins = {"left": 0.08, "right": 0.98, "top": 1 - 0.35 / height, "bottom": 0.55 / height, "hspace": 0.3}
    every = figure.subplots(len(panels), 1, sharex=True, gridspec_kw=margins)
    for axes, panel in zip(every, panels, strict=True):
        _draw(axes, rows, panel)
        for step, _, colour in events(rows):
            axes.axvline(step - 0.5, color=colour, linewidth=1, linestyle=":")
    for step, text, colour in events(rows):
        every[0].annotate(
            _plain(text), (step - 0.5, 0), xycoords=("data", "axes fraction"), xytext=(2, 2),
            textcoords="offset points", fontsize=7, rotation=90, va="bottom", color=colour,
        )  # fmt: skip
    every[-1].set_xlabel("step")
    beside = folder / f".{PLOT}.{os.getpid()}.partial"  # somebody may be looking at the one before
    try:
        figure.savefig(beside, dpi=120, format="png")
        beside.replace(folder / PLOT)
    finally:
        beside.unlink(missing_ok=True)
    return folder / PLOT


def events(rows: Sequence[Metrics]) -> list[tuple[int, str, str]]:
    """Steps at which a run went on after a resume or with other rewards: (step, what to write there, colour)."""
    found = []
    suite = None
    for row in rows:
        step, now = int(row["step"] or 0), row.get("reward/suite")
        if row.get("resumed_at"):
            found.append((step, "resumed", "tab:gray"))
        if row.get("reward/changed"):
            found.append((step, "rewards changed", "tab:red"))
        elif suite is not None and now is not None and now != suite:
            found.append((step, str(now), "tab:red"))
        suite = now or suite
    return found


def _panels(rows: Sequence[Metrics]) -> list[Panel]:
    """No loss: it sits near 0 whatever a run does. One reward alone is the first panel already, but for its weight."""
    keys = dict.fromkeys(key for row in rows for key in row)
    rewards = [key for key in keys if key.startswith("rewards/") and key.endswith("/mean")]
    return [
        Panel("reward (mean over scored completions)", ["reward"], always=True),
        Panel("each reward", rewards if len(rewards) > 1 else []),
        Panel("held-out accuracy", ["eval/accuracy"], marker="o", always=True, limits=(-0.02, 1.02)),
        Panel("completion length in tokens (mean)", ["completions/mean_length"]),
        Panel(
            "share of completions cut at the limit, of groups whose rewards are all equal",
            ["completions/clipped_ratio", "frac_reward_zero_std"],
            limits=(-0.02, 1.02),
        ),
        Panel("entropy of the policy, nats a token", ["entropy"]),
        Panel("KL to the reference model, a token", ["kl"]),
    ]


def _has_points(rows: Sequence[Metrics], keys: Sequence[str]) -> bool:
    return any(row.get(key) is not None for row in rows for key in keys)


def _draw(axes: Any, rows: Sequence[Metrics], panel: Panel) -> None:
    for key in panel.keys:
        points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            label = key.removeprefix("rewards/").removesuffix("/mean")
            axes.plot(
                [step for step, _ in points], [value for _, value in points], marker=panel.marker, label=_plain(label)
            )
    axes.set_title(panel.title, fontsize=10)
    if panel.limits is not None:
        axes.set_ylim(*panel.limits)
    axes.grid(alpha=0.3)
    if len(axes.lines) > 1:
        axes.legend(fontsize=8)


def _plain(text: str) -> str:
    """A name as it is: two dollar signs would make it mathematics."""
    return text.replace("$", r"\$")
