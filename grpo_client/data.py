"""Prompts: from JSONL, a Hugging Face dataset, or a generator of addition word problems, to token ids.

A row's gold is a string. GSM8K's `####` convention is understood: what follows the last `####` is the gold.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.types import Prompt

QUESTION_KEYS = ("prompt", "question", "problem", "input")
GOLD_KEYS = ("gold", "answer", "solution", "target", "ground_truth")

R1_SYSTEM_PROMPT = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The Assistant "
    "first thinks about the reasoning process in the mind and then provides the user with the answer. The reasoning "
    "process and the answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, that is, "
    "<think>reasoning process here</think><answer>answer here</answer>."
)

_NAMES = ("Sara", "Tim", "Lea", "Omar", "Nina", "Paul", "Mia", "Ben")
_THINGS = ("books", "coins", "pens", "cards", "shells", "stamps", "apples", "keys")
_NUMBERS = range(2, 21)
_HELD_OUT_SHARE = 0.35


class Tokenizer(Protocol):
    """What is asked of a tokenizer; transformers' has it."""

    chat_template: str | None

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Messages as token ids."""

    def encode(self, text: str, **options: Any) -> list[int]:
        """Text as token ids."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        """Token ids as text."""


@dataclass(frozen=True, slots=True)
class Row:
    """A question (or a list of chat messages) and its gold."""

    question: str | Sequence[Mapping[str, str]]
    gold: str | list[str]


def training_rows(config: TrainConfig) -> Sequence[Row]:
    """The rows to train on. Raises ConfigError that says which file and row, and what was found."""
    return load_rows(config.data, config=config.data_config, split=config.data_split, seed=config.seed, held_out=False)


def evaluation_rows(config: TrainConfig) -> Sequence[Row]:
    """The first `eval_prompts` held-out rows; none where evaluation is off or has no data."""
    source = config.eval_data or ("addition" if config.data == "addition" else None)
    if source is None or config.eval_every == 0:
        return []
    rows = load_rows(source, config=config.data_config, split=config.eval_split, seed=config.seed, held_out=True)
    return rows[: config.eval_prompts]


def load_rows(source: str, *, config: str | None, split: str, seed: int, held_out: bool) -> Sequence[Row]:
    """Rows from a file, a Hugging Face dataset or the generator."""
    if source == "addition":
        return addition_rows(seed=seed, held_out=held_out)
    path = Path(source)
    if path.suffix in {".jsonl", ".json"} or path.is_file():
        return _read_jsonl(path)
    if path.exists():
        raise ConfigError(f"{path} is a folder; name the JSONL file in it")
    return _read_hub(source, config=config, split=split)


def _read_jsonl(path: Path) -> list[Row]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: U+2028 is text
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ConfigError(
                    f"{path}, row {number}: not JSON ({error.msg}); each line is one JSON object"
                ) from None
            rows.append(to_row(record, where=f"{path}, row {number}"))
    if not rows:
        raise ConfigError(f"{path} holds no rows")
    return rows


def _read_hub(name: str, *, config: str | None, split: str) -> list[Row]:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"{name!r} is no file here; to load it as a Hugging Face dataset: pip install datasets"
        ) from None
    try:
        records = datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load dataset {name!r} (config {config}, split {split}): {error}") from error
    return [to_row(record, where=f"{name}, row {number}") for number, record in enumerate(records, start=1)]


def to_row(record: object, *, where: str) -> Row:
    """A record's question and gold, found by the usual column names. Raises ConfigError with the keys found."""
    if not isinstance(record, Mapping):
        raise ConfigError(f"{where}: a JSON object is expected, not {type(record).__name__}")
    question = next((record[key] for key in QUESTION_KEYS if record.get(key)), None)
    gold = next((record[key] for key in GOLD_KEYS if record.get(key) not in (None, "", [])), None)
    for value, what, keys in ((question, "question", QUESTION_KEYS), (gold, "gold", GOLD_KEYS)):
        if value is None:
            raise ConfigError(f"{where}: no {what} ({' or '.join(keys)}); keys found: {', '.join(record) or 'none'}")
    assert question is not None
    return Row(question, _gold(gold, where=where))


