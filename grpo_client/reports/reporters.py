"""Where a run is reported besides its folder: TensorBoard, Weights & Biases, trackio, Prometheus, a plot.

Each is optional, and a run outlives all of them. What is not known (None) is left out of a report: null is not zero.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.evaluation import Evaluation
from grpo_client.reports.callbacks import Callback
from grpo_client.reports.model_card import public_settings
from grpo_client.reports.plots import PLOT, Plotter
from grpo_client.reports.prometheus import Exporter
from grpo_client.types import Metrics

_PROJECT = "hallmark"
_REMEMBERED = "reports.json"  # under which id or name each service knows the run: a resumed run goes on there
_TABLE_COLUMNS = ("prompt", "gold", "completion", "value", "status", "right")
_TABLE_ROWS = 200

Say = Callable[[str], None]


@contextlib.contextmanager
def observers(config: TrainConfig, say: Say) -> Iterator[list[Callback]]:
    """The callbacks that the config asks for, and the plot. Raises ConfigError: package missing, port taken.

    The port is open while this is entered. `say` hears where to look, and of a report's first failure.
    """
    with contextlib.ExitStack() as stack:
        reporters = {name: REPORTERS[name](say) for name in dict.fromkeys(config.report_to)}
        callbacks: list[Callback] = []
        if config.metrics_port is not None:
            exporter = stack.enter_context(contextlib.closing(Exporter(config.metrics_port)))
            say(f"metrics for Prometheus at {exporter.url}")
            callbacks.append(exporter)
        named = {PLOT: Plotter()} | reporters
        yield callbacks + [Guarded(reporter, name=name, say=say) for name, reporter in named.items()]


class Guarded(Callback):
    """Passes a run on to a reporter, and keeps the reporter's failures from the run.

    The first failure is said, all are counted in `failures` and said at the end. A reporter that cannot start is left
    out. ConfigError comes through: it is of the start, and the user's to mend.
    """

    def __init__(self, reporter: Callback, *, name: str, say: Say) -> None:
        self.failures = 0
        self._reporter = reporter
        self._name = name
        self._say = say
        self._started = False

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        self._started = self._try(self._reporter.on_start, config, folder)

    def on_step(self, row: Metrics) -> None:
        if self._started:
            self._try(self._reporter.on_step, row)

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        if self._started:
            self._try(self._reporter.on_evaluation, step, evaluation)

    def on_save(self, step: int, path: Path) -> None:
        if self._started:
            self._try(self._reporter.on_save, step, path)

    def on_end(self, folder: Path) -> None:
        if self._started:
            self._try(self._reporter.on_end, folder)
        if self.failures > 1:
            self._say(f"{self._name}: {self.failures} reports failed")

    def _try(self, tell: Callable[..., None], *what: Any) -> bool:
        try:
            tell(*what)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a reporting library or its network raises
            self.failures += 1
            if self.failures == 1:
                self._say(f"{self._name}: a report failed, and the run goes on: {type(error).__name__}: {error}")
            return False
        return True


class TensorBoard(Callback):
    """Event files in `tensorboard/` of the run's folder. Metrics keep their names, `@` of reward ids included."""

    def __init__(self) -> None:
        self._library = _library("tensorboard", module="tensorboardX", package="tensorboardX")
        self._summary = _library("tensorboard", module="tensorboardX.proto.summary_pb2", package="tensorboardX")
        self._writer: Any = None

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        self._folder = folder / "tensorboard"
        self._settings = json.dumps(public_settings(config), ensure_ascii=False, indent=1)

    def on_step(self, row: Metrics) -> None:
        step = int(row["step"] or 0)
        if self._writer is None:
            # After a resume TensorBoard hides what an earlier process wrote from this step on.
            purge = {"purge_step": step} if step and self._folder.exists() else {}
            self._writer = self._library.SummaryWriter(str(self._folder), **purge)
            self._writer.add_text("config", "\n".join("    " + line for line in self._settings.split("\n")), step)
        value = self._summary.Summary.Value
        summary = [value(tag=key, simple_value=number) for key, number in numbers(row).items()]
        # Not add_scalar, which writes `_` for every `@`.
        self._writer.file_writer.add_summary(self._summary.Summary(value=summary), step)
        self._writer.flush()

    def on_end(self, folder: Path) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases(Callback):
    """A run of Weights & Biases, each evaluation with a table of completions. WANDB_MODE=offline needs no network."""

    def __init__(self, say: Say) -> None:
        self._library = _library("wandb", module="wandb", package="wandb")
        self._say = say

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        begin = partial(
            self._library.init,
            project=os.environ.get("WANDB_PROJECT") or _PROJECT,
            name=config.run_name or folder.name,
            id=_recall(folder, "wandb"),
            resume="allow",
            dir=str(folder),
            config=public_settings(config),
            settings=self._library.Settings(console="off"),  # the terminal is rich's
        )
        try:
            self._run = begin()
        except self._library.errors.CommError as error:
            self._say(f"wandb: {error}; writing to {folder}/wandb instead, for `wandb sync`")
            self._run = begin(mode="offline")
        except self._library.errors.UsageError as error:
            raise ConfigError(f"--report-to wandb: {error} Without an account: WANDB_MODE=offline") from error
        _remember(folder, "wandb", self._run.id)

    def on_step(self, row: Metrics) -> None:
        self._run.log(numbers(row), step=int(row["step"] or 0))

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        rows = [
            [
                record["prompt"][-1]["content"],
                str(record["gold"]),
                record["text"],
                *(record[key] for key in ("value", "status", "right")),
            ]
            for record in evaluation.records[:_TABLE_ROWS]
        ]
        self._run.log({"eval/completions": self._library.Table(columns=list(_TABLE_COLUMNS), data=rows)}, step=step)

    def on_end(self, folder: Path) -> None:
        self._run.finish()


class Trackio(Callback):
    """A run of trackio: a database on this machine (TRACKIO_DIR), shown by `trackio show --project hallmark`."""

    def __init__(self) -> None:
        self._library = _library("trackio", module="trackio", package="trackio")

    def on_start(self, config: TrainConfig, folder: Path) -> None:
        known = _recall(folder, "trackio")
        self._run = self._library.init(
            project=os.environ.get("TRACKIO_PROJECT") or _PROJECT,
            # It knows a run again by its name alone, so a name is never used twice.
            name=known or f"{config.run_name or folder.name}-{uuid.uuid4().hex[:6]}",
            resume="allow" if known else "never",
            config=public_settings(config),
            embed=False,
        )
        _remember(folder, "trackio", self._run.name)

    def on_step(self, row: Metrics) -> None:
        self._run.log(numbers(row), step=int(row["step"] or 0))

    def on_end(self, folder: Path) -> None:
        self._run.finish()


REPORTERS: dict[str, Callable[[Say], Callback]] = {
    "tensorboard": lambda say: TensorBoard(),
    "wandb": WeightsAndBiases,
    "trackio": lambda say: Trackio(),
}


def numbers(row: Metrics) -> dict[str, float]:
    """What a chart can show of a row: its numbers but the step, which is the axis."""
    return {key: value for key, value in row.items() if isinstance(value, int | float) and key != "step"}


def _library(name: str, *, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"--report-to {name} needs a package ({error}): pip install {package}") from error


def _recall(folder: Path, service: str) -> str | None:
    file = folder / _REMEMBERED
    known: dict[str, str] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return known.get(service)


def _remember(folder: Path, service: str, name: str) -> None:
    file = folder / _REMEMBERED
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps(known | {service: name}) + "\n", encoding="utf-8")
