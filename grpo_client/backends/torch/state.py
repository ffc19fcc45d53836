"""What a resume needs beyond the weights, as one safetensors file: the optimizer's state and random generators."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer

from grpo_client.errors import ConfigError

STATE_FILE = "trainer_state.safetensors"
_FINGERPRINT_VALUES = 64  # of each weight


def write_state(path: Path, optimizer: Optimizer, *, device: str) -> None:
    """Write the optimizer's state, by the place of each weight, and torch's generators."""
    tensors = {"random.cpu": torch.get_rng_state()}
    if device.startswith("cuda"):
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    for i, weight in enumerate(_weights(optimizer)):
        for name, value in optimizer.state[weight].items() if weight in optimizer.state else ():
            if value is not None:
                tensors[f"optimizer.{i}.{name}"] = value.detach().cpu().contiguous()
    save_file(tensors, path / STATE_FILE)


def read_state(path: Path, optimizer: Optimizer, *, device: str) -> None:
    """Take up what `write_state` wrote. Raises ConfigError where it is of other weights."""
    try:
        tensors = load_file(path / STATE_FILE)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path / STATE_FILE} cannot be read: {error}") from error
    torch.set_rng_state(tensors.pop("random.cpu"))
    on_gpu = tensors.pop("random.cuda", None)
    if device.startswith("cuda") and on_gpu is not None:
        torch.cuda.set_rng_state(on_gpu, device)
    weights = _weights(optimizer)
    for key, value in tensors.items():
        _, place, name = key.split(".")
        if int(place) >= len(weights) or (value.dim() and value.shape != weights[int(place)].shape):
            raise ConfigError(f"{path / STATE_FILE} belongs to another model: {key} does not fit")
        optimizer.state[weights[int(place)]][name] = value if not value.dim() and device == "cpu" else value.to(device)


def _weights(optimizer: Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def weights_fingerprint(model: torch.nn.Module) -> str:
    """SHA-256 over every weight's name, shape and some of its values."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        flat = weight.detach().flatten()
        some = flat[:: max(1, flat.numel() // _FINGERPRINT_VALUES)].float().cpu()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + some.numpy().tobytes())
    return f"sha256:{digest.hexdigest()}"


@contextlib.contextmanager
def write_errors() -> Iterator[None]:
    """safetensors reports a full disk as an error of its own; here it is the OSError that it is."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(None, str(error)) from error
