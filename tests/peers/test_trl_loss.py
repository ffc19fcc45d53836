"""Our loss and gradient are those of TRL's GRPOTrainer, for each loss that both have.

The same tiny model, token ids, advantages, old, reference and sampling logprobs go through TRL's own `_compute_loss`
(its forward pass included: left-padded prompts, full rows) and through our pass that runs each prompt once.

On purpose we differ, so the cases leave out: a completion without a score or with an empty mask (TRL counts its row
with advantage 0, we leave it out of every denominator); log-ratios beyond 20 (TRL clamps nothing); `dr_grpo` with
scaled advantages (TRL's default, which we refuse); `cispo` under another aggregation than the token mean (TRL ties
the two); `use_bias_correction_kl`, on by default in TRL 1.16, which multiplies the KL by the ratio (off here; our k3+
and k2 have the same gradient on-policy).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from grpo_client.backends.torch.backend import TORCH_OPS
from grpo_client.backends.torch.forward import padded_completions, shared_logprobs
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.loss_inputs import Denominators, LossInputs
from grpo_client.learning.losses import LossConfig, make_loss
from tests.client.tiny import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.peer
trl = pytest.importorskip("trl", reason="TRL is not installed (pip install --no-deps trl==1.16.0 datasets)")
TEMPERATURE = 0.7
LONGEST = 9
_ADVANTAGES = [1.2, -0.7, 0.8, -0.4, 0.0, 0.9]  # far from cancelling out, so that 1e-4 of the loss means something
PROMPTS: list[tuple[int, ...]] = [(1, 2, 3, 4, 5), (9, 8), (7, 7, 7)]


@dataclass(frozen=True)
class Same:
    """One loss in our words and in TRL's."""

    ours: dict[str, Any]
    theirs: dict[str, Any] = field(default_factory=dict)
    weight_cap: float | None = None  # of TRL's importance_sampling_ratio, as its `token_truncate` makes it


CASES: dict[str, Same] = {
    "dapo": Same({"aggregation": "dapo"}, {"loss_type": "dapo"}),
    "grpo": Same({"aggregation": "grpo"}, {"loss_type": "grpo"}),
    "dr_grpo": Same({"aggregation": "dr_grpo"}, {"loss_type": "dr_grpo"}),
    "bnpo": Same({"aggregation": "bnpo"}, {"loss_type": "bnpo"}),
    "kl": Same({"aggregation": "dapo", "kl_coef": 0.3}, {"loss_type": "dapo", "beta": 0.3}),
    "kl in grpo": Same({"aggregation": "grpo", "kl_coef": 0.3}, {"loss_type": "grpo", "beta": 0.3}),
    "delta": Same({"aggregation": "dapo", "ratio_cap": 1.5}, {"loss_type": "dapo", "delta": 1.5}),
    "cispo": Same(
        {"aggregation": "dapo", "objective": "cispo", "cispo_max_ratio": 1.3},
        {"loss_type": "cispo", "epsilon_high": 1.3},
    ),
    "gspo": Same(
        {"aggregation": "grpo", "objective": "gspo", "clip_low": 0.02, "clip_high": 0.03},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02, "epsilon_high": 0.03},
    ),
    "truncated importance": Same(
        {"aggregation": "dapo", "kl_coef": 0.1, "importance_correction": "truncate", "importance_cap": 1.1},
        {"loss_type": "dapo", "beta": 0.1},
        weight_cap=1.1,
    ),
}


