"""Every loss against hand-worked numbers, against the oracle, and against itself under changes that must not matter."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_client.learning.array_ops import Array, ArrayOps
from grpo_client.learning.loss_inputs import Denominators, LossInputs
from grpo_client.learning.loss_stats import merge_stats
from grpo_client.learning.losses import (
    AGGREGATIONS,
    OBJECTIVES,
    LossConfig,
    LossOutputs,
    check_advantage_scale,
    make_loss,
)
from tests.client.learning.loss_oracle import (
    Case,
    Rows,
    oracle_gradient,
    oracle_gradient_scale,
    oracle_loss,
    oracle_metrics,
    oracle_scale,
)

NAN, INF = math.nan, math.inf

NUMPY_OPS = ArrayOps(
    exp=np.exp,
    expm1=np.expm1,
    where=np.where,
    minimum=np.minimum,
    clip=np.clip,
    sum=np.sum,
    sum_rows=lambda x: np.sum(x, axis=1, keepdims=True),
    max=np.max,
    ones_like=np.ones_like,
    stop_gradient=lambda x: x,
)
TORCH_OPS = ArrayOps(
    exp=torch.exp,
    expm1=torch.expm1,
    where=torch.where,
    minimum=torch.minimum,
    clip=torch.clamp,
    sum=torch.sum,
    sum_rows=lambda x: torch.sum(x, dim=1, keepdim=True),
    max=torch.max,
    ones_like=torch.ones_like,
    stop_gradient=torch.Tensor.detach,
)


# Running a case in each array module


@dataclass(frozen=True, kw_only=True)
class Result:
    loss: float
    gradient: Rows | None  # None where the module has no gradients
    metrics: dict[str, float]


def denominators(case: Case) -> Denominators:
    lengths = [sum(row) for row in case.mask]
    return Denominators.from_lengths(lengths, max_completion_length=case.max_completion_length)


def loss_inputs(case: Case, array: Callable[[Any], Array], logprobs: Array) -> LossInputs:
    def optional(rows: Rows | None) -> Array | None:
        return None if rows is None else array(rows)

    return LossInputs(
        logprobs=logprobs,
        advantages=array(case.advantages),
        mask=array(case.mask),
        old_logprobs=optional(case.old),
        ref_logprobs=optional(case.ref),
        sampling_logprobs=optional(case.sampling),
    )


def call(case: Case, ops: ArrayOps, inputs: LossInputs, counts: Denominators | None = None) -> LossOutputs:
    return make_loss(LossConfig(**case.options))(ops, inputs, counts or denominators(case))


def run_numpy(case: Case) -> Result:
    outputs = call(case, NUMPY_OPS, loss_inputs(case, np.asarray, np.asarray(case.logprobs)))
    return Result(loss=float(outputs.loss), gradient=None, metrics=merge_stats([outputs.stats]))


def run_torch(
    case: Case, *, dtype: torch.dtype = torch.float64, parts: list[list[int]] | None = None, micro_batches: int = 1
) -> Result:
    """The case's step in one micro-batch, or cut by rows into `parts`."""
    counts = dataclasses.replace(denominators(case), micro_batches=micro_batches)
    gradient: Rows = [[] for _ in case.logprobs]
    loss, stats = 0.0, []
    for part in parts or [list(range(len(case.logprobs)))]:
        rows = pick_rows(case, part)
        logprobs = torch.tensor(rows.logprobs, dtype=dtype, requires_grad=True)
        outputs = call(rows, TORCH_OPS, loss_inputs(rows, lambda x: torch.tensor(x, dtype=dtype), logprobs), counts)
        assert outputs.loss.dtype == dtype
        outputs.loss.backward()
        assert logprobs.grad is not None
        loss += outputs.loss.item()
        stats.append(outputs.stats)
        for i, row in zip(part, logprobs.grad.tolist(), strict=True):
            gradient[i] = row
    return Result(loss=loss, gradient=gradient, metrics=merge_stats(stats))


