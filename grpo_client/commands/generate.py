"""`grpo-client generate`: completions to look at, sampled as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from grpo_client.backends import load_backend
from grpo_client.backends.base import Backend
from grpo_client.commands.common import config_of, parser
from grpo_client.config import TrainConfig
from grpo_client.data.examples import Example
from grpo_client.data.prompts import prompt_builder, training_examples
from grpo_client.errors import ConfigError
from grpo_client.options.flags import Flag
from grpo_client.rollout import completion_text, sampling_of
from grpo_client.terminal import printable
from grpo_client.types import Prompt

_SUMMARY = "Sample completions through the chat template and the sampler of training, and print them."
_EXAMPLES = """examples:
  grpo-client generate --model smollm2 --prompt 'Sara has 3 pens and gets 4 more. How many pens?' -n 4
  grpo-client generate --model runs/first/final --data test.jsonl --limit 5 --temperature 0
"""


class GenerateConfig(TrainConfig):
    """A training config and what generation alone needs."""

    prompt: str | None = Field(default=None, description="What the user says.")
    limit: int = Field(default=4, ge=1, description="Rows of --data to sample for.")
    completions: int = Field(default=1, ge=1, description="Completions of each prompt.")
    sampling_temperature: float = Field(default=1.0, ge=0, description="Divides the logits; 0 is greedy.")


_FLAGS = [
    Flag(GenerateConfig, "prompt"),
    Flag(GenerateConfig, "data", help="Rows to sample for, in the forms of `train --data`, instead of --prompt."),
    Flag(GenerateConfig, "data_split"),
    Flag(GenerateConfig, "limit"),
    Flag(GenerateConfig, "completions", name="-n"),
    Flag(GenerateConfig, "sampling_temperature", name="temperature"),
]


def main(arguments: Sequence[str]) -> int:
    """Sample and print."""
    reader = parser("grpo-client generate", GenerateConfig, _FLAGS, service=False, summary=_SUMMARY, examples=_EXAMPLES)
    given = reader.read(arguments)
    config = config_of(GenerateConfig, given)
    named = {setting.name for setting in given.settings[GenerateConfig]}
    if config.prompt is not None and "data" in named:
        raise ConfigError("--prompt and --data: sample for one or the other")
    if config.prompt is None and "data" not in named and "config" not in given.others:
        raise ConfigError("say what to complete: --prompt TEXT, or rows of --data FILE")
    rows = [Example(config.prompt, "")] if config.prompt is not None else training_examples(config)[: config.limit]
    backend = load_backend(config)
    for text in completions(config, backend, rows):
        print(text, flush=True)
    return 0


def completions(config: GenerateConfig, backend: Backend, rows: Sequence[Example]) -> Iterator[str]:
    """Each prompt and its completions as text for a terminal, as groups finish."""
    prompts = prompt_builder(config)(rows, backend.tokenizer)
    sampling = sampling_of(config, group_size=config.completions, temperature=config.sampling_temperature)
    if note := backend.settle(prompts, max_completion_length=config.max_completion_length):
        yield note
    for place, rollouts in backend.sample(prompts, sampling):
        yield _heading(prompts[place])
        for number, rollout in enumerate(rollouts, start=1):
            text = completion_text(backend.tokenizer, prompts[place], rollout)
            count = len(rollout.token_ids)
            yield f"--- completion {number}: {count} token{'s' * (count != 1)}, {rollout.finish_reason}"
            yield printable(text)
        yield ""


def _heading(prompt: Prompt) -> str:
    said = "\n".join(f"{message['role']}: {message['content']}" for message in prompt.messages)
    return printable(f"=== prompt {prompt.index + 1}, {len(prompt.token_ids)} tokens\n{said}")
