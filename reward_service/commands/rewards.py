"""`reward-service rewards`: what this source tree serves, as a list or as the table of `reward_service/README.md`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from reward_service.commands import Commands
from reward_service.locks import LOCKS
from reward_service.served import OWN_REWARDS
from reward_service.worker.catalogue import Reward
from reward_service.worker.modules import Loaded, load


def add(commands: Commands) -> None:
    """Add `rewards`."""
    rewards = commands.add_parser("rewards", help="list the rewards with range, needs and digest")
    rewards.add_argument("--rewards-module", help="a module or .py file with rewards of your own")
    rewards.add_argument("--markdown", action="store_true", help="as the table of reward_service/README.md")
    rewards.set_defaults(run=_rewards)


def every_reward(plugin: str | None) -> Loaded:
    """Our own rewards, those of locks and those of a plugin. Ends the command where the plugin cannot be imported."""
    own = [OWN_REWARDS, *(lock.module for lock in LOCKS)]
    loaded = load([*own, *([plugin] if plugin else [])])
    for module, error in loaded.failed.items():
        raise SystemExit(f"{module}: {error}")
    return loaded


def _rewards(arguments: argparse.Namespace) -> int:
    # The catalogue belongs to the workers: imported here, by a command that serves nothing.
    loaded = every_reward(arguments.rewards_module)
    if arguments.markdown:
        print(reward_table(loaded.catalogue))
        return 0
    for reward in loaded.catalogue:
        low, high = ("unbounded" if edge is None else f"{edge:g}" for edge in reward.range)
        state = "released" if reward.id in loaded.released else "draft"
        needs = ", ".join(reward.needs) or "nothing"
        digest = loaded.catalogue.digest(reward.id)
        print(f"{reward.id:28} {low:>9} … {high:<5} needs {needs:18} {state:8} {digest}")
    return 0


def reward_table(rewards: Iterable[Reward]) -> str:
    """Rewards as a Markdown table: id, range, needs, source, rule."""
    lines = ["| id | range | needs | source | rule |", "|---|---|---|---|---|"]
    for reward in rewards:
        low, high = ("∞" if edge is None else f"{edge:g}" for edge in reward.range)
        needs = ", ".join([*reward.needs, *(f"uses {used}" for used in reward.uses)])
        cells = [f"`{reward.id}`", f"{'−' if low == '∞' else ''}{low} … {high}", needs, reward.source]
        rule = reward.doc.partition("\n\n")[0].replace("\n", " ")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (*cells, rule))} |")
    return "\n".join(lines)
