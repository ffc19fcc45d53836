"""`reward-service`: serve, show what is served, print the contract, record a release, move an alias."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from reward_service import __version__
from reward_service.commands import aliases, compare, locks, release, rewards, serve, suites

COMMANDS = (serve, rewards, release, compare, locks, suites, aliases)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = _parser().parse_args(argv)
    sys.exit(arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("reward-service", description="Versioned rewards for GRPO, served over HTTP.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    main()
