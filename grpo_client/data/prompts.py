"""Prompts: from rows to token ids, and from these to the prompts of each step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError

from grpo_client.config import TrainConfig, parse_template_arg
from grpo_client.data import sources
from grpo_client.data.examples import Columns, Example, examples_and_problems
from grpo_client.data.sources import Record
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt

R1_SYSTEM_PROMPT = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The Assistant "
    "first thinks about the reasoning process in the mind and then provides the user with the answer. The reasoning "
    "process and the answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, that is, "
    "<think>reasoning process here</think><answer>answer here</answer>."
)

_LISTED_ROWS = 10
_ASKED, _ANSWERED = "How many?", "Forty-two of them."  # of a turn, to see what stands behind it
_TAG = re.compile(r"<[A-Za-z][\w-]{0,31}>")
_SUITES_WITH_TAGS = frozenset({"r1", "simple_grpo"})


class Tokenizer(Protocol):
    """What is asked of a tokenizer; transformers' has it."""

    chat_template: str | None
    eos_token_id: int | None
    all_special_tokens: list[str]

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Messages as token ids."""

    def encode(self, text: str, **options: Any) -> list[int]:
        """Text as token ids."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """Token ids as text."""


@dataclass(frozen=True)
class Template:
    """Arguments of the chat template, and whether what it opens of the answer counts as the completion's."""

    arguments: Mapping[str, object] = field(default_factory=dict)
    keeps_opening: bool = True


# ---- rows --------------------------------------------------------------------------------------------------


def training_examples(config: TrainConfig) -> Sequence[Example]:
    """The rows to train on. Raises ConfigError that says which file and row, and what was found."""
    return usable_examples(training_records(config), chosen_columns(config))


def evaluation_examples(config: TrainConfig) -> Sequence[Example]:
    """The first `eval_prompts` held-out rows; none where evaluation is off or has no data."""
    count = None if config.eval_prompts == -1 else config.eval_prompts
    return usable_examples(evaluation_records(config), chosen_columns(config))[:count]


def usable_examples(records: Sequence[Record], columns: Columns) -> list[Example]:
    """Every record as a row. Raises ConfigError for the first that cannot be used, with the number of the others."""
    rows, problems = examples_and_problems(records, columns)
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
    """The system message: what was asked for, else the R1 prompt for the suites that want its tags, else none."""
    if config.system_prompt is not None:
        return config.system_prompt
    return R1_SYSTEM_PROMPT if (config.suite or "").partition("@")[0] in _SUITES_WITH_TAGS else None


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


def template_of(config: TrainConfig) -> Template:
    """How the config has the chat template used. Raises ConfigError."""
    return Template(dict(parse_template_arg(text) for text in config.template_arg), config.template_opening)


def prompt_builder(config: TrainConfig) -> Callable[[Sequence[Example], Tokenizer], list[Prompt]]:
    """`build_prompts` with what the config says of prompts. Raises ConfigError for few-shot examples that misfit."""
    return partial(
        build_prompts,
        system=system_prompt(config),
        few_shot=read_few_shot(config.few_shot),
        limit=config.max_prompt_length,
        template=template_of(config),
    )


def build_prompts(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    *,
    system: str | None,
    few_shot: Sequence[Mapping[str, str]],
    limit: int,
    template: Template = Template(),  # it is frozen
) -> list[Prompt]:
    """Rows as token ids, through the chat template. Prompts of more than `limit` tokens are left out.

    Raises ConfigError when none is left, saying how long they are, and for a row that the template refuses.
    """
    prompts, shortest = [], None
    for index, example in enumerate(examples):
        prompt = build_prompt(index, example, tokenizer, system=system, few_shot=few_shot, template=template)
        length = len(prompt.token_ids)
        shortest = min(length, shortest or length)
        if length <= limit:
            prompts.append(prompt)
    if examples and not prompts:
        raise ConfigError(
            f"every prompt is over --max-prompt-length {limit} tokens (the shortest has {shortest}); raise the limit"
        )
    return prompts


def build_prompt(
    index: int,
    example: Example,
    tokenizer: Tokenizer,
    *,
    system: str | None,
    few_shot: Sequence[Mapping[str, str]],
    template: Template = Template(),
) -> Prompt:
    """One row as token ids. Raises ConfigError when the chat template refuses its messages."""
    asked = (
        [{"role": "user", "content": example.question}] if isinstance(example.question, str) else list(example.question)
    )
    first = [{"role": "system", "content": system}] if system and asked[0].get("role") != "system" else []
    messages = [*first, *few_shot, *asked]
    try:
        token_ids = _encode(messages, tokenizer, template)
        opening = _opening(messages, tokenizer, template) if template.keeps_opening else ""
    except TemplateError as error:
        roles = ", ".join(message["role"] for message in messages)
        raise ConfigError(f"row {example.number}: the chat template refuses the messages ({roles}): {error}") from error
    return Prompt(index, messages, tuple(token_ids), example.gold, example.metadata, opening)


def _encode(messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer, template: Template) -> list[int]:
    if tokenizer.chat_template is None:
        token_ids = tokenizer.encode("\n\n".join(message["content"] for message in messages) + "\n")
        # Some tokenizers end every text with their end of sequence, after which a model begins something else.
        return token_ids[:-1] if token_ids and token_ids[-1] == tokenizer.eos_token_id else token_ids
    # Tokenised by the template itself: encoding its text anew would add a second BOS.
    options = {"add_generation_prompt": True, "return_dict": True, **template.arguments}
    return list(tokenizer.apply_chat_template(messages, **options)["input_ids"])


def _opening(messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer, template: Template) -> str:
    """What the template writes of the answer itself, behind its header: from the first tag that is no special token on.

    Qwen3 and DeepSeek-R1 open `<think>`, which a completion then only closes.
    """
    if tokenizer.chat_template is None:
        return ""
    asked, answering = (
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=begin, **template.arguments)
        for begin in (False, True)
    )
    if not answering.startswith(asked):
        return ""
    begun: str = answering[len(asked) :]
    tags = (match.start() for match in _TAG.finditer(begun) if match[0] not in tokenizer.all_special_tokens)
    return begun[next(tags, len(begun)) :]


def turn_end(tokenizer: Tokenizer, template: Template) -> str:
    """What the template writes behind an answer, white space apart: so a model that has learnt it ends its answers."""
    if tokenizer.chat_template is None:
        return ""
    turns = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _ANSWERED}]
    try:
        text: str = tokenizer.apply_chat_template(turns, tokenize=False, **template.arguments)
    except TemplateError:
        return ""
    _, answered, end = text.rpartition(_ANSWERED)
    return end.strip() if answered else ""


def left_out(examples: Sequence[Example], prompts: Sequence[Prompt], *, limit: int) -> str:
    """Which rows are over the limit, in words; empty when none is."""
    kept = {prompt.index for prompt in prompts}
    numbers = [example.number for index, example in enumerate(examples) if index not in kept]
    if not numbers:
        return ""
    some = ", ".join(str(number) for number in numbers[:_LISTED_ROWS]) + ", …" * (len(numbers) > _LISTED_ROWS)
    return f"{len(numbers)} over --max-prompt-length {limit} left out: row{'s' * (len(numbers) > 1)} {some}"
