"""Names of settings: `-` and `_` alike, other trainers' names where they mean the same, a reason where they do not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from grpo_client.options.option import option

# What looks like one of our settings, stands in TRL's and mlx_lm's place for one, or was one, and is not the same.
DIFFERENT = {
    "epsilon": "in TRL it clips the ratio (--clip-low, --clip-high), in mlx-lm-lora it guards the std of advantages "
    "against 0 (--std-epsilon)",
    "epsilon_high": "in TRL it is an offset above 1 (--clip-high), but with cispo the weight's absolute cap "
    "(--cispo-max-ratio)",
    "batch_size": "in mlx_lm it counts prompts of one pass, elsewhere completions; write --prompts-per-step (prompts) "
    "and --micro-batch-tokens (what fits in memory)",
    "per_device_train_batch_size": "in TRL it counts completions of one pass on one device; write --prompts-per-step "
    "(prompts) and --group-size (completions of each)",
    "per_device_eval_batch_size": "completions are sampled --sampling-rows at a time",
    "gradient_accumulation_steps": "a step's prompts are dealt out to --minibatches optimizer steps, and "
    "--micro-batch-tokens changes memory alone",
    "grad_accumulation_steps": "a step's prompts are dealt out to --minibatches optimizer steps, and "
    "--micro-batch-tokens changes memory alone",
    "steps_per_generation": "write --minibatches, the optimizer steps for one rollout",
    "loss_type": "TRL's dr_grpo leaves advantages scaled and its cispo, gspo-like and other types are no aggregations; "
    "write --loss, --objective and --scale-rewards",
    "grpo_loss_type": "write --loss and --objective",
    "importance_sampling_level": "for ratios of whole completions write --objective gspo",
    "vllm_importance_sampling_correction": "write --importance-correction",
    "reward_funcs": "rewards are functions of the service: --reward ID@VERSION, listed by `grpo-client rewards`",
    "reward_functions": "rewards are functions of the service: --reward ID@VERSION, listed by `grpo-client rewards`",
    "reward_weights": "write the weight behind the reward: --reward ID@VERSION=WEIGHT",
    "optim": "TRL's values name implementations; write --optimizer adamw, adam or sgd",
    "bf16": "write --dtype bfloat16",
    "fp16": "write --dtype bfloat16; float16 overflows",
    "use_peft": "--lora-rank above 0 trains an adapter",
    "lora_parameters": "write --lora-rank and --lora-alpha; mlx_lm's scale is alpha / rank",
    "fine_tune_type": "--lora-rank above 0 trains an adapter, 0 all weights",
    "train_type": "--lora-rank above 0 trains an adapter, 0 all weights",
    "adapter_path": "in mlx_lm adapters are read from and written to it; write --adapter to go on with one, and "
    "--output-dir for what is written",
    "resume_adapter_file": "write --adapter, the adapter's folder",
    "max_seq_length": "write --max-prompt-length and --max-completion-length",
    "val_batches": "write --eval-prompts",
    "warmup_ratio": "write --warmup-steps",
    "lr_schedule_config": "write --lr-schedule and --warmup-steps",
    "eval_strategy": "write --eval-every; 0 turns evaluation off",
    "save_strategy": "write --save-every; 0 saves the final model only",
    "logging_steps": "every step is logged",
    "steps_per_report": "every step is logged",
    "use_vllm": "sampling is built in",
    "max_resample": "--dynamic-sampling resample takes three rounds in a step; leave it out",
    "metrics_host": "--metrics-port is open to this machine alone; leave it out, and put a proxy before the port where "
    "another machine is to read it",
}


def normal(name: str) -> str:
    """A flag or key in the spelling of fields."""
    return name.lstrip("-").replace("-", "_")


def dashed(name: str) -> str:
    """A field as a flag."""
    return "--" + name.replace("_", "-")


def aliases(field: FieldInfo) -> tuple[str, ...]:
    """The other names of a field, in the spelling of fields."""
    return tuple(normal(name) for name in option(field).aliases)


def spellings(model: type[BaseModel]) -> dict[str, str]:
    """Every name that a model's fields go by -> the field."""
    fields = model.model_fields
    return {name: name for name in fields} | {other: name for name in fields for other in aliases(fields[name])}


def unknown(name: str, known: Iterable[str], *, kind: str) -> str:
    """Why a name is refused: what it means elsewhere, or that it means nothing, with the nearest name."""
    if normal(name) in DIFFERENT:
        return f"{DIFFERENT[normal(name)]}. It is no {kind} here"
    nearest = difflib.get_close_matches(normal(name), list(known), n=1)
    spell = dashed if kind == "option" else str
    return f"there is no such {kind}" + (f"; the nearest is {spell(nearest[0])}" if nearest else "")
