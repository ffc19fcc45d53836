"""What a run tells: a line a step and a progress bar, tables of completions, and three JSONL files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from grpo_client.advantages import Advantages
from grpo_client.checkpoint import METRICS
from grpo_client.evaluation import Evaluation
from grpo_client.metrics import Row
from grpo_client.types import Group

ROLLOUTS = "rollouts.jsonl"
EVALS = "evals.jsonl"
_SHOWN_COMPLETIONS = 4
_SHOWN_CHARS = 300


class Monitor:
    """Writes and shows a run. A context manager: files and progress bar live as long as it is entered."""

    def __init__(self, folder: Path, *, steps: int, console: Console, show_completions_every: int) -> None:
        self._folder = folder
        self._console = console
        self._show_completions_every = show_completions_every
        self._files: dict[str, IO[str]] = {}
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("training", total=steps, now="")

    def __enter__(self) -> Self:
        for name in (METRICS, ROLLOUTS, EVALS):
            self._files[name] = (self._folder / name).open("w", encoding="utf-8")
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()
        for file in self._files.values():
            file.close()

    def say(self, message: str) -> None:
        """A line in the terminal. Never markup: it may hold a path or what a service said."""
        self._console.print(Text(message), soft_wrap=True)

    def log(self, row: Row) -> None:
        """One step's row."""
        self._write(METRICS, row)
        self.say(line(row))
        self._progress.update(self._task, completed=float(row["step"] or 0), now=f"reward {_number(row.get('reward'))}")

    def log_rollouts(self, step: int, groups: Sequence[Group], advantages: Advantages) -> None:
        """Every completion of a step, and now and then a table of some."""
        for p, group in enumerate(groups):
            for g, text in enumerate(group.texts):
                self._write(
                    ROLLOUTS,
                    {
                        "step": step,
                        "group": p,
                        "prompt_index": group.prompt.index,
                        "prompt": list(group.prompt.messages),
                        "gold": group.prompt.gold,
                        "text": text,
                        "token_count": len(group.rollouts[g].token_ids),
                        "finish_reason": group.rollouts[g].finish_reason,
                        "scores": {name: values[g] for name, values in group.scores.values.items()},
                        "statuses": {name: statuses[g] for name, statuses in group.scores.statuses.items()},
                        "total": group.scores.totals[g],
                        "advantage": advantages.values_P_G[p][g],
                    },
                )
        if self._show_completions_every and (step - 1) % self._show_completions_every == 0:
            self._console.print(completions_table(step, groups, advantages))

    def log_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Every completion of an evaluation."""
        for record in evaluation.records:
            self._write(EVALS, {"step": step, **record})

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        self._files[name].write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        self._files[name].flush()


def line(row: Row) -> str:
    """A step in one line."""
    parts = [f"step {row['step']}"]
    for key, label in (
        ("reward", "reward"),
        ("eval/accuracy", "held-out accuracy"),
        ("completions/mean_length", "length"),
        ("kl", "kl"),
        ("grad_norm", "grad norm"),
        ("time/step", "seconds"),
    ):
        if row.get(key) is not None:
            parts.append(f"{label} {_number(row[key])}")
    nulls = sum(int(value or 0) for key, value in row.items() if key.startswith("reward/null/"))
    return "  ".join(parts + ([f"UNSCORED {nulls}"] if nulls else []))


def _number(value: float | int | str | None) -> str:
    return "-" if value is None else f"{float(value):.3g}"


def completions_table(step: int, groups: Sequence[Group], advantages: Advantages) -> Table:
    """Some completions with what they were paid. Model text goes in as plain text: it cannot style the terminal."""
    table = Table(title=f"step {step}: some completions", show_lines=True)
    names = list(groups[0].scores.values)
    for heading in ("gold", "completion", *names, "total", "advantage"):
        table.add_column(heading, overflow="fold")
    for p, group in list(enumerate(groups))[:_SHOWN_COMPLETIONS]:
        cells = [
            str(group.prompt.gold),
            printable(group.texts[0][:_SHOWN_CHARS]),
            *(_number(group.scores.values[name][0]) for name in names),
            _number(group.scores.totals[0]),
            _number(advantages.values_P_G[p][0]),
        ]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def printable(text: str) -> str:
    """Text whose control characters are spelt out: an escape sequence of a model must not reach a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