def run_mlx(case: Case) -> Result:
    mx = importlib.import_module("mlx.core")
    ops = ArrayOps(
        exp=mx.exp,
        expm1=mx.expm1,
        where=mx.where,
        minimum=mx.minimum,
        clip=mx.clip,
        sum=mx.sum,
        sum_rows=lambda x: mx.sum(x, axis=1, keepdims=True),
        max=mx.max,
        ones_like=mx.ones_like,
        stop_gradient=mx.stop_gradient,
    )

    def array(x: Any) -> Any:
        return mx.array(x, dtype=mx.float32)

    def loss_of(logprobs: Any) -> Any:
        return call(case, ops, loss_inputs(case, array, logprobs)).loss

    logprobs = array(case.logprobs)
    loss, gradient = mx.value_and_grad(loss_of)(logprobs)
    stats = call(case, ops, loss_inputs(case, array, logprobs)).stats
    assert loss.dtype == mx.float32
    return Result(loss=loss.item(), gradient=gradient.tolist(), metrics=merge_stats([stats]))


needs_mlx = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="mlx is not installed")
MODULES = [  # run, relative tolerance
    pytest.param(run_numpy, 1e-12, id="numpy float64"),
    pytest.param(run_torch, 1e-12, id="torch float64"),
    pytest.param(lambda case: run_torch(case, dtype=torch.float32), 1e-5, id="torch float32"),
    pytest.param(run_mlx, 1e-5, id="mlx float32", marks=needs_mlx),
]


def assert_equal(
    result: Result, *, loss: float, scale: float, gradient: Rows, gradient_scale: float, tolerance: float
) -> None:
    """Within `tolerance` of the sum of all terms' sizes, and of the largest derivative."""
    assert abs(result.loss - loss) <= tolerance * max(scale, abs(loss))
    if result.gradient is not None:
        np.testing.assert_allclose(result.gradient, gradient, rtol=tolerance, atol=tolerance * gradient_scale)


def from_oracle(case: Case) -> dict[str, Any]:
    return {
        "loss": oracle_loss(case),
        "scale": oracle_scale(case),
        "gradient": oracle_gradient(case),
        "gradient_scale": oracle_gradient_scale(case),
    }


def pick_rows(case: Case, rows: list[int]) -> Case:
    def pick(array: Any) -> Any:
        return None if array is None else [array[i] for i in rows]

    names = ("logprobs", "advantages", "mask", "old", "ref", "sampling")
    return dataclasses.replace(case, **{name: pick(getattr(case, name)) for name in names})


def rounded_to_float32(case: Case) -> Case:
    def rounded(array: Any) -> Any:
        return None if array is None else np.asarray(array, dtype=np.float32).astype(np.float64).tolist()

    names = ("logprobs", "advantages", "old", "ref", "sampling")
    return dataclasses.replace(case, **{name: rounded(getattr(case, name)) for name in names})


# Hand-worked cases. Tables hold probabilities; the loss sees their logs.


def worked(p: Rows, advantages: list[float], *, length: int = 4, **arrays_and_options: Any) -> Case:
    def logs(rows: Rows | None) -> Rows | None:
        return None if rows is None else [[math.log(x) for x in row] for row in rows]

    names = ("old", "ref", "sampling")
    arrays = {name: logs(arrays_and_options.pop(name, None)) for name in names}
    mask = arrays_and_options.pop("mask", [[1] * len(row) for row in p])
    logprobs = logs(p)
    assert logprobs is not None
    return Case(
        logprobs=logprobs,
        advantages=advantages,
        mask=mask,
        max_completion_length=length,
        options=arrays_and_options,
        **arrays,
    )


