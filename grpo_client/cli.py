"""`grpo-client train`: flags to a config, errors to messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grpo_client.errors import ConfigError, HallmarkError, InterruptedRun

_USAGE = """usage: grpo-client COMMAND [OPTIONS]

commands:
  train    train a model with GRPO on rewards from a reward service; `grpo-client train --help` lists the options

exit codes: 0 done, 2 configuration or data, 3 reward service, 4 loss not finite, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    match arguments:
        case ["train", *options]:
            sys.exit(_train(options))
        case ["-h" | "--help", *_]:
            print(_USAGE)
        case [command, *_]:
            sys.exit(_fail(f"no command {command!r}\n\n{_USAGE}", ConfigError.exit_code))
        case _:
            sys.exit(_fail(_USAGE, ConfigError.exit_code))


def _train(options: Sequence[str]) -> int:
    try:
        import tyro

        from grpo_client.config import TrainConfig
        from grpo_client.train import train
    except ImportError as error:
        return _fail(f"training needs more than the bare client ({error}): pip install 'hallmark-rl[torch]'", 2)
    try:
        train(tyro.cli(TrainConfig, args=options, prog="grpo-client train"))
    except HallmarkError as error:
        return _fail(_with_notes(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was saved after the last --save-every", InterruptedRun.exit_code)
    return 0


def _with_notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())]).strip()


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
