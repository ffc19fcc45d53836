"""How much memory a run takes, part by part and phase by phase, estimated from its model's sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_client.config import TrainConfig

_FLOAT32, _BFLOAT16 = 4, 2
_DRAWING = 28  # bytes a logit that is drawn from: itself, scaled, its exponential; that and the running sum in float64
_CHUNKS = 3  # of logits in learning: they, their gradient, and one of them laid out anew for a product
_HOLES = 0.3  # of what is alive, measured on SmolLM2 over a few steps: 0.2 for all weights, 0.4 for an adapter
_MOMENTS = {"adamw": 2, "adam": 2, "sgd": 0}


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A transformer with its adapter, and what its backend holds beside it. Bytes are those of the arrays there."""

    weights: int
    trained: int  # of them
    weight_bytes: int
    copied_bytes: int  # float32 copies of what learns, where the model has it in another dtype
    packed_bytes: int  # a second copy of weights while sampling, laid out for products of few rows
    library_bytes: int  # resident before the model was loaded; 0 where only arrays are counted
    layers: int
    hidden: int
    cached: int  # keys and values of a token in a layer
    activations: int  # that a layer keeps of a token for its backward pass
    vocabulary: int
    head_trained: bool
    logits_at_a_time: int  # in learning


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes by what they are for, and how much of it each phase holds at a time."""

    parts: Mapping[str, float]
    phases: Mapping[str, float]
    libraries: float  # resident before the model; 0 where only arrays are counted

    @property
    def allocator(self) -> float:
        """What the heap of a process on a CPU keeps beside that: small lasting arrays where large ones were freed."""
        return _HOLES * (max(self.phases.values()) - self.libraries) if self.libraries else 0.0

    @property
    def peak(self) -> float:
        """Of the phase that holds most, with the holes of the allocator."""
        return max(self.phases.values()) + self.allocator


def estimate(sizes: ModelSizes, config: TrainConfig, *, prompt_tokens: int) -> Estimate:
    """Parts and phases of a run with prompts of so many tokens.

    A step that fits one pass makes its gradients as its activations go; a later pass has both.
    """
    lasting = _lasting(sizes, config)
    held = sum(lasting.values())
    gradients = float(_FLOAT32 * sizes.trained)
    head = float(_FLOAT32 * (_CHUNKS * sizes.logits_at_a_time + sizes.head_trained * sizes.vocabulary * sizes.hidden))
    first, later = (_activations(sizes, config, tokens) for tokens in _pass_tokens(config, prompt_tokens))
    parts = lasting | {"gradients": gradients, "activations in learning": first, "logits in learning": head}
    phases = {"learning": held + head + max(first, later + gradients)}
    completions = {"sampling": config.prompts_per_step * config.group_size}
    if config.eval_every:
        prompts = config.sampling_rows if config.eval_prompts == -1 else config.eval_prompts
        completions["evaluation"] = prompts * config.eval_samples
    for phase, count in completions.items():
        drawn = _drawn(sizes, config, prompt_tokens, rows=min(config.sampling_rows, count))
        parts |= {f"{name} in {phase}": value for name, value in drawn.items()}
        phases[phase] = held + sum(drawn.values())
    return Estimate(parts, phases, float(sizes.library_bytes))


def _lasting(sizes: ModelSizes, config: TrainConfig) -> dict[str, float]:
    """What every phase holds, once an optimizer step has been taken."""
    copied = bool(config.kl_coef) and sizes.trained == sizes.weights
    reference = sizes.weight_bytes if copied or config.ref_model is not None else 0
    return {
        "libraries": float(sizes.library_bytes),
        "weights": float(sizes.weight_bytes),
        "float32 copies of weights": float(sizes.copied_bytes),
        "reference": float(reference / 2 if config.ref_dtype == "bfloat16" else reference),
        "optimizer": float(_MOMENTS[config.optimizer] * _FLOAT32 * sizes.trained),
    }


def _drawn(sizes: ModelSizes, config: TrainConfig, prompt_tokens: int, *, rows: int) -> dict[str, float]:
    """What sampling holds beside that: one layer's cache is held twice as it grows."""
    tokens = rows * (prompt_tokens + config.max_completion_length)
    return {
        "packed weights": float(sizes.packed_bytes),
        "cache": float(_computed(config) * sizes.cached * tokens * (sizes.layers + 1)),
        "logits": float(_DRAWING * rows * sizes.vocabulary),
    }


def _pass_tokens(config: TrainConfig, prompt_tokens: int) -> tuple[int, int]:
    """Tokens of an optimizer step's first pass and of its next, 0 where there is none."""
    longest = max(config.micro_batch_tokens, prompt_tokens + config.max_completion_length)
    prompts = -(-config.prompts_per_step // config.minibatches)
    step = prompts * (prompt_tokens + config.group_size * config.max_completion_length)
    return min(longest, step), min(longest, max(step - longest, 0))


def _activations(sizes: ModelSizes, config: TrainConfig, tokens: int) -> float:
    """Bytes that a pass over so many tokens keeps for its backward pass."""
    kept = sizes.layers * sizes.activations
    if config.checkpoint_activations:
        kept = sizes.layers * sizes.hidden + sizes.activations
    return float(_computed(config) * tokens * kept)


def _computed(config: TrainConfig) -> int:
    return _BFLOAT16 if config.dtype == "bfloat16" else _FLOAT32