# One row of one token and one of three, advantages 2 and -1, ratio 1: token losses -2 and 1, 1, 1.
UNEVEN: dict[str, Any] = {
    "p": [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]],
    "advantages": [2.0, -1.0],
    "mask": [[1, 0, 0], [1, 1, 1]],
}
WITH_NULL_ROW: dict[str, Any] = {
    "p": [[0.5, 0.5, 0.5], [0.9, 0.9, 0.9], [0.5, 0.5, 0.5]],
    "advantages": [2.0, NAN, -1.0],
    "mask": [[1, 0, 0], [0, 0, 0], [1, 1, 1]],
}
# A token of a dead group (advantage 0) at p = 1/2 with ref 1/4: d = -ln 2
KL: dict[str, Any] = {"p": [[0.5]], "advantages": [0.0], "ref": [[0.25]], "kl_coef": 0.1}
THIRD = 0.3333333333333333

WORKED = [  # what it shows, case, loss, gradient
    ("ratio 1.5, A 1: clipped at 1.28", worked([[0.3]], [1], old=[[0.2]]), -1.28, [[0]]),
    ("ratio 1.5, A -1: not clipped", worked([[0.3]], [-1], old=[[0.2]]), 1.5, [[1.5]]),
    ("ratio 0.5, A 1: not clipped", worked([[0.1]], [1], old=[[0.2]]), -0.5, [[-0.5]]),
    ("ratio 0.5, A -1: clipped at 0.8", worked([[0.1]], [-1], old=[[0.2]]), 0.8, [[0]]),
    ("ratio 1.1, A 2: inside", worked([[0.22]], [2], old=[[0.2]]), -2.2, [[-2.2]]),
    ("own clip range", worked([[0.3]], [1], old=[[0.2]], clip_high=0.4), -1.4, [[0]]),
    ("no old logprobs: ratio 1 with a gradient", worked([[0.3]], [1]), -1.0, [[-1]]),
    ("ratio 8, A -1: no cap", worked([[0.8]], [-1], old=[[0.1]]), 8.0, [[8]]),
    ("ratio 8, A -1: cap 4", worked([[0.8]], [-1], old=[[0.1]], ratio_cap=4.0), 4.0, [[0]]),
    ("ratio 8, A 1: the cap is not felt", worked([[0.8]], [1], old=[[0.1]], ratio_cap=4.0), -1.28, [[0]]),
    ("dapo: 1 / 4 tokens", worked(**UNEVEN), 0.25, [[-0.5, 0, 0], [0.25, 0.25, 0.25]]),
    ("bnpo: the same in one piece", worked(**UNEVEN, aggregation="bnpo"), 0.25, [[-0.5, 0, 0], [0.25, 0.25, 0.25]]),
    ("grpo: (-2 + 1) / 2 rows", worked(**UNEVEN, aggregation="grpo"), -0.5, [[-1, 0, 0], [THIRD / 2] * 3]),
    ("dr_grpo: 1 / (2 x 4)", worked(**UNEVEN, aggregation="dr_grpo"), 0.125, [[-0.25, 0, 0], [0.125] * 3]),
    ("a null row, dapo", worked(**WITH_NULL_ROW), 0.25, [[-0.5, 0, 0], [0, 0, 0], [0.25] * 3]),
    ("a null row, grpo", worked(**WITH_NULL_ROW, aggregation="grpo"), -0.5, [[-1, 0, 0], [0] * 3, [THIRD / 2] * 3]),
    (
        "a null row, dr_grpo",
        worked(**WITH_NULL_ROW, aggregation="dr_grpo"),
        0.125,
        [[-0.25, 0, 0], [0] * 3, [0.125] * 3],
    ),
    ("k1: ln 2", worked(**KL, kl_estimator="k1"), 0.06931471805599453, [[0.1]]),
    ("k2: ln 2 squared / 2", worked(**KL, kl_estimator="k2"), 0.024022650695910072, [[0.06931471805599453]]),
    ("k3: 1/2 + ln 2 - 1, gradient 1 - 1/2", worked(**KL), 0.019314718055994531, [[0.05]]),
    ("k3+: k3 with k2's gradient", worked(**KL, kl_estimator="k3+"), 0.019314718055994531, [[0.06931471805599453]]),
    (
        "a dead row counts: KL and denominator",
        worked([[0.5], [0.5]], [0.0, 1.0], ref=[[0.25], [0.5]], kl_coef=0.1),
        -0.49034264097200273,
        [[0.025], [-0.5]],
    ),
    ("cispo: 2 ln 2", worked([[0.5]], [1], old=[[0.25]], objective="cispo"), 1.3862943611198906, [[-2]]),
    ("cispo capped at 5: -5 ln 0.8", worked([[0.8]], [1], old=[[0.1]], objective="cispo"), 1.1157177565710487, [[-5]]),
    ("reinforce: 2 ln 2", worked([[0.5]], [2], objective="reinforce"), 1.3862943611198906, [[-2]]),
    (
        "gspo: ratios 2, 1/2 make 1; 4, 1 make 2",
        worked(
            [[0.4, 0.1], [0.8, 0.2]],
            [1, -1],
            old=[[0.2, 0.2], [0.2, 0.2]],
            objective="gspo",
            aggregation="grpo",
        ),
        0.5,
        [[-0.25, -0.25], [0.5, 0.5]],
    ),
    (
        "gspo clips the completion",
        worked([[0.8, 0.2]], [1], old=[[0.2, 0.2]], objective="gspo", aggregation="grpo"),
        -1.28,
        [[0, 0]],
    ),
    (
        "sampler 4 x too low, weight cut to 2",
        worked([[0.4]], [1], sampling=[[0.1]], importance_correction="truncate"),
        -2.0,
        [[-2]],
    ),
    (
        "sampler 4 x too low, token masked and still counted",
        worked([[0.4, 0.2]], [1], sampling=[[0.1, 0.2]], importance_correction="mask"),
        -0.5,
        [[0, -0.5]],
    ),
    (
        "sampler 4 x too high, under the floor",
        worked([[0.1, 0.2]], [1], sampling=[[0.4, 0.2]], importance_correction="mask", importance_floor=0.5),
        -0.5,
        [[0, -0.5]],
    ),
    (
        "a log-ratio of 99 stops at 20",
        Case(logprobs=[[-1]], old=[[-100]], advantages=[-1], mask=[[1]]),
        485165195.40979,
        [[0]],
    ),
    (
        "a reference 99 nats up stops at 20",
        Case(
            logprobs=[[-100]],
            ref=[[-1]],
            advantages=[0],
            mask=[[1]],
            options={"kl_coef": 1.0, "kl_estimator": "k1"},
        ),
        -20.0,
        [[0]],
    ),
]


