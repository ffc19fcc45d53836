"""Prompts: from rows to token ids, and from these to the prompts of each step."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError

from grpo_client import sources
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.rows import Columns, Row, rows_and_problems
from grpo_client.sources import Record
from grpo_client.types import Prompt

R1_SYSTEM_PROMPT = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The Assistant "
    "first thinks about the reasoning process in the mind and then provides the user with the answer. The reasoning "
    "process and the answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, that is, "
    "<think>reasoning process here</think><answer>answer here</answer>."
)

_LISTED_ROWS = 10


class Tokenizer(Protocol):
    """What is asked of a tokenizer; transformers' has it."""

    chat_template: str | None

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Messages as token ids."""

    def encode(self, text: str, **options: Any) -> list[int]:
        """Text as token ids."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """Token ids as text."""


# ---- rows --------------------------------------------------------------------------------------------------


def training_rows(config: TrainConfig) -> Sequence[Row]:
    """The rows to train on. Raises ConfigError that says which file and row, and what was found."""
    return usable_rows(training_records(config), chosen_columns(config))


def evaluation_rows(config: TrainConfig) -> Sequence[Row]:
    """The first `eval_prompts` held-out rows; none where evaluation is off or has no data."""
    return usable_rows(evaluation_records(config), chosen_columns(config))[: config.eval_prompts]


def usable_rows(records: Sequence[Record], columns: Columns) -> list[Row]:
    """Every record as a row. Raises ConfigError for the first that cannot be used, with the number of the others."""
    rows, problems = rows_and_problems(records, columns)
    match problems:
        case []:
            return rows
        case [problem]:
            raise ConfigError(problem)
        case [problem, *others]:
            raise ConfigError(
                f"{problem}\n(and {len(others)} more rows cannot be used; `grpo-client validate-data` lists them)"
            )
    raise AssertionError(problems)


def training_records(config: TrainConfig) -> list[Record]:
    """Every record of --data. Raises ConfigError when it cannot be opened."""
    _check_options(config)
    if config.data == "addition":
        return sources.addition_records(seed=config.seed, held_out=False)
    return sources.read_records(
        config.data, config=config.data_config, split=config.data_split, files=sources.TRAINING_FILES
    )


def evaluation_records(config: TrainConfig) -> list[Record]:
    """All held-out records; none where evaluation is off or has no data. Raises ConfigError."""
    source = evaluation_source(config)
    if source is None or config.eval_every == 0:
        return []
    if source == "addition":
        return sources.addition_records(seed=config.seed, held_out=True)
    return sources.read_records(
        source, config=config.data_config, split=config.eval_split, files=sources.HELD_OUT_FILES
    )


def evaluation_source(config: TrainConfig) -> str | None:
    """What was asked for, else the generator's own held-out part, else the held-out file in a folder of data."""
    if config.eval_data is not None or config.data == "addition":
        return config.eval_data or "addition"
    folder = Path(config.data)
    file = sources.find_file(folder, sources.HELD_OUT_FILES) if folder.is_dir() else None
    return None if file is None else str(file)


def chosen_columns(config: TrainConfig) -> Columns:
    """Which columns are read."""
    return Columns(config.question_column, config.gold_column, config.metadata_column)


def _check_options(config: TrainConfig) -> None:
    if config.data == "addition" and chosen_columns(config) != Columns():
        raise ConfigError(
            "--data addition has no columns to choose from; leave --question-column, --gold-column and "
            "--metadata-column out"
        )
    if config.epochs is not None and config.steps != TrainConfig.model_fields["steps"].default:
        raise ConfigError(f"--epochs {config.epochs} and --steps {config.steps}: how long to train is said once")


# ---- prompts -----------------------------------------------------------------------------------------------


def system_prompt(config: TrainConfig) -> str | None:
    """The system message: what was asked for, else the R1 prompt for the suites of the two ancestors, else none."""
    ancestor = (config.suite or "").partition("@")[0] in {"r1", "simple_grpo"}
    return config.system_prompt if config.system_prompt is not None else (R1_SYSTEM_PROMPT if ancestor else None)


