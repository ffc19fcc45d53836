"""`grpo-client merge`: an adapter and its model as one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from grpo_client.backends import merge_adapter
from grpo_client.errors import StorageError
from grpo_client.options.flags import Parser, all_flags
from grpo_client.options.settings import resolve

_SUMMARY = "Add a peft adapter into its model's weights, and write a Hugging Face model with its tokenizer."
_EXAMPLES = """examples:
  grpo-client merge --model HuggingFaceTB/SmolLM2-135M-Instruct --adapter runs/lora/final --output merged
"""


class MergeConfig(BaseModel):
    """What to merge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="The model that the adapter was trained on: hub id, folder, .gguf file or smollm2.")
    adapter: Path = Field(description="Folder of the adapter.")
    output: Path = Field(description="Folder for the merged model; must be new or empty.")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Of the weights that are written; they are added in float32."
    )
    same_base: bool = Field(
        default=False, description="The adapter was trained on this model under another name or path."
    )


def main(arguments: Sequence[str]) -> int:
    """Merge."""
    parser = Parser("grpo-client merge", description=_SUMMARY, epilog=_EXAMPLES)
    parser.add_flags(all_flags(MergeConfig))
    given = parser.read(arguments)
    config = resolve(MergeConfig, given.settings[MergeConfig], faults=given.faults)
    try:
        weights = merge_adapter(
            config.model, config.adapter, config.output, dtype=config.dtype, same_base=config.same_base
        )
    except OSError as error:
        raise StorageError(f"--output {config.output} cannot be written to: {error.strerror or error}") from error
    print(f"{config.output}: {weights:,} weights in {config.dtype}")
    return 0