@pytest.mark.parametrize(("run", "tolerance"), MODULES)
@pytest.mark.parametrize(("case", "loss", "gradient"), [pytest.param(*row[1:], id=row[0]) for row in WORKED])
def test_hand_worked_numbers_come_out_in_every_array_module(
    case: Case, loss: float, gradient: Rows, run: Callable[[Case], Result], tolerance: float
) -> None:
    expected: dict[str, Any] = {"loss": loss, "scale": 0.0, "gradient": gradient, "gradient_scale": 1e-3}
    assert_equal(run(case), **expected, tolerance=max(tolerance, 1e-11))


@pytest.mark.parametrize(("case", "loss", "gradient"), [pytest.param(*row[1:], id=row[0]) for row in WORKED])
def test_the_oracle_agrees_with_the_hand_worked_numbers(case: Case, loss: float, gradient: Rows) -> None:
    assert oracle_loss(case) == pytest.approx(loss, rel=1e-11)
    np.testing.assert_allclose(oracle_gradient(case), gradient, rtol=1e-11, atol=1e-12)


# Random cases


COMBINATIONS = [
    {"objective": objective, "aggregation": aggregation}
    for objective in OBJECTIVES
    for aggregation in AGGREGATIONS
    if objective != "gspo" or aggregation == "grpo"
]


