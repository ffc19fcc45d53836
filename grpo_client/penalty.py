"""KL in the reward: each completion's k1 against the reference, summed over its tokens, before it is compared."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_client.backends.base import Backend
from grpo_client.learning.batch import Batch, CompletionRow
from grpo_client.learning.kl import LOG_RATIO_LIMIT
from grpo_client.learning.loss_inputs import Denominators
from grpo_client.types import Group


def kl_penalties(backend: Backend, groups: Sequence[Group]) -> list[list[float]]:
    """Nats of each completion, kl_P_G; 0 for one that is empty or unscored, where nobody reads it.

    The policy's logprobs are those of the sampler: nothing has been learnt since. OpenRLHF and verl subtract the same
    token by token; the sum is what reaches a reward that is one number per completion.
    """
    rows = [
        CompletionRow(p, g, rollout.token_ids, rollout.sampling_logprobs, rollout.kept, advantage=0.0)
        for p, group in enumerate(groups)
        for g, (rollout, total) in enumerate(zip(group.rollouts, group.rewards.totals, strict=True))
        if rollout.token_ids and total is not None
    ]
    lengths = [len(row.token_ids) for row in rows]
    counts = Denominators.from_lengths(lengths, max_completion_length=max(lengths, default=1))
    batch = Batch([group.prompt.token_ids for group in groups], rows, counts)
    kl_P_G = [[0.0] * len(group.rollouts) for group in groups]
    for row in backend.with_logprobs(batch, old=False, ref=True).rows:
        assert row.ref_logprobs is not None, "asked for"
        kl_P_G[row.prompt][row.completion] = sum(
            min(max(ours - ref, -LOG_RATIO_LIMIT), LOG_RATIO_LIMIT)
            for ours, ref in zip(row.sampling_logprobs, row.ref_logprobs, strict=True)
        )
    return kl_P_G
