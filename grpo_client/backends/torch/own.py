"""A causal language model's own forward pass, taken apart at its last hidden states.

Whatever a ForCausalLM class does between those and its logits (scales, transforms, caps, biases, projections) is part
of the model. None of it is listed here: the class's own `forward` is run on given hidden states instead of its body's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from grpo_client.errors import ConfigError

_SCALES = (0.1, 10.0, 1000.0)  # of the hidden states on which a head is tried: a cap shows on large logits only
_TRIED_ROWS = 4
_BARE_TOLERANCE = 1e-5

_bare: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()


def body(model: PreTrainedModel) -> Any:
    """The part that makes hidden states of ids. Raises ConfigError for a model that has none."""
    return model._modules[_name_of_body(model)]


def _name_of_body(model: PreTrainedModel) -> str:
    """`base_model_prefix`; where it names nothing (Llama 4's text model), the only child that is a model itself."""
    if isinstance(model._modules.get(model.base_model_prefix), torch.nn.Module):
        return str(model.base_model_prefix)
    children = [name for name, child in model._modules.items() if isinstance(child, PreTrainedModel)]
    if len(children) != 1:
        raise ConfigError(
            f"{type(model).__name__}: which of its parts makes the hidden states cannot be told "
            f"({', '.join(children) or 'none'} of {', '.join(model._modules)})"
        )
    return children[0]


def own_logits(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits (N, V) that the model's own forward makes of last hidden states (N, H)."""
    ids = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
    with _given(model, hidden[None]):
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits[0]


@contextlib.contextmanager
def _given(model: PreTrainedModel, hidden: torch.Tensor) -> Iterator[None]:
    """The model with a body that answers with these hidden states."""
    name = _name_of_body(model)
    whole = model._modules[name]
    assert whole is not None
    model._modules[name] = _Answer(whole, hidden)
    try:
        yield
    finally:
        model._modules[name] = whole


class _Answer(torch.nn.Module):
    """In a body's place, and in that of its parts (OPT's class calls the decoder in it); its tables can be read."""

    def __init__(self, whole: torch.nn.Module, hidden: torch.Tensor) -> None:
        super().__init__()
        self.__dict__["whole"], self.__dict__["hidden"] = whole, hidden  # not as a submodule: no parameters of its own

    def forward(self, *args: Any, **kwargs: Any) -> _Output:
        return _Output(self.__dict__["hidden"])

    def __getattr__(self, name: str) -> Any:
        part = getattr(self.__dict__["whole"], name)
        return _Answer(part, self.__dict__["hidden"]) if isinstance(part, PreTrainedModel) else part


class _Output:
    """A body's output with hidden states and nothing else."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, place: Any) -> Any:
        return (self.last_hidden_state,)[place]

    def __len__(self) -> int:
        return 1

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def has_bare_head(model: PreTrainedModel) -> bool:
    """Whether logits are hidden states times the output embedding and nothing more, as far as numbers show."""
    if model not in _bare:
        _bare[model] = _is_bare(model)
    return _bare[model]


@torch.no_grad()
def _is_bare(model: PreTrainedModel) -> bool:
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if type(head) is not torch.nn.Linear or head.bias is not None:
        return False
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(_TRIED_ROWS, head.in_features, generator=generator).to(head.weight.device, head.weight.dtype)
    for scale in _SCALES:
        hidden = drawn * scale
        logits = own_logits(model, hidden)
        product = torch.nn.functional.linear(hidden, head.weight)
        if logits.shape != product.shape:
            return False
        if not torch.allclose(logits, product, rtol=_BARE_TOLERANCE, atol=_BARE_TOLERANCE * float(product.abs().max())):
            return False
    return True