def read_few_shot(path: Path | None) -> list[dict[str, str]]:
    """Worked examples as chat messages: each row has a question and a completion. Raises ConfigError."""
    messages: list[dict[str, str]] = []
    for record in [] if path is None else sources.read_file(path):
        match record:
            case Record(problem=str(problem)):
                raise ConfigError(f"--few-shot {record.where}: {problem}")
            case Record(values={"question": str(question), "completion": str(completion)}):
                messages.append({"role": "user", "content": question})
                messages.append({"role": "assistant", "content": completion})
            case _:
                raise ConfigError(f'--few-shot {record.where}: expected {{"question": …, "completion": …}}, both text')
    return messages


def prompt_builder(config: TrainConfig) -> Callable[[Sequence[Row], Tokenizer], list[Prompt]]:
    """`build_prompts` with what the config says of prompts. Raises ConfigError for few-shot examples that misfit."""
    return partial(
        build_prompts,
        system=system_prompt(config),
        few_shot=read_few_shot(config.few_shot),
        limit=config.max_prompt_length,
    )


def build_prompts(
    rows: Sequence[Row], tokenizer: Tokenizer, *, system: str | None, few_shot: Sequence[Mapping[str, str]], limit: int
) -> list[Prompt]:
    """Rows as token ids, through the chat template. Prompts of more than `limit` tokens are left out.

    Raises ConfigError when none is left, saying how long they are, and for a row that the template refuses.
    """
    prompts, shortest = [], None
    for index, row in enumerate(rows):
        prompt = build_prompt(index, row, tokenizer, system=system, few_shot=few_shot)
        length = len(prompt.token_ids)
        shortest = min(length, shortest or length)
        if length <= limit:
            prompts.append(prompt)
    if rows and not prompts:
        raise ConfigError(
            f"every prompt is over --max-prompt-length {limit} tokens (the shortest has {shortest}); raise the limit"
        )
    return prompts


def build_prompt(
    index: int, row: Row, tokenizer: Tokenizer, *, system: str | None, few_shot: Sequence[Mapping[str, str]]
) -> Prompt:
    """One row as token ids. Raises ConfigError when the chat template refuses its messages."""
    asked = [{"role": "user", "content": row.question}] if isinstance(row.question, str) else list(row.question)
    opening = [{"role": "system", "content": system}] if system and asked[0].get("role") != "system" else []
    messages = [*opening, *few_shot, *asked]
    try:
        token_ids = _encode(messages, tokenizer)
    except TemplateError as error:
        roles = ", ".join(message["role"] for message in messages)
        raise ConfigError(f"row {row.number}: the chat template refuses the messages ({roles}): {error}") from error
    return Prompt(index, messages, tuple(token_ids), row.gold, row.metadata)


def _encode(messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer) -> list[int]:
    if tokenizer.chat_template is None:
        return tokenizer.encode("\n\n".join(message["content"] for message in messages) + "\n")
    # Tokenised by the template itself: encoding its text anew would add a second BOS.
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])


def left_out(rows: Sequence[Row], prompts: Sequence[Prompt], *, limit: int) -> str:
    """Which rows are over the limit, in words; empty when none is."""
    kept = {prompt.index for prompt in prompts}
    numbers = [row.number for index, row in enumerate(rows) if index not in kept]
    if not numbers:
        return ""
    some = ", ".join(str(number) for number in numbers[:_LISTED_ROWS]) + ", …" * (len(numbers) > _LISTED_ROWS)
    return f"{len(numbers)} over --max-prompt-length {limit} left out: row{'s' * (len(numbers) > 1)} {some}"


# ---- steps -------------------------------------------------------------------------------------------------


def steps_of(epochs: int, prompts: int, size: int) -> int:
    """Steps of `size` prompts in which each of the prompts comes `epochs` times; the last one may begin another."""
    return math.ceil(epochs * prompts / size)


def with_steps(config: TrainConfig, prompts: Sequence[Prompt]) -> TrainConfig:
    """The configuration with its epochs turned into steps, now that it is known how many prompts there are."""
    if config.epochs is None:
        return config
    steps = steps_of(config.epochs, len(prompts), config.prompts_per_step)
    return config.model_copy(update={"steps": steps, "epochs": None})


