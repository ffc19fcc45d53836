"""`reward.png`: what a run's rewards, held-out accuracy, lengths and KL did."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_client.callbacks import Callback
from grpo_client.metrics import Row, read_rows
from grpo_client.output import METRICS

PLOT = "reward.png"
# Always drawn; the others only where there is something to see. No loss: it sits near 0 whatever a run does.
_ALWAYS = 3


class Plotter(Callback):
    """Draws `reward.png` again at each evaluation and at the end. Raises what drawing raises."""

    def on_start(self, config: object, folder: Path) -> None:
        self._folder = folder

    def on_step(self, row: Row) -> None:
        if "eval/accuracy" in row:
            plot_run(self._folder)

    def on_end(self, folder: Path) -> None:
        plot_run(folder)


def plot_run(folder: Path) -> Path:
    """Draw a run's `reward.png` from its metrics. Raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = read_rows(folder / METRICS)
    panels = [panel for place, panel in enumerate(_panels(rows)) if place < _ALWAYS or _has_points(rows, panel[1])]
    figure = Figure(figsize=(8, 1 + 2 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(len(panels), 1, sharex=True)
    for axes, (title, keys, marker) in zip(every, panels, strict=True):
        _draw(axes, rows, keys, title=title, marker=marker)
        for step, _, colour in events(rows):
            axes.axvline(step - 0.5, color=colour, linewidth=1, linestyle=":")
    every[_ALWAYS - 1].set_ylim(-0.02, 1.02)
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


def events(rows: Sequence[Row]) -> list[tuple[int, str, str]]:
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


def _panels(rows: Sequence[Row]) -> list[tuple[str, list[str], str]]:
    keys = dict.fromkeys(key for row in rows for key in row)
    rewards = [key for key in keys if key.startswith("rewards/") and key.endswith("/mean")]
    return [
        ("reward (mean over scored completions)", ["reward"], "."),
        ("each reward", rewards, "."),
        ("held-out accuracy", ["eval/accuracy"], "o"),
        ("completion length in tokens (mean)", ["completions/mean_length"], "."),
        ("KL to the reference model, a token", ["kl"], "."),
    ]


def _has_points(rows: Sequence[Row], keys: Sequence[str]) -> bool:
    return any(row.get(key) is not None for row in rows for key in keys)


def _draw(axes: Any, rows: Sequence[Row], keys: Sequence[str], *, title: str, marker: str) -> None:
    for key in keys:
        points = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            label = key.removeprefix("rewards/").removesuffix("/mean")
            axes.plot([step for step, _ in points], [value for _, value in points], marker=marker, label=_plain(label))
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    if len(axes.lines) > 1:
        axes.legend(fontsize=8)


def _plain(text: str) -> str:
    """A name as it is: two dollar signs would make it mathematics."""
    return text.replace("$", r"\$")
