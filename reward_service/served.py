"""What is served: the rewards of every fleet, why some cannot be had, and the change from one generation to the next.

The default fleet has our own rewards and those of plugins, on the packages of the serving process. A lock has a fleet
of its own, started at first use. A reload starts a new generation of the default fleet; when it has said hello and its
released digests are in order, new requests go to it whole, and the old one drains.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from reward_proto import v1

from reward_service.locks import LOCKS, LockedEnvironment, how_to_build, python_of
from reward_service.pool.fleet import WorkerSpec
from reward_service.pool.pool import Pool
from reward_service.settings import Settings
from reward_service.suites import SuiteError
from reward_service.worker.messages import Description, Hello

log = logging.getLogger("reward_service")

OWN_REWARDS = "reward_service.worker.rewards"
ENTRY_POINTS = "hallmark.rewards"
_HELLO_SECONDS = 60.0


class Served:
    """The rewards that can be had now. `fleets[id]` is the fleet that a reward runs on."""

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        *,
        check: Callable[[Mapping[str, v1.RewardInfo]], None],
        on_change: Callable[[], None],
    ) -> None:
        self.rewards: Mapping[str, v1.RewardInfo] = {}
        self.unavailable: Mapping[str, str] = {}
        self.fleets: Mapping[str, str] = {}
        self._settings = settings
        self._pool = pool
        self._check = check
        self._on_change = on_change
        self._generation = 0
        self._default = ""  # the default fleet that requests go to; none before its hello
        self._described: dict[str, Sequence[Description]] = {}  # by fleet
        self._hello = asyncio.Condition()
        self._draining: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the default fleet and the locks that are wanted at once."""
        self._open_default()
        wanted = [name.strip() for name in self._settings.locks.split(",") if name.strip()]
        for lock in LOCKS:
            if lock.name in wanted:
                self._open_lock(lock)

    def reload(self) -> None:
        """Start a new generation of the default fleet, which takes over when it is ready and in order."""
        log.info("reload: generation %d starts", self._generation + 1)
        self._open_default()

    async def wake(self, reward_ids: Iterable[str]) -> None:
        """Start the locks of these rewards, and wait until they have said hello."""
        ids = set(reward_ids)
        for lock in LOCKS:
            if ids & set(lock.rewards) and lock.name not in self._described and self._open_lock(lock):
                async with self._hello:
                    ready = self._hello.wait_for(lambda name=lock.name: name in self._described)  # type: ignore[misc]
                    await asyncio.wait_for(ready, _HELLO_SECONDS)

    def _open_default(self) -> None:
        self._generation += 1
        modules = (OWN_REWARDS, *plugin_modules(self._settings))
        self._pool.open(f"default#{self._generation}", WorkerSpec(sys.executable, modules), self._on_default_hello)

    def _open_lock(self, lock: LockedEnvironment) -> bool:
        python = python_of(lock, self._settings.locks_dir)
        if python is None:
            return False
        if not self._pool.is_open(lock.name):
            self._pool.open(lock.name, WorkerSpec(python, (lock.module,)), self._on_lock_hello)
        return True

    def _on_lock_hello(self, fleet: str, hello: Hello) -> None:
        self._take(fleet, hello["rewards"])

    def _on_default_hello(self, fleet: str, hello: Hello) -> None:
        for module, error in hello["failed"].items():
            log.error("plugin %s is left out: %s", module, ascii(error))
        refusal = self._refusal(fleet, hello)
        if refusal is not None:
            log.error("%s", refusal)
            self._drain(fleet)
            return
        old, self._default = self._default, fleet
        self._take(fleet, hello["rewards"])
        if old and old != fleet:
            del self._described[old]
            self._drain(old)
            log.info("reload: %s serves, %s drains", fleet, old)

    def _refusal(self, fleet: str, hello: Hello) -> str | None:
        """Why a default fleet must not serve. A first one may lack plugins; a reload must not lose or move anything."""
        reasons = []
        try:
            self._check({one["id"]: _info(one) for one in hello["rewards"]})
        except SuiteError as error:
            reasons.append(str(error))
        if self._default and fleet != self._default:
            reasons += [f"{module} cannot be imported" for module in hello["failed"]]
            moved = [one["id"] for one in hello["rewards"] if _has_moved(one)]
            reasons += [f"{reward_id} is released with another digest: add a new version" for reward_id in moved]
            if reasons:
                return f"reload refused, the old generation goes on: {'; '.join(reasons)}"
        return f"nothing is served: {'; '.join(reasons)}" if reasons else None

    def _drain(self, fleet: str) -> None:
        task = asyncio.get_running_loop().create_task(self._pool.drain(fleet))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def _take(self, fleet: str, described: Sequence[Description]) -> None:
        """Serve what a fleet has named, beside what the other fleets have."""
        self._described[fleet] = described
        current = {name: one for name, one in self._described.items() if name == self._default or "#" not in name}
        reasons = {one["id"]: self._why_not(one) for described in current.values() for one in described}
        self.fleets = {one["id"]: name for name, described in current.items() for one in described}
        self.rewards = {
            one["id"]: _info(one) for described in current.values() for one in described if reasons[one["id"]] is None
        }
        not_built = {
            reward_id: f"{reward_id} needs a lock that is not built; run: {how_to_build(lock)}"
            for lock in LOCKS
            if python_of(lock, self._settings.locks_dir) is None
            for reward_id in lock.rewards
        }
        self.unavailable = not_built | {reward_id: why for reward_id, why in reasons.items() if why is not None}
        if self._default:
            self._on_change()
        asyncio.get_running_loop().create_task(self._say_hello())

    async def _say_hello(self) -> None:
        async with self._hello:
            self._hello.notify_all()

    def _why_not(self, one: Description) -> str | None:
        if one["broken_lock"]:
            return (
                f"{one['id']} promises its numbers on other packages than are installed "
                f"({'; '.join(one['broken_lock'])}); run: pip install 'hallmark-rl[service]'"
            )
        if _has_moved(one):
            return f"{one['id']} is released, but its source here is not what was released; add a new version instead"
        if one["released"] is None and not self._settings.allow_drafts:
            return f"{one['id']} is a draft, whose numbers may still move; REWARD_ALLOW_DRAFTS=1 serves it"
        return None


def plugin_modules(settings: Settings) -> list[str]:
    """Modules with rewards of the user: of installed packages (entry points) and of the settings. None is imported."""
    installed = [point.module for point in importlib.metadata.entry_points(group=ENTRY_POINTS)]
    named = [name.strip() for name in settings.rewards_module.split(",") if name.strip()]
    return list(dict.fromkeys([*installed, *(str(Path(one)) if one.endswith(".py") else one for one in named)]))


def _has_moved(one: Description) -> bool:
    return one["released"] is not None and one["digest"] not in one["released"]["digests"]


def _info(one: Description) -> v1.RewardInfo:
    released = one["released"]
    history = [digest for digest in (released or {}).get("digests", []) if digest != one["digest"]]
    return v1.RewardInfo.model_validate(
        {**one, "history": history, "status": "draft" if released is None else "released"}
    )
