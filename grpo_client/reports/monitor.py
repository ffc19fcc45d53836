"""What a run tells: a line a step and a progress bar, tables of completions, and three JSONL files."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from grpo_client.config import TrainConfig
from grpo_client.evaluation import Evaluation
from grpo_client.learning.advantages import Advantages
from grpo_client.reports.callbacks import Callback
from grpo_client.storage.output import EVALS, METRICS, ROLLOUTS, storage_errors
from grpo_client.terminal import printable
from grpo_client.types import Group, Metrics

_SHOWN_COMPLETIONS = 4
_SHOWN_CHARS = 300
_ETA_SECONDS = 3600.0  # a step may take longer than the 30 seconds over which rich looks back


class Monitor:
    """Writes and shows a run, and tells its callbacks. A context manager: all of it lives as long as it is entered.

    After a resume (`resumed_at` > 0) files are gone on with, the progress bar begins there, and the first row says
    `resumed_at`. What a callback raises, and OSError of a file (a full disk), comes through; the terminal is put right.
    """

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        console: Console,
        show_completions_every: int,
        config: TrainConfig,
        callbacks: Sequence[Callback] = (),
        resumed_at: int = 0,
    ) -> None:
        self._folder = folder
        self._console = console
        self._show_completions_every = show_completions_every
        self._callbacks = callbacks
        self._config = config
        self._mode = "a" if resumed_at else "w"
        self._first: Metrics = {"resumed_at": resumed_at} if resumed_at else {}
        self._files: dict[str, IO[str]] = {}
        self._started: list[Callback] = []
        self._open = contextlib.ExitStack()
        self._progress = Progress(
            TextColumn("[bold]training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}", markup=False),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=_ETA_SECONDS,
        )
        self._task = self._progress.add_task("training", total=steps, completed=resumed_at, now="")

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:  # what is open is closed again where a later one fails
            for name in (METRICS, ROLLOUTS, EVALS):
                file = (self._folder / name).open(self._mode, encoding="utf-8")
                self._files[name] = opening.enter_context(file)
            opening.callback(self._end)
            for callback in self._callbacks:
                callback.on_start(self._config, self._folder)
                self._started.append(callback)
            opening.enter_context(self._progress)
            self._open = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.__exit__(kind, error, at)

    def _end(self) -> None:
        with contextlib.ExitStack() as ending:  # each is told, also where the one before it raised
            for callback in reversed(self._started):
                ending.callback(callback.on_end, self._folder)

    def say(self, message: str) -> None:
        """A line in the terminal."""
        say(self._console, message)

    def log(self, row: Metrics) -> None:
        """One step's row: written, shown, then told."""
        row, self._first = row | self._first, {}
        self._write(METRICS, row)
        self.say(line(row))
        self._progress.update(self._task, completed=float(row["step"] or 0), now=progress_text(row))
        for callback in self._callbacks:
            callback.on_step(row)

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
        for callback in self._callbacks:
            callback.on_evaluation(step, evaluation)

    def saved(self, step: int, path: Path) -> None:
        """A whole model or checkpoint is in `path`."""
        for callback in self._callbacks:
            callback.on_save(step, path)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        with storage_errors(self._folder / name):
            self._files[name].write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
            self._files[name].flush()


def say(console: Console, message: str) -> None:
    """A line in a terminal. Never markup, no control characters: it may hold a path or what a service said."""
    console.print(Text(printable(message)), soft_wrap=True)


_LINE = (
    ("eval/accuracy", "held-out accuracy"),
    ("completions/mean_length", "length"),
    ("loss", "loss"),
    ("learning_rate", "rate"),
    ("kl", "kl"),
    ("grad_norm", "grad norm"),
    ("time/step", "seconds"),
    ("it/s", "it/s"),
    ("tok_per_s/rollout", "tok/s"),
    ("peak_mem_gb", "peak mem GB"),
)
_REWARD = re.compile(r"rewards/.*/mean")
_PROGRESS = (("reward", "reward"), ("completions/mean_length", "length"), ("kl", "kl"), ("tok_per_s/rollout", "tok/s"))


def line(row: Metrics) -> str:
    """A step in one line."""
    seconds = row.get("time/step")
    shown = row | {"it/s": 1 / float(seconds)} if seconds else row
    parts = [f"step {row['step']}", *_labelled(shown, [("reward", "reward"), *_each_reward(row), *_LINE])]
    nulls = row.get("reward/unscored")
    return "  ".join(parts + ([f"UNSCORED {nulls}"] if nulls else []))


def _each_reward(row: Metrics) -> list[tuple[str, str]]:
    """The rewards by name, unless there is but one, of weight 1."""
    named = [(key, key.removeprefix("rewards/").removesuffix("/mean")) for key in row if _REWARD.fullmatch(key)]
    return [] if len(named) == 1 and row[named[0][0]] == row.get("reward") else named


def progress_text(row: Metrics) -> str:
    """What stands beside the progress bar."""
    return "  ".join(_labelled(row, _PROGRESS))


def _labelled(row: Metrics, names: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{label} {_number(row[key])}" for key, label in names if row.get(key) is not None]


def _number(value: float | int | str | None) -> str:
    if value is None:
        return "-"
    number = float(value)
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"  # 1024 and not 1.02e+03


def completions_table(step: int, groups: Sequence[Group], advantages: Advantages) -> Table:
    """Some completions with what they were paid. Model text goes in as plain text: it cannot style the terminal."""
    table = Table(title=f"step {step}: some completions", show_lines=True)
    names = list(groups[0].scores.values)
    for heading in ("gold", "completion", *names, "total", "advantage"):
        table.add_column(Text(printable(heading)), overflow="fold")
    for p, group in list(enumerate(groups))[:_SHOWN_COMPLETIONS]:
        cells = [
            printable(str(group.prompt.gold)),
            printable(group.texts[0][:_SHOWN_CHARS]),
            *(_number(group.scores.values[name][0]) for name in names),
            _number(group.scores.totals[0]),
            _number(advantages.values_P_G[p][0]),
        ]
        table.add_row(*(Text(cell) for cell in cells))
    return table
