"""What `grpo-client validate-data` shows: what a run would train on, and everything that is wrong with it, at once.

No model is loaded and no service asked: rows, columns and prompts are read as a run reads them, by the same functions.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from grpo_client.config import TrainConfig
from grpo_client.data.examples import Example, examples_and_problems
from grpo_client.data.prompts import (
    Tokenizer,
    build_prompt,
    chosen_columns,
    evaluation_records,
    evaluation_source,
    read_few_shot,
    system_prompt,
    template_of,
    training_records,
)
from grpo_client.data.sources import Record
from grpo_client.errors import ConfigError
from grpo_client.terminal import printable
from grpo_client.types import Prompt

LONG_GOLD_CHARS = 200  # more is a worked solution, or a column that is not the answer

_PERCENTILES = (0, 50, 90, 99, 100)
_SHOWN_PROBLEMS = 20
_SHOWN_ROWS = 10
_SHOWN_CHARS = 20_000  # of the first prompt


@dataclass(frozen=True, slots=True)
class FirstPrompt:
    """The first prompt as the model gets it: its row, its text with special tokens, its token count."""

    row: int
    text: str
    token_count: int
    double_bos: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What training or held-out data holds. Rows are named by their numbers, as in the messages of a run.

    `repeated` lists the rows of each question that is there more than once, `contradicting` those of them whose golds
    differ; `token_counts` has every prompt's length, over-long ones included; `columns` counts rows by where their
    question and gold were found.
    """

    source: str
    records: int
    problems: list[str]
    columns: Mapping[str, Mapping[str, int]]
    token_counts: list[int]
    over_long: list[int]
    repeated: list[list[int]]
    contradicting: list[list[int]]
    long_golds: list[int]
    questions: Mapping[str, list[int]] = field(repr=False)
    first: FirstPrompt | None = None

    @property
    def prompts(self) -> int:
        """How many prompts a run would have."""
        return len(self.token_counts) - len(self.over_long)


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. `overlap` pairs training rows and held-out rows that ask the same; `warnings` stop no run."""

    train: Part
    held_out: Part | None
    overlap: list[tuple[list[int], list[int]]]
    refusals: list[str]
    warnings: list[str]

    @property
    def ok(self) -> bool:
        """Whether a run would start with this data."""
        return not (self.refusals or self.train.problems or (self.held_out and self.held_out.problems))


def validate(config: TrainConfig, tokenizer: Tokenizer) -> Report:
    """Read the data of a run, and look at every row. Raises ConfigError for data that cannot be opened at all."""
    few_shot = read_few_shot(config.few_shot)
    train = _look_at(config, tokenizer, few_shot, config.data, training_records(config))
    source, records = evaluation_source(config), evaluation_records(config)
    held_out = _look_at(config, tokenizer, few_shot, source, records) if source is not None and records else None
    shared = sorted(train.questions.keys() & held_out.questions.keys()) if held_out else []
    overlap = sorted((train.questions[one], held_out.questions[one]) for one in shared) if held_out else []
    return Report(
        train, held_out, overlap, _refusals(config, train, held_out), _warnings(train, held_out, overlap, tokenizer)
    )


def _look_at(
    config: TrainConfig, tokenizer: Tokenizer, few_shot: Sequence[Mapping[str, str]], source: str, records: list[Record]
) -> Part:
    rows, problems = examples_and_problems(records, chosen_columns(config))
    token_counts, over_long, first = [], [], None
    for index, row in enumerate(rows):
        try:
            prompt = build_prompt(
                index, row, tokenizer, system=system_prompt(config), few_shot=few_shot, template=template_of(config)
            )
        except ConfigError as error:
            problems.append(str(error))
            continue
        token_counts.append(len(prompt.token_ids))
        if len(prompt.token_ids) > config.max_prompt_length:
            over_long.append(row.number)
        else:
            first = first or _first_prompt(row, prompt, tokenizer)
    questions = _by_question(rows)
    repeated = {question: same for question, same in questions.items() if len(same) > 1}
    return Part(
        source=source,
        records=len(records),
        problems=problems,
        columns={
            "question": Counter(row.question_column for row in rows),
            "gold": Counter(row.gold_column for row in rows),
        },
        token_counts=token_counts,
        over_long=over_long,
        repeated=[[row.number for row in same] for same in repeated.values()],
        contradicting=[[row.number for row in same] for same in repeated.values() if _contradict(same)],
        long_golds=[row.number for row in rows if max(map(len, _golds(row))) > LONG_GOLD_CHARS],
        questions={question: [row.number for row in same] for question, same in questions.items()},
        first=first,
    )


def _by_question(rows: Sequence[Example]) -> dict[str, list[Example]]:
    """Rows that ask the same, white space apart."""
    found: dict[str, list[Example]] = defaultdict(list)
    for row in rows:
        asked = row.question if isinstance(row.question, str) else json.dumps(row.question, sort_keys=True)
        found[" ".join(asked.split())].append(row)
    return dict(found)


def _golds(row: Example) -> list[str]:
    return [row.gold] if isinstance(row.gold, str) else row.gold


def _contradict(rows: Sequence[Example]) -> bool:
    return len({tuple(_golds(row)) for row in rows}) > 1


def _first_prompt(row: Example, prompt: Prompt, tokenizer: Tokenizer) -> FirstPrompt:
    text = tokenizer.decode(prompt.token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    bos: Any = getattr(tokenizer, "bos_token_id", None)
    return FirstPrompt(row.number, text, len(prompt.token_ids), bos is not None and prompt.token_ids[:2] == (bos, bos))


def _refusals(config: TrainConfig, train: Part, held_out: Part | None) -> list[str]:
    """Why a run would refuse data whose rows are in order."""
    refusals = [
        f"{part.source}: every prompt is over --max-prompt-length {config.max_prompt_length} tokens (the shortest has "
        f"{min(part.token_counts)}); raise the limit"
        for part in [train, held_out]
        if part and part.token_counts and not part.prompts
    ]
    if 0 < train.prompts < config.prompts_per_step:
        refusals.append(
            f"{train.source}: {train.prompts} prompts, and --prompts-per-step takes {config.prompts_per_step} "
            "different ones; lower it, or give more data"
        )
    return refusals


def _warnings(
    train: Part, held_out: Part | None, overlap: Sequence[tuple[list[int], list[int]]], tokenizer: Tokenizer
) -> list[str]:
    warnings = []
    if tokenizer.chat_template is None:
        warnings.append("the tokenizer has no chat template: messages are joined by empty lines, roles are lost")
    if train.first and train.first.double_bos:
        warnings.append("prompts begin with two BOS tokens; look at the chat template, and at the data for a BOS token")
    for part in [train, held_out]:
        if part:
            warnings += _warnings_of(part)
    if overlap:
        rows = _listed([number for _, held_out_rows in overlap for number in held_out_rows])
        warnings.append(f"held-out questions that are trained on, so accuracy is not held-out there: {rows}")
    return warnings


def _warnings_of(part: Part) -> list[str]:
    warnings = []
    for what, found in part.columns.items():
        if len(found) > 1:
            counts = ", ".join(f"{name} in {count} rows" for name, count in found.items())
            warnings.append(
                f"{part.source}: the {what} is {counts}; name one with --{what}-column if that is not meant"
            )
    if part.contradicting:
        some = "; ".join(", ".join(map(str, numbers[:_SHOWN_ROWS])) for numbers in part.contradicting[:_SHOWN_ROWS])
        warnings.append(f"{part.source}: the same question with different golds, rows {some}")
    if part.long_golds:
        warnings.append(
            f"{part.source}: golds of more than {LONG_GOLD_CHARS} characters; is it the right column? "
            + _listed(part.long_golds)
        )
    return warnings


def _listed(numbers: Sequence[int]) -> str:
    some = ", ".join(map(str, numbers[:_SHOWN_ROWS])) + ", …" * (len(numbers) > _SHOWN_ROWS)
    return f"{len(numbers)} (row{'s' * (len(numbers) > 1)} {some})"


# ---- the terminal ------------------------------------------------------------------------------------------


def render(report: Report, console: Console) -> None:
    """Show a report. What stands in the data is shown as text, its control characters spelt out."""
    console.print(_summary(report))
    for part in [report.train, report.held_out]:
        if part and part.problems:
            _say(console, f"{part.source}: {len(part.problems)} rows cannot be used:", style="bold red")
            for problem in part.problems[:_SHOWN_PROBLEMS]:
                _say(console, f"  {problem}")
            if len(part.problems) > _SHOWN_PROBLEMS:
                _say(console, f"  … and {len(part.problems) - _SHOWN_PROBLEMS} more")
    for refusal in report.refusals:
        _say(console, refusal, style="bold red")
    for warning in report.warnings:
        _say(console, f"warning: {warning}", style="yellow")
    if report.train.first:
        console.print(_panel(report.train.first))
    _say(console, "a run would start with this data" if report.ok else "a run would refuse this data", style="bold")


def _summary(report: Report) -> Table:
    table = Table(title="data", title_justify="left")
    table.add_column("")
    parts = [("training", report.train)] + ([("held out", report.held_out)] if report.held_out else [])
    for heading, part in parts:
        table.add_column(Text(f"{heading}: {printable(part.source)}"), justify="right", overflow="fold")
    for label, values in _lines([part for _, part in parts]):
        table.add_row(label, *(Text(printable(value)) for value in values))
    return table


def _lines(parts: Sequence[Part]) -> list[tuple[str, list[str]]]:
    return [
        ("rows read", [str(part.records) for part in parts]),
        ("rows that cannot be used", [str(len(part.problems)) for part in parts]),
        ("over --max-prompt-length", [_listed(part.over_long) if part.over_long else "0" for part in parts]),
        ("prompts", [str(part.prompts) for part in parts]),
        ("question column", [_names(part.columns["question"]) for part in parts]),
        ("gold column", [_names(part.columns["gold"]) for part in parts]),
        ("questions there more than once", [_repeats(part.repeated) for part in parts]),
        (
            f"tokens of a prompt ({', '.join(f'{one}%' for one in _PERCENTILES)})",
            [_percentiles(part.token_counts) for part in parts],
        ),
    ]


def _names(found: Mapping[str, int]) -> str:
    return ", ".join(found) or "-"


def _repeats(repeated: Sequence[Sequence[int]]) -> str:
    if not repeated:
        return "0"
    some = "; ".join(", ".join(map(str, numbers[:_SHOWN_ROWS])) for numbers in repeated[:3])
    return f"{len(repeated)} (rows {some}{'; …' if len(repeated) > 3 else ''})"


def _percentiles(token_counts: Sequence[int]) -> str:
    if not token_counts:
        return "-"
    return ", ".join(f"{value:g}" for value in np.percentile(token_counts, _PERCENTILES, method="higher"))


def _panel(first: FirstPrompt) -> Panel:
    cut = f", of which the first {_SHOWN_CHARS} characters" if len(first.text) > _SHOWN_CHARS else ""
    # A newline is spelt out and kept, so that what the model gets can be told from how this terminal wraps it.
    shown = printable(first.text[:_SHOWN_CHARS]).replace("\n", "\\n\n")
    return Panel(
        Text(shown), title=f"the first prompt: row {first.row}, {first.token_count} tokens{cut}", title_align="left"
    )


def _say(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(printable(text), style=style), soft_wrap=True)
