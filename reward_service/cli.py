"""`reward-service`: serve, show what is served, print the contract, record a release."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence

import uvicorn

from reward_service import __version__
from reward_service.app import create_app
from reward_service.settings import Settings
from reward_service.state import RELEASED, read_released


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = _parser().parse_args(argv)
    sys.exit(arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("reward-service", description="Versioned rewards for GRPO, served over HTTP.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)
    serve = commands.add_parser(
        "serve",
        help="serve rewards (the same as `uvicorn reward_service.app:app`)",
        epilog=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8000, help="port to listen on (8000)")
    serve.set_defaults(run=_serve)
    commands.add_parser("rewards", help="list the rewards with range, needs and digest").set_defaults(run=_rewards)
    commands.add_parser("openapi", help="print the OpenAPI document of the contract").set_defaults(run=_openapi)
    release = commands.add_parser("release", help="record a reward of this source tree as released")
    release.add_argument("id", help="such as math.equal@2")
    release.set_defaults(run=_release)
    return parser


def _settings_help() -> str:
    lines = ["settings, as environment variables:"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        lines.append(f"  REWARD_{name.upper():20} {field.description} ({default})")
    return "\n".join(lines)


def _serve(arguments: argparse.Namespace) -> int:
    uvicorn.run(create_app(), host=arguments.host, port=arguments.port)
    return 0


def _rewards(arguments: argparse.Namespace) -> int:
    # The catalogue belongs to the workers: imported here, by a command that serves nothing.
    from reward_service.worker.rewards import CATALOGUE

    released = read_released()
    for reward in CATALOGUE:
        low, high = ("unbounded" if edge is None else f"{edge:g}" for edge in reward.range)
        state = "released" if reward.id in released else "draft"
        needs = ", ".join(reward.needs) or "nothing"
        print(f"{reward.id:28} {low:>9} … {high:<5} needs {needs:12} {state:8} {CATALOGUE.digest(reward.id)}")
    return 0


def _openapi(arguments: argparse.Namespace) -> int:
    print(json.dumps(create_app().openapi(), indent=2, sort_keys=True))
    return 0


def _release(arguments: argparse.Namespace) -> int:
    from reward_service.worker.rewards import CATALOGUE

    reward_id, released = arguments.id, read_released()
    if reward_id not in CATALOGUE:
        print(f"no reward has the id {reward_id}; `reward-service rewards` lists all", file=sys.stderr)
        return 2
    if reward_id in released:
        print(f"{reward_id} is released already, and a released version never changes: add a version", file=sys.stderr)
        return 2
    lock = CATALOGUE[reward_id].lock
    released[reward_id] = {
        "digests": [CATALOGUE.digest(reward_id)],
        "lock": lock.name if lock else None,
        "released": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "definitions": {name: digest[:16] for name, digest in CATALOGUE.closure(reward_id).items()},
    }
    RELEASED.write_text(json.dumps(released, indent=2) + "\n", encoding="utf-8")
    print(f"released {reward_id} {released[reward_id]['digests'][0]}")
    return 0
