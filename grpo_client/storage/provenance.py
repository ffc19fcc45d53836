"""What a run's numbers come from: the reward manifest of a checkpoint, and how it differs from what is served now."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_client.config import TrainConfig
from grpo_client.errors import ConfigError
from grpo_client.options.option import options
from grpo_client.rewards.client import Manifest
from grpo_client.types import Prompt

_PACKAGES = ("hallmark-rl", "torch", "transformers", "peft", "mlx", "mlx-lm", "numpy")


def record(manifest: Manifest) -> dict[str, Any]:
    """A manifest as JSON: suite version, rewards with parameters, weights and digests, and the service's version."""
    rewards = [spec.model_dump(mode="json", exclude_none=True) for spec in manifest.rewards]
    return {"suite": manifest.suite, "rewards": rewards, "service": manifest.service}


def reward_changes(saved: Mapping[str, Any], manifest: Manifest) -> list[str]:
    """How the rewards served now differ from those of a checkpoint. A later release of the same numbers does not."""
    changes = []
    now = {spec.name or spec.id: spec for spec in manifest.rewards}
    before = {one.get("name") or one["id"]: one for one in saved["rewards"]}
    for name in sorted(now.keys() | before.keys()):
        if name not in before or name not in now:
            changes.append(f"{name} is {'new' if name in now else 'gone'}")
            continue
        old, new = before[name], now[name].model_dump(mode="json", exclude_none=True)
        changes += [
            f"{name}: {key} was {old.get(key)}, is {new.get(key)}"
            for key in sorted((old.keys() | new.keys()) - {"digest"})
            if old.get(key) != new.get(key)
        ]
        if old["digest"] != new["digest"] and old["digest"] not in manifest.infos[new["id"]].history:
            changes.append(f"{name}: digest was {old['digest']}, is {new['digest']}")
    return changes


def check_config(saved: Mapping[str, Any], config: TrainConfig) -> None:
    """Raise ConfigError for settings that would make a resumed run another run."""
    now = config.model_dump(mode="json")
    fixed = [key for key, one in options(type(config)).items() if not one.may_change]
    changed = [key for key in fixed if key in saved and saved[key] != now[key]]
    if changed:
        named = "; ".join(f"--{key.replace('_', '-')} was {saved[key]}, is {now[key]}" for key in changed)
        raise ConfigError(
            f"--resume goes on with the run as it was, and the configuration differs: {named}. Give the run's "
            "config.yaml as --config, or begin anew in another --output-dir"
        )


def data_fingerprint(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over every prompt's tokens and gold: what a position in the data means depends on them."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(json.dumps([prompt.index, prompt.token_ids, prompt.gold]).encode())
    return f"sha256:{digest.hexdigest()}"


def versions() -> dict[str, str]:
    """The installed packages that can move a run's numbers."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