def batches(
    prompts: Sequence[Prompt], *, size: int, seed: int, shuffle: bool = True, length_buckets: bool = False
) -> Iterator[list[Prompt]]:
    """Endless batches, each prompt once an epoch, in an order that depends on the arguments alone.

    What is left at the end of an epoch begins the next one's first batch; no batch holds a prompt twice, for both would
    be sampled with the same noise. `length_buckets` puts prompts of like token counts together, after mlx_lm's
    length-sorted batches, and shuffles the order of batches; without shuffling, it goes from short to long.
    Raises ConfigError when there are fewer prompts than one batch holds.
    """
    if len(prompts) < size:
        raise ConfigError(
            f"--prompts-per-step {size} is more than the {len(prompts)} prompts that there are, and a step takes each "
            "only once; lower it, or give more data"
        )
    arrange = partial(_by_length if length_buckets else _in_turn, size=size, shuffle=shuffle)
    return _stream(prompts, arrange, size=size, seed=seed)


def _stream(prompts: Sequence[Prompt], arrange: Any, *, size: int, seed: int) -> Iterator[list[Prompt]]:
    waiting: list[Prompt] = []
    for epoch in itertools.count():
        order = waiting + arrange(prompts, waiting, rng=random.Random(f"epoch {epoch} of {seed}"))
        full = len(order) // size * size
        for start in range(0, full, size):
            yield order[start : start + size]
        waiting = order[full:]


def _in_turn(
    prompts: Sequence[Prompt], waiting: Sequence[Prompt], *, size: int, shuffle: bool, rng: random.Random
) -> list[Prompt]:
    """An epoch's order. Its start fills up the batch of those that wait from the epoch before, with none of them."""
    order = list(prompts)
    if shuffle:
        rng.shuffle(order)
    if not waiting:
        return order
    taken = {prompt.index for prompt in waiting}
    filling = [prompt for prompt in order if prompt.index not in taken][: size - len(waiting)]
    return filling + _without(order, filling)


def _by_length(
    prompts: Sequence[Prompt], waiting: Sequence[Prompt], *, size: int, shuffle: bool, rng: random.Random
) -> list[Prompt]:
    """The same with like lengths together: cut from the sorted order, so that the batches' ranges do not overlap."""
    order = list(prompts)
    if shuffle:
        rng.shuffle(order)  # decides among equal lengths
    filling: list[Prompt] = []
    if waiting:
        taken, middle = {prompt.index for prompt in waiting}, _length(waiting[len(waiting) // 2])
        others = [prompt for prompt in order if prompt.index not in taken]
        filling = sorted(others, key=lambda prompt: abs(_length(prompt) - middle))[: size - len(waiting)]
    rest = sorted(_without(order, filling), key=_length)
    whole = len(rest) // size
    border = (rng.randint(0, whole) if shuffle else whole) * size  # those that will wait stand here
    end = border + len(rest) % size
    cuts = [rest[start : start + size] for start in (*range(0, border, size), *range(end, len(rest), size))]
    if shuffle:
        rng.shuffle(cuts)
    return filling + list(itertools.chain.from_iterable(cuts)) + rest[border:end]


def _length(prompt: Prompt) -> int:
    return len(prompt.token_ids)


def _without(prompts: Sequence[Prompt], taken: Sequence[Prompt]) -> list[Prompt]:
    indices = {prompt.index for prompt in taken}
    return [prompt for prompt in prompts if prompt.index not in indices]


def shard(prompts: Sequence[Prompt], *, rank: int, ranks: int) -> list[Prompt]:
    """The prompts of a step that are one process's own: as many for each, and in the step's order when put together.

    Raises ConfigError when they cannot be dealt out evenly: a process without its share would keep the others waiting.
    """
    if len(prompts) % ranks:
        raise ConfigError(
            f"{len(prompts)} prompts of a step cannot be dealt out evenly to {ranks} processes; make "
            f"--prompts-per-step a multiple of {ranks}"
        )
    share = len(prompts) // ranks
    return list(prompts[rank * share : (rank + 1) * share])