def rows(model: PreTrainedModel) -> list[CompletionRow]:
    """Completions of unequal lengths, whose old, reference and sampling logprobs lie off the policy's on both sides."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for g, n in enumerate([LONGEST, 4, 1, 6, 2, 7]):
        ids = torch.randint(0, 260, (n,), generator=generator).tolist()
        made.append(CompletionRow(g % len(PROMPTS), g, ids, [0.0] * n, None, advantage=_ADVANTAGES[g]))
    logprobs, _ = shared_logprobs(model, batch_of(made), temperature=TEMPERATURE)

    def near(row: int, spread: float) -> list[float]:
        n = len(made[row].token_ids)
        return (logprobs[row, :n].detach() + spread * torch.randn(n, generator=generator)).tolist()

    return [
        replace(row, old_logprobs=near(i, 0.4), ref_logprobs=near(i, 0.6), sampling_logprobs=near(i, 0.5))
        for i, row in enumerate(made)
    ]


def batch_of(made: list[CompletionRow]) -> Batch:
    lengths = [len(row.token_ids) for row in made]
    return Batch(PROMPTS, made, Denominators.from_lengths(lengths, max_completion_length=LONGEST))


def padded(lists: list[list[float] | None]) -> torch.Tensor:
    array = torch.zeros(len(lists), LONGEST)
    for i, one in enumerate(lists):
        assert one is not None
        array[i, : len(one)] = torch.tensor(one)
    return array


def ours(model: PreTrainedModel, made: list[CompletionRow], options: dict[str, Any]) -> torch.Tensor:
    batch = batch_of(made)
    logprobs, mask = shared_logprobs(model, batch, temperature=TEMPERATURE)
    inputs = LossInputs(
        logprobs=logprobs,
        advantages=torch.tensor([row.advantage for row in made]),
        mask=mask,
        old_logprobs=padded([row.old_logprobs for row in made]),
        ref_logprobs=padded([row.ref_logprobs for row in made]),
        sampling_logprobs=padded([list(row.sampling_logprobs) for row in made]),
    )
    loss: torch.Tensor = make_loss(LossConfig(**options))(TORCH_OPS, inputs, batch.denominators).loss
    return loss


def theirs(model: PreTrainedModel, made: list[CompletionRow], case: Same, folder: Path) -> torch.Tensor:
    from datasets import Dataset

    settings = {"epsilon": 0.2, "epsilon_high": 0.28} | case.theirs
    beta = settings.pop("beta", 0.0)
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(folder), per_device_train_batch_size=6, num_generations=2, temperature=TEMPERATURE,
            max_completion_length=LONGEST, use_cpu=True, bf16=False, report_to=[],
            use_bias_correction_kl=False,
            **settings,
        ),
        train_dataset=Dataset.from_list([{"prompt": "1"}] * 6),
        processing_class=tiny_tokenizer(),
    )  # fmt: skip
    trainer.model.train()  # without it TRL takes the evaluation's normaliser
    trainer.current_gradient_accumulation_steps = 1
    trainer.beta = beta  # by the config it would load a reference model, whose logprobs are given here
    width = max(map(len, PROMPTS))
    prompts = [PROMPTS[row.prompt] for row in made]
    ids, mask = padded_completions(made, device=torch.device("cpu"))
    inputs = {
        "prompt_ids": torch.tensor([[0] * (width - len(one)) + list(one) for one in prompts]),
        "prompt_mask": torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts]),
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": torch.tensor([row.advantage for row in made]),
        "old_per_token_logps": padded([row.old_logprobs for row in made]),
        "ref_per_token_logps": padded([row.ref_logprobs for row in made]),
        "num_items_in_batch": mask.sum(),
    }
    if case.weight_cap is not None:
        gap = inputs["old_per_token_logps"] - padded([list(row.sampling_logprobs) for row in made])
        inputs["importance_sampling_ratio"] = gap.exp().clamp(max=case.weight_cap)
        trainer.use_vllm = True  # the branch that applies it
    loss: torch.Tensor = trainer._compute_loss(model, inputs)
    return loss


def gradient(model: PreTrainedModel, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_trl_s(name: str, tmp_path: Path) -> None:
    case, model = CASES[name], tiny_model()
    made = rows(model)
    our_loss = ours(model, made, case.ours)
    our_gradient = gradient(model, our_loss)
    their_loss = theirs(model, made, case, tmp_path)
    their_gradient = gradient(model, their_loss)
    assert our_loss.item() == pytest.approx(their_loss.item(), rel=1e-4)
    assert float((our_gradient - their_gradient).norm() / their_gradient.norm()) < 1e-4


def test_the_cases_tell_losses_apart() -> None:
    """Every case has another value: none of them agrees because an option does nothing on these rows."""
    model = tiny_model()
    made = rows(model)
    values = [round(ours(model, made, case.ours).item(), 6) for case in CASES.values()]
    without_bnpo = [value for name, value in zip(CASES, values, strict=True) if name != "bnpo"]  # one pass: it is dapo
    assert len(set(without_bnpo)) == len(without_bnpo)
