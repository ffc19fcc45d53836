"""What each choice of the config makes of groups: their advantages, the rows that are learnt from, their logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from grpo_client import choices
from grpo_client.backends.torch.backend import TorchBackend
from grpo_client.learning.batch import Batch
from grpo_client.rewards.client import Manifest, RewardClient
from grpo_client.types import Group, Prompt, Rollout, Scores
from tests.client.runs import Configure
from tests.client.tiny import save_tiny
from tests.conftest import Server

A, B = "r1.int@1", "r1.accuracy@1"
FIRST, SECOND, THIRD = [5, 6, 7], [8, 9], [11]


def group(index: int, totals: list[float | None], *, values: dict[str, list[float | None]] | None = None) -> Group:
    """A prompt's completions: one that was cut at the length limit, then some that ended."""
    ids = [FIRST, SECOND, THIRD][: len(totals)]
    rollouts = [Rollout(one, [-1.0] * len(one), "length" if one is FIRST else "stop") for one in ids]
    statuses = {name: ["scored"] * len(totals) for name in values or {}}
    return Group(
        Prompt(index, [], (1, 2, 3), "7"), rollouts, [""] * len(totals), Scores(totals, values or {}, statuses)
    )


GROUPS = [group(0, [1.0, 0.0]), group(1, [0.25, 0.0])]


@pytest.fixture
def manifest(server: Server) -> Manifest:
    with RewardClient(server.url) as rewards:
        return rewards.resolve(suite=None, rewards=[(A, 1.0), (B, 2.0)])


def compared(config: Any, manifest: Manifest, groups: Sequence[Group] = GROUPS) -> list[list[float]]:
    made = choices.advantages(config, TorchBackend(config), manifest)(groups)
    return [[float("nan") if one is None else float(one) for one in values] for values in made.values_P_G]


# ---- advantages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.5**0.5, 0.5**0.5]),  # the group's own std
        ({"scale_rewards": "none"}, [0.5, 0.125]),
        ({"scale_rewards": "batch"}, [0.5 / 0.47324, 0.125 / 0.47324]),  # the std of 1, 0, 0.25 and 0
        ({"loss": "dr_grpo"}, [0.5, 0.125]),
        ({"advantages": "rloo"}, [1.0, 0.25]),
    ],
    ids=str,
)
def test_totals_are_compared_as_asked_for(
    changes: dict[str, Any], expected: list[float], configure: Configure, manifest: Manifest
) -> None:
    for (first, second), want in zip(compared(configure(**changes), manifest), expected, strict=True):
        assert first == pytest.approx(want, rel=1e-3)
        assert second == pytest.approx(-want, rel=1e-3)


def test_gdpo_compares_each_reward_by_itself_and_then_weighs(configure: Configure, manifest: Manifest) -> None:
    opposed = group(0, [0.9, 0.1], values={A: [1.0, 0.0], B: [0.0, 0.001]})
    grpo, gdpo = (compared(configure(advantages=one), manifest, [opposed]) for one in ("grpo", "gdpo"))
    assert grpo[0][0] > 0 > grpo[0][1]
    assert gdpo[0][0] < 0 < gdpo[0][1]  # B weighs twice, and how far apart its values lie does not count


def test_a_kl_in_the_reward_tells_completions_of_equal_totals_apart(
    configure: Configure, manifest: Manifest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = save_tiny(tmp_path_factory.mktemp("other"), seed=1)
    equal = [group(0, [1.0, 1.0])]
    in_loss, in_reward, weighs_less = (
        compared(configure(ref_model=other, scale_rewards="none", **changes), manifest, equal)
        for changes in ({}, {"kl_in": "reward"}, {"kl_in": "reward", "kl_coef": 0.05})
    )
    assert in_loss == [[0.0, 0.0]]
    assert abs(in_reward[0][0]) > 1e-3
    assert weighs_less[0][0] == pytest.approx(in_reward[0][0] / 2, rel=1e-6)


# ---- rows and batches --------------------------------------------------------------------------------------


def cut(config: Any, manifest: Manifest, groups: Sequence[Group] = GROUPS, *, every_row: bool = False) -> list[Batch]:
    backend = TorchBackend(config)
    made = choices.advantages(config, backend, manifest)(groups)
    return choices.batches(config, backend, every_row=every_row)(groups, made)


def places(batch: Batch) -> list[tuple[int, int]]:
    return sorted((row.prompt, row.completion) for row in batch.rows)


def test_completions_that_were_cut_are_learnt_from_unless_they_are_masked(
    configure: Configure, manifest: Manifest
) -> None:
    (whole,), (masked,) = (cut(configure(mask_truncated=one), manifest) for one in (False, True))
    assert places(whole) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places(masked) == [(0, 1), (1, 1)]
    assert (whole.denominators.tokens, masked.denominators.tokens) == (10, 4)


@pytest.mark.parametrize(("dynamic_sampling", "tokens"), [("off", 10), ("drop", 5), ("resample", 5)])
def test_groups_of_equal_rewards_count_unless_they_are_dropped(
    dynamic_sampling: str, tokens: int, configure: Configure, manifest: Manifest
) -> None:
    groups = [group(0, [1.0, 0.0]), group(1, [0.5, 0.5])]
    (batch,) = cut(configure(dynamic_sampling=dynamic_sampling), manifest, groups)
    assert batch.denominators.tokens == tokens


def test_a_steps_prompts_are_dealt_out_to_minibatches(configure: Configure, manifest: Manifest) -> None:
    sizes = [[len(batch.rows) for batch in cut(configure(minibatches=count), manifest)] for count in (1, 2)]
    assert sizes == [[4], [2, 2]]


@pytest.mark.parametrize(
    ("changes", "old", "ref"),
    [
        ({"kl_coef": 0}, False, False),
        ({}, False, True),
        ({"kl_in": "reward"}, False, False),  # it was taken from the reward already
        ({"kl_coef": 0, "num_iterations": 2}, True, False),
        ({"kl_coef": 0, "minibatches": 2}, True, False),
    ],
    ids=str,
)
def test_rows_carry_the_logprobs_that_their_loss_needs(
    changes: dict[str, Any], old: bool, ref: bool, configure: Configure, manifest: Manifest
) -> None:
    rows = [row for batch in cut(configure(**changes), manifest) for row in batch.rows]
    assert {row.old_logprobs is not None for row in rows} == {old}
    assert {row.ref_logprobs is not None for row in rows} == {ref}


@pytest.mark.parametrize(
    ("changes", "every_row", "rows"),
    [
        ({"kl_coef": 0}, False, 2),
        ({"kl_coef": 0}, True, 4),  # a loss of the caller's own may give them a gradient
        ({"kl_coef": 0.1}, False, 4),
        ({"kl_coef": 0, "loss": "bnpo"}, False, 4),  # divides by what shares its pass
    ],
    ids=str,
)
def test_rows_without_a_gradient_are_left_out(
    changes: dict[str, Any], every_row: bool, rows: int, configure: Configure, manifest: Manifest
) -> None:
    groups = [group(0, [1.0, 0.0]), group(1, [0.5, 0.5])]
    (batch,) = cut(configure(**changes), manifest, groups, every_row=every_row)
    assert (len(batch.rows), batch.denominators.tokens) == (rows, 10)