def _gold(value: object, *, where: str) -> str | list[str]:
    match value:
        case str():
            gold = value.rpartition("####")[2].strip()
            if not gold:
                raise ConfigError(f"{where}: nothing follows the #### of the gold")
            return gold
        case bool() | float():
            raise ConfigError(f"{where}: the gold is a JSON {type(value).__name__}; write it as a string")
        case int():
            return str(value)
        case list() if all(isinstance(one, str) for one in value):
            return list(value)
    raise ConfigError(f"{where}: the gold is neither a string nor a list of strings")


def addition_rows(*, seed: int, held_out: bool) -> list[Row]:
    """Addition word problems over 2…20. An (unordered) pair of numbers is in training or held out, never in both."""
    rng = random.Random(f"addition {seed}")
    pairs = list(itertools.combinations_with_replacement(_NUMBERS, 2))
    rng.shuffle(pairs)
    border = round(len(pairs) * _HELD_OUT_SHARE)
    chosen = pairs[:border] if held_out else pairs[border:]
    problems = [pair for a, b in chosen for pair in dict.fromkeys([(a, b), (b, a)])]
    rng.shuffle(problems)
    return [_word_problem(a, b, rng) for a, b in problems]


def _word_problem(a: int, b: int, rng: random.Random) -> Row:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    return Row(f"{name} has {a} {things} and gets {b} more. How many {things}?", str(a + b))


# ---- prompts -----------------------------------------------------------------------------------------------


def system_prompt(config: TrainConfig) -> str | None:
    """The system message: what was asked for, else the R1 prompt for the suites of the two ancestors, else none."""
    ancestor = (config.suite or "").partition("@")[0] in {"r1", "simple_grpo"}
    return config.system_prompt if config.system_prompt is not None else (R1_SYSTEM_PROMPT if ancestor else None)


def read_few_shot(path: Path | None) -> list[dict[str, str]]:
    """Worked examples as chat messages: each line has a question and a completion. Raises ConfigError."""
    messages: list[dict[str, str]] = []
    if path is None:
        return messages
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: U+2028 is text
    except OSError as error:
        raise ConfigError(f"--few-shot: cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            example = json.loads(line)
            messages.append({"role": "user", "content": str(example["question"])})
            messages.append({"role": "assistant", "content": str(example["completion"])})
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f'--few-shot {path}, line {number}: expected {{"question": …, "completion": …}} ({error})'
            ) from None
    return messages


def build_prompts(
    rows: Sequence[Row], tokenizer: Tokenizer, *, system: str | None, few_shot: Sequence[Mapping[str, str]], limit: int
) -> list[Prompt]:
    """Rows as token ids, through the chat template. Prompts of more than `limit` tokens are left out.

    Raises ConfigError when none is left, saying how long they are.
    """
    prompts, shortest = [], None
    for index, row in enumerate(rows):
        asked = [{"role": "user", "content": row.question}] if isinstance(row.question, str) else list(row.question)
        opening = [{"role": "system", "content": system}] if system and asked[0].get("role") != "system" else []
        messages = [*opening, *few_shot, *asked]
        token_ids = _encode(messages, tokenizer)
        shortest = min(len(token_ids), shortest or len(token_ids))
        if len(token_ids) <= limit:
            prompts.append(Prompt(index, messages, tuple(token_ids), row.gold))
    if rows and not prompts:
        raise ConfigError(
            f"every prompt is over --max-prompt-length {limit} tokens (the shortest has {shortest}); raise the limit"
        )
    return prompts


def _encode(messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer) -> list[int]:
    if tokenizer.chat_template is None:
        return tokenizer.encode("\n\n".join(message["content"] for message in messages) + "\n")
    # Tokenised by the template itself: encoding its text anew would add a second BOS.
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])


def batches(prompts: Sequence[Prompt], *, size: int, seed: int) -> Iterator[list[Prompt]]:
    """Endless batches, each epoch in an order of its own that depends on the seed alone."""
    queue: list[Prompt] = []
    for epoch in itertools.count():
        order = list(prompts)
        random.Random(f"epoch {epoch} of {seed}").shuffle(order)
        queue += order
        while len(queue) >= size:
            yield queue[:size]
            del queue[:size]
