"""Tiny models in Hugging Face format, for both backends. Without mlx the tests in this folder are not collected."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest
from transformers import Lfm2Config

from grpo_client.config import TrainConfig
from tests.client.tiny import ARCHITECTURES, SMALL, tiny_config, tiny_model, tiny_tokenizer

collect_ignore_glob = [] if importlib.util.find_spec("mlx_lm") else ["test_*.py"]

MODELS = {
    "llama": ARCHITECTURES["llama"],
    "qwen3": ARCHITECTURES["qwen3"],
    # angles of its own, which transformers 5 writes where most of mlx-lm does not look; a head of its own
    "llama_theta": lambda: tiny_config(
        rope_parameters={"rope_theta": 500.0, "rope_type": "default"}, tie_word_embeddings=False
    ),
}
DEEP = "deep"  # layers enough for their activations to weigh
OTHERS = {
    DEEP: lambda: tiny_config(num_hidden_layers=8),
}


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folders: dict[str, str] = {}

    def folder(name: str) -> str:
        if name not in folders:
            path = tmp_path_factory.mktemp(name)
            tiny_model((MODELS | OTHERS)[name]()).save_pretrained(path)
            tiny_tokenizer().save_pretrained(path)
            folders[name] = str(path)
        return folders[name]

    return folder


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny LFM2: convolutions that keep a state, and attention. mlx-lm wants names that transformers has dropped."""
    layers: dict[str, Any] = {
        "layer_types": ["conv", "full_attention"],
        "conv_L_cache": 3,
        "block_auto_adjust_ff_dim": False,
    }
    path = tmp_path_factory.mktemp("recurrent")
    tiny_model(Lfm2Config(**SMALL, **layers)).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    old = {"block_dim": 32, "block_ff_dim": 64, "block_multiple_of": 1, "block_ffn_dim_multiplier": 1.0}
    config = json.loads((path / "config.json").read_text()) | old
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


@pytest.fixture(scope="session")
def quantised(saved: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """A tiny Llama in few bits, as `mlx_lm.convert` writes it."""
    from mlx_lm import convert

    folders: dict[int, str] = {}

    def folder(bits: int) -> str:
        if bits not in folders:
            path = tmp_path_factory.mktemp("quantised") / str(bits)
            convert(saved("llama"), str(path), quantize=True, q_bits=bits, q_group_size=32)
            folders[bits] = str(path)
        return folders[bits]

    return folder


@pytest.fixture
def settings(saved: Callable[[str], str]) -> Callable[..., TrainConfig]:
    """The configuration of a backend alone, with changes."""

    def make(**changes: object) -> TrainConfig:
        base: dict[str, object] = {
            "model": saved("llama"),
            "suite": "r1@1",
            "backend": "mlx",
            "learning_rate": 1e-3,
            "temperature": 0.7,
            "max_completion_length": 12,
        }
        return TrainConfig.model_validate(base | changes)

    return make
