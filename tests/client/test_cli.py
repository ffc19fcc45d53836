"""The command line: commands are found, helped with and ended with their exit codes; the package as an API."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_client import cli
from grpo_client.errors import ConfigError, InterruptedRun, NotFiniteError, RewardServiceError, StorageError
from tests.conftest import ROOT

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in this process."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    captured = capsys.readouterr()
    return int(exit_.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_has_help_with_examples_and_defaults(name: str, capsys: Capture) -> None:
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert out.startswith(f"usage: grpo-client {name}")
    assert "examples:" in out
    assert f"grpo-client {name} " in out.partition("examples:")[2]


def test_the_usage_names_each_command_and_exit_code(capsys: Capture) -> None:
    cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in cli.COMMANDS)
    codes = out[out.index("exit codes:") :]
    for error in (ConfigError, RewardServiceError, NotFiniteError, StorageError, InterruptedRun):
        assert f"{error.exit_code} " in codes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "usage: grpo-client COMMAND"),
        (["tran"], "the nearest is train"),
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["rewards", "--reward-ulr", "x"], "the nearest is --reward-url"),
        (["merge", "--model", "x"], "--adapter is needed"),
        (["eval", "--modle", "x", "--samples", "two"], "2 faults"),
        (["generate", "--model", "x"], "--prompt TEXT"),
        (["train", "stray", "--suite", "r1@1"], "'stray' belongs to no option"),
    ],
)
def test_a_wrong_command_line_is_said_without_a_traceback(arguments: list[str], said: str, capsys: Capture) -> None:
    code, _, errors = run(capsys, *arguments)
    assert code == 2
    assert said in errors
    assert "Traceback" not in errors


def test_underscores_are_hyphens_in_commands_too(capsys: Capture) -> None:
    assert run(capsys, "validate_data", "--help")[0] == 0


def test_a_terminal_without_utf_8_ends_no_command() -> None:
    command, ascii_only = [sys.executable, "-m", "grpo_client", "train", "--help"], {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | ascii_only, capture_output=True, check=False)
    assert ended.returncode == 0
    assert b"rows \\xd7 length" in b" ".join(ended.stdout.split())


def test_a_closed_pipe_ends_a_command_quietly(tmp_path: Path) -> None:
    script = f"{sys.executable} -m grpo_client train --help | true"
    ended = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr


API = """
import sys
import grpo_client
assert not {"torch", "numpy", "pydantic", "transformers"} & sys.modules.keys(), "importing the package must be cheap"
from grpo_client import Callback, TrainConfig, load_config, train
assert callable(train) and train.__module__ == "grpo_client.train"
import grpo_client.train
from grpo_client.train import train as same
from grpo_client import train as again
assert train is same is again
assert {"Callback", "TrainConfig", "train", "__version__"} <= set(dir(grpo_client))
try:
    from grpo_client import nothing
except ImportError:
    print("fine")
"""


def test_the_package_is_a_cheap_api(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", API], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("fine\n", "")
