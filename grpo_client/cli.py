"""`grpo-client COMMAND`: finds the command, turns errors into messages and exit codes."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from grpo_client.errors import ConfigError, HallmarkError, InterruptedRun, StorageError

COMMANDS = {
    "train": "train a model with GRPO on rewards from a reward service",
    "eval": "evaluate a model on held-out data: accuracy, pass@k, lengths",
    "generate": "sample completions and look at them",
    "validate-data": "check a data set before training on it",
    "rewards": "list the rewards and suites of a service, or score texts by hand",
    "doctor": "check the installation, the machine, the service and a model",
    "merge": "merge an adapter into its model",
}

USAGE = f"""usage: grpo-client COMMAND [OPTIONS]

commands:
{chr(10).join(f"  {name:<14} {summary}" for name, summary in COMMANDS.items())}

`grpo-client COMMAND --help` lists the options of a command; flags take `-` and `_` alike.

exit codes: 0 done, 2 configuration or data, 3 reward service, 4 not finite, 5 disk, 6 nothing learnt, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a terminal without UTF-8 a `×` must not end a run
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.filterwarnings("ignore", category=FutureWarning)  # what libraries tell each other
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # transformers' bars would fill a log file
    match list(sys.argv[1:] if argv is None else argv):
        case ["-h" | "--help" | "help", *_]:
            print(USAGE)
        case ["--version", *_]:
            from grpo_client import __version__

            print(__version__)
        case [name, *options] if name.replace("_", "-") in COMMANDS:
            sys.exit(_run(name.replace("_", "-"), options))
        case [name, *_]:
            nearest = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"; the nearest is {nearest[0]}" if nearest else ""
            sys.exit(_fail(f"there is no command {name!r}{hint}\n\n{USAGE}", ConfigError.exit_code))
        case _:
            sys.exit(_fail(USAGE, ConfigError.exit_code))


def _run(name: str, options: Sequence[str]) -> int:
    try:
        code: int = importlib.import_module(f"grpo_client.commands.{name.replace('-', '_')}").main(options)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "grpo_client":
            raise
        return _fail(f"{name} needs more than the bare client ({error}): pip install 'hallmark-rl[torch]'", 2)
    except InterruptedRun as error:
        _leave(_with_notes(error))
    except HallmarkError as error:
        return _fail(_with_notes(error), error.exit_code)
    except KeyboardInterrupt:
        _leave("interrupted")
    except BrokenPipeError:  # of `grpo-client … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"reading or writing failed: {error}", StorageError.exit_code)
    return code


def _leave(message: str) -> NoReturn:
    """End at once: threads that wait for a silent service would hold the interpreter until their time is over."""
    code = _fail(message, InterruptedRun.exit_code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _with_notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())]).strip()


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