def random_case(seed: int, options: dict[str, object]) -> Case:
    """Up to five rows of up to six tokens: empty rows, dead rows, near and far policies, garbage under the mask."""
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(1, 6)), int(rng.integers(1, 7))
    lengths = rng.integers(0, width + 1, size=rows)
    mask = (np.arange(width) < lengths[:, None]).astype(int)
    logprobs = -rng.exponential(2.0, size=(rows, width))
    spread = rng.choice([0.05, 0.5, 15.0])

    def near() -> Any:
        other = logprobs + rng.normal(0, spread, size=logprobs.shape)
        return np.where(mask, other, rng.choice([NAN, -INF, INF, 0.0], size=mask.shape)).tolist()

    advantages = rng.normal(size=rows) * (rng.random(rows) > 0.2)
    return Case(
        logprobs=np.where(mask, logprobs, rng.choice([NAN, -INF, 0.0], size=mask.shape)).tolist(),
        advantages=np.where(lengths > 0, advantages, NAN).tolist(),
        mask=mask.tolist(),
        old=near() if rng.random() < 0.8 else None,
        ref=near(),
        sampling=near(),
        max_completion_length=width + 2,
        options=options,
    )


loss_options = st.fixed_dictionaries(
    {
        "kl_coef": st.sampled_from([0.0, 0.05]),
        "kl_estimator": st.sampled_from(["k1", "k2", "k3", "k3+"]),
        "importance_correction": st.sampled_from(["off", "truncate", "mask"]),
    }
)


def cases(*, without: str = "") -> st.SearchStrategy[Case]:
    combinations = st.sampled_from([c for c in COMBINATIONS if c["aggregation"] != without])
    capped = st.sampled_from([{}, {"ratio_cap": 4.0}])

    def build(seed: int, combination: dict[str, str], options: dict[str, object], cap: dict[str, float]) -> Case:
        can_cap = combination["objective"] in ("clipped", "gspo")
        return random_case(seed, {**combination, **options, **(cap if can_cap else {})})

    return st.builds(build, st.integers(0, 2**32 - 1), combinations, loss_options, capped)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_torch_in_float64_agrees_with_the_oracle_to_1e_10(case: Case) -> None:
    assert_equal(run_torch(case), **from_oracle(case), tolerance=1e-10)
    assert run_numpy(case).loss == pytest.approx(run_torch(case).loss, rel=1e-12, abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_torch_in_float32_agrees_with_the_oracle_to_1e_5(case: Case) -> None:
    case = rounded_to_float32(case)
    assert_equal(run_torch(case, dtype=torch.float32), **from_oracle(case), tolerance=1e-5)


@needs_mlx
@settings(max_examples=100, deadline=None)
@given(cases())
def test_mlx_in_float32_agrees_with_the_oracle_to_1e_5(case: Case) -> None:
    case = rounded_to_float32(case)
    assert_equal(run_mlx(case), **from_oracle(case), tolerance=1e-5)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_ratio_metrics_agree_with_the_oracle(case: Case) -> None:
    metrics = run_torch(case).metrics
    if not any(map(any, case.mask)):
        assert metrics == {}
        return
    expected = oracle_metrics(case)
    if case.option("objective") in ("cispo", "reinforce"):
        expected = {name: value for name, value in expected.items() if name.startswith("ratio/")}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-10)


def test_the_oracle_s_gradient_agrees_with_central_differences() -> None:
    case = random_case(11, {"kl_coef": 0.05})
    assert case.old is not None
    assert oracle_scale(case) > 0
    for i, row in enumerate(case.mask):
        for t in (t for t, kept in enumerate(row) if kept):
            up, down = ([list(r) for r in case.logprobs] for _ in range(2))
            up[i][t], down[i][t] = up[i][t] + 1e-6, down[i][t] - 1e-6
            slope = oracle_loss(dataclasses.replace(case, logprobs=up)) - oracle_loss(
                dataclasses.replace(case, logprobs=down)
            )
            assert oracle_gradient(case)[i][t] == pytest.approx(slope / 2e-6, rel=1e-6, abs=1e-8)


# What must not matter


