"""A model is what its files say: what is missing or of another one is refused by name, known prefixes are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from grpo_client.backends.torch.models import load_model
from grpo_client.errors import ConfigError
from tests.client.tiny import save_tiny, tiny_config, tiny_model, tiny_tokenizer

Weights = dict[str, torch.Tensor]


def saved(folder: Path, change: Callable[[Weights], Weights], **settings: object) -> str:
    """A tiny model's folder, its weights changed, its config with other settings."""
    tiny_model(tiny_config(tie_word_embeddings=False)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model."])
def test_a_prefix_that_wrappers_leave_is_read_for_what_it_is(prefix: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, lambda weights: {prefix + name: weight for name, weight in weights.items()})
    want = tiny_model(tiny_config(tie_word_embeddings=False)).state_dict()
    got = load_model(folder, device="cpu").model.state_dict()
    assert all(torch.equal(got[name], weight) for name, weight in want.items())


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: weight for name, weight in weights.items() if part not in name}


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (without("lm_head"), {}, r"1 weights \(lm_head.weight\) missing"),
        (without("layers.1."), {}, r"9 weights \(model.layers.1.input_layernorm.weight, .*, …\) missing"),
        (without("nothing"), {"num_hidden_layers": 3}, r"9 weights \(model.layers.2.* missing"),
        (without("nothing"), {"num_hidden_layers": 1}, r"9 weights \(model.layers.1.* that it has no place for"),
        (without("nothing"), {"intermediate_size": 48}, r"6 weights \(model.layers.0.mlp.* of another shape"),
        (lambda weights: {f"other.{name}": one for name, one in weights.items()}, {}, r"21 weights .* missing"),
    ],
)
def test_files_of_another_model_are_refused_by_name(
    change: Callable[[Weights], Weights], settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path, change, **settings)
    with pytest.raises(ConfigError, match=message):
        load_model(folder, device="cpu")


def test_a_tied_head_is_not_missed_and_parts_of_other_kinds_are_left(tmp_path: Path) -> None:
    folder = Path(save_tiny(tmp_path))
    file = folder / "model.safetensors"
    save_file(load_file(file) | {"vision_tower.patch.weight": torch.zeros(2, 2)}, file, metadata={"format": "pt"})
    loaded = load_model(str(folder), device="cpu").model
    assert torch.equal(loaded.get_output_embeddings().weight, tiny_model().get_output_embeddings().weight)
