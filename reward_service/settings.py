"""Settings of the service, each read from an environment variable of the same name with the prefix `REWARD_`."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Settings(BaseSettings):
    """Sizes, clocks and limits. The defaults suit one small machine."""

    model_config = SettingsConfigDict(env_prefix="REWARD_", env_ignore_empty=True, frozen=True)

    workers: int = Field(default_factory=_cores, ge=1, description="worker processes that score at a time")
    unit_cpu_seconds: float = Field(default=2.0, gt=0, description="CPU time one reward may take on one completion")
    unit_wall_seconds: float = Field(
        default=30.0, gt=0, description="the same in wall time: loose, for what sleeps; a paused machine must fit in"
    )
    worker_memory_mb: int = Field(default=512, ge=128, description="resident memory at which a worker is killed")
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="largest request body")
    max_completions: int = Field(default=65_536, ge=1, description="most completions in one request")
    max_text_chars: int = Field(default=2_000_000, ge=1, description="longest completion that is scored")
    max_queued_units: int = Field(default=1_000_000, ge=1, description="units (reward × completion) waiting; then 429")
    max_deadline_ms: int = Field(default=600_000, ge=1, description="longest deadline, and the one of requests without")
    allow_drafts: bool = Field(default=False, description="serve rewards that are not released; answers mark them")
    rewards_module: str = Field(
        default="",
        description="modules (or .py files) of your own rewards, separated by commas; see reward_service/README.md",
    )
    locks: str = Field(default="", description="locks to start at once, separated by commas; others at first use")
    locks_dir: Path = Field(
        default=Path.home() / ".cache" / "hallmark" / "locks",
        description="where `reward-service locks build` puts them",
    )
    suites: Path | None = Field(default=None, description="a YAML file of further suites")
    store: Path | None = Field(default=None, description="an SQLite file that keeps aliases; they are off without one")
    admin_token: SecretStr | None = Field(default=None, description="what moving an alias over HTTP takes, as Bearer")
