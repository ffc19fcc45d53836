"""What is checked and chosen before the first step, on the user's machine."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from grpo_client import backends
from grpo_client.backends.mlx.backend import MlxBackend
from grpo_client.backends.mlx.check import check_batches
from grpo_client.backends.mlx.forward import shared_logprobs
from grpo_client.backends.mlx.head import cut_model
from grpo_client.backends.mlx.models import load_model, prepare_device, rope_settings, versions
from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError

Settings = Callable[..., TrainConfig]


def test_a_machine_on_which_batches_give_other_numbers_is_refused_with_its_versions(
    saved: Callable[[str], str],
) -> None:
    parts, _ = cut_model(load_model(saved("llama"), dtype="float32").model)
    check_batches(parts, shared_logprobs, name="tiny", tolerance=1e-3)

    def second_row_is_off(*args: Any, **kwargs: Any) -> tuple[mx.array, mx.array]:
        logprobs, mask = shared_logprobs(*args, **kwargs)
        return logprobs + mx.array([[0.0], [0.5]]), mask

    with pytest.raises(ConfigError, match="other logprobs than its rows alone") as refusal:
        check_batches(parts, second_row_is_off, name="tiny", tolerance=1e-3)
    assert versions() in str(refusal.value)


def test_without_a_compiler_mlx_runs_without_compiled_kernels_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("[Compile::eval_cpu] Failed to compile function\nwith code 127")

    assert prepare_device("auto") == []
    monkeypatch.setattr(mx, "compile", fails)
    try:
        (note,) = prepare_device("auto")
    finally:
        mx.enable_compile()
    assert "Failed to compile function" in note


@pytest.mark.parametrize(
    ("system", "machine", "chosen"),
    [("Darwin", "arm64", MlxBackend), ("Darwin", "x86_64", None), ("Linux", "x86_64", None)],
)
def test_auto_is_mlx_on_apple_silicon(
    system: str, machine: str, chosen: type | None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    made = backends.load_backend(settings(backend="auto"))
    assert (type(made) is MlxBackend) == (chosen is MlxBackend)


def test_angles_are_found_where_transformers_5_writes_them() -> None:
    plain = {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    assert rope_settings(plain) == {"rope_theta": 500.0}
    scaled = {"rope_theta": 500.0, "rope_type": "llama3", "factor": 8.0}
    assert rope_settings({"rope_parameters": scaled}) == {"rope_theta": 500.0, "rope_scaling": scaled}
    assert rope_settings({"rope_parameters": scaled, "rope_theta": 7.0, "rope_scaling": scaled}) == {}
    both = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    assert rope_settings({"rope_parameters": both}) == {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
    assert rope_settings({"rope_theta": 1e4}) == {}


def test_a_dtype_of_its_own_for_the_reference_is_refused(settings: Callable[..., TrainConfig]) -> None:
    with pytest.raises(ConfigError, match="--ref-dtype bfloat16: on MLX a reference is computed in --dtype"):
        MlxBackend(settings(kl_coef=0.1, ref_dtype="bfloat16"))