def assert_same(one: Result, other: Result) -> None:
    assert one.gradient is not None
    assert other.gradient is not None
    scale = max(1.0, *(abs(x) for row in one.gradient for x in row))
    assert one.loss == pytest.approx(other.loss, rel=1e-10, abs=1e-10 * scale)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-10, atol=1e-12 * scale)
    assert one.metrics == pytest.approx(other.metrics, rel=1e-10, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(cases(without="bnpo"), st.data())
def test_micro_batches_of_any_rows_add_up_to_the_whole_step(case: Case, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.logprobs))))
    cut = data.draw(st.integers(1, len(order)))
    parts = [list(order[start : start + cut]) for start in range(0, len(order), cut)]
    assert_same(run_torch(case, parts=parts), run_torch(case))


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_padding_of_any_amount_on_any_side_changes_nothing(case: Case, data: st.DataObject) -> None:
    width = len(case.logprobs[0])
    padded_width = width + data.draw(st.integers(1, 4))
    starts = [data.draw(st.integers(0, padded_width - width)) for _ in case.logprobs]
    garbage = data.draw(st.sampled_from([NAN, INF, -INF, -1e30]))

    def pad(rows: Any, filler: float) -> Any:
        if rows is None:
            return None
        return [
            [filler] * start + list(row) + [filler] * (padded_width - width - start)
            for row, start in zip(rows, starts, strict=True)
        ]

    names = ("logprobs", "old", "ref", "sampling")
    padded = dataclasses.replace(
        case, mask=pad(case.mask, 0), **{name: pad(getattr(case, name), garbage) for name in names}
    )
    result = run_torch(padded)
    assert result.gradient is not None
    unpadded = [row[start : start + width] for row, start in zip(result.gradient, starts, strict=True)]
    assert sum(abs(x) for row in result.gradient for x in row) == pytest.approx(
        sum(abs(x) for row in unpadded for x in row)
    )
    assert_same(dataclasses.replace(result, gradient=unpadded), run_torch(case))


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_the_order_of_rows_changes_nothing(case: Case, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.logprobs))))
    shuffled = run_torch(pick_rows(case, list(order)))
    assert shuffled.gradient is not None
    restored = [shuffled.gradient[list(order).index(i)] for i in range(len(order))]
    assert_same(dataclasses.replace(shuffled, gradient=restored), run_torch(case))


@pytest.mark.parametrize("cut", [1, 2])
def test_bnpo_alone_depends_on_how_the_step_is_cut_and_averages_its_micro_batches(cut: int) -> None:
    case = worked(**UNEVEN, aggregation="bnpo")
    expected = {1: 0.25, 2: (-2.0 + 1.0) / 2}  # one piece: 1 / 4 tokens; two: the mean of -2 / 1 and 3 / 3
    parts = {1: [[0, 1]], 2: [[0], [1]]}[cut]
    assert run_torch(case, parts=parts, micro_batches=cut).loss == pytest.approx(expected[cut])


