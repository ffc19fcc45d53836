"""`grpo-client merge`: what is written is base plus adapter, and what does not fit together is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from tests.client.runs import Run
from tests.client.tiny import save_adapter, save_tiny, tiny_config, tiny_model, tiny_tokenizer


def logits(model: Any) -> torch.Tensor:
    ids = torch.arange(40).reshape(2, 20) * 6 % 250
    with torch.no_grad():
        found: torch.Tensor = model(ids).logits
    return found


def test_a_merged_model_is_base_plus_adapter(tiny: str, run: Run, tmp_path: Path) -> None:
    adapter = save_adapter(tiny, tmp_path / "adapter", scale=0.1)
    code, out, _ = run("merge", "--model", tiny, "--adapter", adapter, "--output", "merged")
    assert code == 0
    assert "merged: " in out
    base = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    bare = logits(base)
    want = logits(PeftModel.from_pretrained(base, adapter))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    assert (logits(merged) - want).abs().max() < 1e-5 * want.abs().max()
    assert (bare - want).abs().max() > 0.01
    assert not list((tmp_path / "merged").glob("adapter*"))
    assert {"generation_config.json", "tokenizer.json"} <= {one.name for one in (tmp_path / "merged").iterdir()}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    assert not list(tmp_path.glob(".*"))


def test_a_merged_model_keeps_every_stop_token_and_can_be_bfloat16(tiny: str, run: Run, tmp_path: Path) -> None:
    several = tmp_path / "several"
    model = tiny_model()
    model.generation_config = GenerationConfig(eos_token_id=[256, 7])
    model.save_pretrained(several)
    tiny_tokenizer().save_pretrained(several)
    adapter = save_adapter(str(several), tmp_path / "adapter")
    merge = ["merge", "--model", several, "--adapter", adapter, "--output", "merged", "--dtype", "bfloat16"]
    assert run(*merge)[0] == 0
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    assert merged.generation_config.eos_token_id == [256, 7]
    assert merged.dtype == torch.bfloat16


def test_an_adapter_of_another_base_is_refused(tiny: str, run: Run, tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", seed=3)
    adapter = save_adapter(other, tmp_path / "adapter")
    merge = ["merge", "--model", tiny, "--adapter", adapter, "--output", "merged"]
    code, _, errors = run(*merge)
    assert code == 2
    assert other in errors
    assert tiny in errors
    assert "--same-base" in errors
    assert run(*merge, "--same-base")[0] == 0


@pytest.mark.parametrize("changes", [{"hidden_size": 64, "intermediate_size": 128}, {"num_hidden_layers": 3}])
def test_an_adapter_of_other_shapes_is_refused_under_any_name(
    changes: dict[str, int], tiny: str, run: Run, tmp_path: Path
) -> None:
    tiny_model(tiny_config(**changes)).save_pretrained(tmp_path / "other")
    adapter = save_adapter(str(tmp_path / "other"), tmp_path / "adapter")
    code, _, errors = run("merge", "--model", tiny, "--adapter", adapter, "--output", "merged", "--same-base")
    assert code == 2
    assert "does not fit" in errors
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("end", ["lm_head", "embed_tokens"])
def test_an_adapter_on_a_shared_matrix_is_refused_and_on_one_of_its_own_merged(
    end: str, tiny: str, run: Run, tmp_path: Path
) -> None:
    adapter = save_adapter(tiny, tmp_path / "adapter", targets=["q_proj", end])
    code, _, errors = run("merge", "--model", tiny, "--adapter", adapter, "--output", "merged")
    assert code == 2
    assert "one matrix in this model" in errors
    assert not (tmp_path / "merged").exists()
    tiny_model(tiny_config(tie_word_embeddings=False)).save_pretrained(tmp_path / "untied")
    tiny_tokenizer().save_pretrained(tmp_path / "untied")
    adapter = save_adapter(str(tmp_path / "untied"), tmp_path / "other", targets=["q_proj", end])
    assert run("merge", "--model", tmp_path / "untied", "--adapter", adapter, "--output", "merged")[0] == 0


def test_merge_refuses_what_is_no_adapter_and_a_folder_that_is_full(tiny: str, run: Run, tmp_path: Path) -> None:
    code, _, errors = run("merge", "--model", tiny, "--adapter", tiny, "--output", "merged")
    assert code == 2
    assert "no adapter is there" in errors
    adapter = save_adapter(tiny, tmp_path / "adapter")
    code, _, errors = run("merge", "--model", tiny, "--adapter", adapter, "--output", tiny)
    assert code == 2
    assert "is there already" in errors