# Edges


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: f"{c['objective']} {c['aggregation']}")
@pytest.mark.parametrize("garbage", [NAN, INF, -INF])
def test_garbage_under_the_mask_reaches_neither_value_nor_gradient(combination: dict[str, str], garbage: float) -> None:
    options = {**combination, "kl_coef": 0.1, "importance_correction": "truncate"}
    clean = Case(
        logprobs=[[-1.0, -2.0], [-0.5, -0.5]],
        advantages=[1.0, 0.0],
        mask=[[1, 0], [0, 0]],
        old=[[-1.1, -1.0], [-1.0, -1.0]],
        ref=[[-1.3, -1.0], [-1.0, -1.0]],
        sampling=[[-1.0, -1.0], [-1.0, -1.0]],
        options=options,
    )
    rows: dict[str, Any] = {
        name: [[getattr(clean, name)[0][0], garbage], [garbage, garbage]]
        for name in ("logprobs", "old", "ref", "sampling")
    }
    dirty = dataclasses.replace(clean, advantages=[1.0, garbage], **rows)
    assert run_torch(dirty) == run_torch(clean)
    assert run_torch(clean).gradient == [[pytest.approx(oracle_gradient(clean)[0][0]), 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: f"{c['objective']} {c['aggregation']}")
def test_a_step_without_a_scored_token_has_loss_0_gradient_0_and_no_metrics(combination: dict[str, str]) -> None:
    case = Case(
        logprobs=[[-1.0, NAN], [-INF, -0.5]],
        advantages=[NAN, 0.0],
        mask=[[0, 0], [0, 0]],
        ref=[[NAN, NAN], [NAN, NAN]],
        options={**combination, "kl_coef": 0.1},
    )
    assert run_torch(case) == Result(loss=0.0, gradient=[[0.0, 0.0], [0.0, 0.0]], metrics={})


def test_a_group_of_equal_rewards_adds_nothing_without_kl_but_stays_in_the_denominator() -> None:
    case = worked([[0.5, 0.5], [0.5, 0.5]], [0.0, 1.0])
    assert run_torch(case).loss == -0.5
    assert run_torch(case).gradient == [[0.0, 0.0], [-0.25, -0.25]]


def test_a_nan_that_counts_is_not_hidden() -> None:
    case = Case(logprobs=[[NAN, -1.0]], advantages=[1.0], mask=[[1, 1]])
    assert math.isnan(run_torch(case).loss)


def test_a_token_that_became_impossible_is_clipped_not_infinite() -> None:
    case = Case(logprobs=[[-INF, -1.0]], old=[[-2.0, -1.0]], advantages=[1.0], mask=[[1, 1]])
    result = run_torch(case)
    assert result.loss == pytest.approx(-(math.exp(-20) + 1) / 2)
    assert result.gradient == [[0.0, -0.5]]


def test_a_mask_may_be_bool_integer_or_float() -> None:
    case = worked(**UNEVEN)
    logprobs = torch.tensor(case.logprobs)
    plain = loss_inputs(case, torch.tensor, logprobs)
    losses = [
        call(case, TORCH_OPS, dataclasses.replace(plain, mask=torch.tensor(case.mask).to(kind))).loss.item()
        for kind in (torch.bool, torch.int64, torch.float32)
    ]
    assert losses == pytest.approx([0.25] * 3)


def test_statistics_carry_no_gradient_and_keep_the_dtype() -> None:
    case = random_case(3, {"kl_coef": 0.1, "importance_correction": "mask"})
    logprobs = torch.tensor(case.logprobs, dtype=torch.float32, requires_grad=True)
    inputs = loss_inputs(case, lambda x: torch.tensor(x, dtype=torch.float32), logprobs)
    stats = call(case, TORCH_OPS, inputs).stats
    arrays = [stats.tokens, *stats.maxima.values(), *(array for pair in stats.means.values() for array in pair)]
    assert {(array.dtype, array.requires_grad, array.shape) for array in arrays} == {
        (torch.float32, False, torch.Size([]))
    }


def test_metrics_say_how_far_sampler_and_reference_are() -> None:
    case = worked([[0.5, 0.5]], [1.0], ref=[[0.25, 0.5]], sampling=[[0.25, 0.5]], importance_correction="truncate")
    metrics = run_torch(case).metrics
    assert metrics["kl"] == pytest.approx(0.19314718055994531 / 2)  # logged though kl_coef is 0
    assert metrics["sampling/logp_diff_mean"] == pytest.approx(0.6931471805599453 / 2)
    assert metrics["sampling/logp_diff_max"] == pytest.approx(0.6931471805599453)
    assert metrics["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.5)


def test_gspo_s_metrics_count_scored_completions_not_tokens() -> None:
    case = worked(
        [[0.4, 0.4], [0.1, 0.4], [0.4, 0.4]],
        [1.0, -1.0, 1.0],
        old=[[0.2, 0.2], [0.2, 0.2], [0.2, 0.2]],
        mask=[[1, 1], [1, 0], [0, 0]],
        objective="gspo",
        aggregation="grpo",
    )
    metrics = run_torch(case).metrics  # ratios 2 and 1/2, the third row unscored
    assert metrics["ratio/mean"] == pytest.approx(1.25)
    assert metrics["clip_ratio/high_mean"] == pytest.approx(0.5)
    assert metrics["clip_ratio/low_mean"] == pytest.approx(0.5)


def test_the_losses_import_no_array_module() -> None:
    program = "import sys, grpo_client.learning.losses; print(sorted({'numpy', 'torch', 'mlx'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "dapoo"}, "no aggregation 'dapoo'; did you mean dapo"),
        ({"objective": "ppo"}, "no objective 'ppo'; there are clipped, cispo, gspo, reinforce"),
        ({"kl_estimator": "k4"}, "no kl_estimator 'k4'"),
        ({"importance_correction": "tis"}, "no importance_correction 'tis'"),
        ({"objective": "gspo"}, "long completions weigh more"),
        ({"objective": "gspo", "aggregation": "dr_grpo"}, "use aggregation grpo"),
        ({"objective": "gspo", "aggregation": "bnpo"}, "use aggregation grpo"),
        ({"clip_low": 0.0}, "clip_low is an offset below 1"),
        ({"clip_low": 1.2}, "clip_low is an offset below 1"),
        ({"clip_high": NAN}, "clip_high is an offset above 1"),
        ({"ratio_cap": 1.28}, "ratio_cap must lie above 1 + clip_high = 1.28"),
        ({"ratio_cap": 4.0, "objective": "cispo"}, "ratio_cap does nothing under objective cispo"),
        ({"cispo_max_ratio": 0.28}, "If you mean an offset from 1, write 1.28"),
        ({"kl_coef": -0.1}, "kl_coef must be finite and not negative"),
        ({"importance_cap": 0.5}, "importance_cap must be at least 1"),
        ({"importance_floor": 1.5, "importance_correction": "mask"}, "importance_floor must lie between 0 and 1"),
        ({"importance_floor": 0.5}, "importance_floor is for importance_correction mask"),
    ],
)
def test_a_configuration_that_cannot_be_right_is_refused_with_the_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        LossConfig(**options)
    assert message in str(refusal.value)


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_dr_grpo_refuses_scaled_advantages(scale: str) -> None:
    check_advantage_scale(aggregation="dr_grpo", scale="none")
    check_advantage_scale(aggregation="dapo", scale=scale)
    with pytest.raises(ValueError, match="use scale none"):
        check_advantage_scale(aggregation="dr_grpo", scale=scale)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kl_coef": 0.1}, "kl_coef 0.1 needs ref_logprobs"),
        ({"importance_correction": "mask"}, "importance_correction mask needs sampling_logprobs"),
    ],
)
def test_a_missing_input_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_numpy(worked([[0.5]], [1.0], **options))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("logprobs", (0, 3), "Skip an empty batch"),
        ("mask", (2, 1), "mask has shape"),
        ("old_logprobs", (1, 3), "old_logprobs has shape"),
        ("advantages", (1,), "2 rows need"),
        ("advantages", (2, 1), "2 rows need"),
    ],
)
def test_arrays_that_would_broadcast_are_refused(name: str, shape: tuple[int, ...], message: str) -> None:
    arrays: dict[str, Any] = {n: np.zeros((2, 3)) for n in ("logprobs", "mask", "old_logprobs")}
    arrays |= {"advantages": np.zeros(2), "ref_logprobs": None, "sampling_logprobs": None, name: np.zeros(shape)}
    with pytest.raises(ValueError, match=message):
        LossInputs(**arrays)


def test_denominators_count_scored_rows_only() -> None:
    counts = Denominators.from_lengths([3, 0, 2], max_completion_length=4)
    assert (counts.tokens, counts.rows) == (5, 2)
    with pytest.raises(ValueError, match="no batch has these counts"):
        Denominators(tokens=9, rows=2, max_completion_length=4)
