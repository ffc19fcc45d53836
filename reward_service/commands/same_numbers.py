"""Does a reward pay, on its vectors and on variants of them, what it paid at an earlier commit?"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import reward_service

_SOURCES = ("reward_service", "proto")


def differences(reward_id: str, vectors: Path, *, against: str) -> list[str]:
    """A sentence for each vector or variant that is paid differently now than at the commit `against`.

    Raises CalledProcessError when git does not know the commit, or a side cannot run.
    """
    root = Path(reward_service.__file__).parents[1]
    lines = [json.loads(line) for line in vectors.read_text(encoding="utf-8").split("\n") if line.strip()]
    cases = [case for line in lines for case in variants(line)]
    archive = subprocess.run(["git", "archive", against, *_SOURCES], cwd=root, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        then = _outcomes(Path(folder), reward_id, cases)
    now = _outcomes(root, reward_id, cases)
    return [
        f"{case.get('id', 'a vector')}: {before} at {against}, {after} now"
        for case, before, after in zip(cases, then, now, strict=True)
        if before != after
    ]


def variants(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A vector, and its completion bent: with white space, halved, doubled, in capitals, with a tag taken out."""
    yield dict(line)
    if "items" not in line:
        text = str(line["completion"])
        bent = (f" {text}\n", text[: len(text) // 2], text * 2, text.upper(), text.replace("<answer>", "", 1))
        for n, one in enumerate(bent):
            yield {**line, "id": f"{line.get('id', '')} (variant {n + 1})", "completion": one}


def _outcomes(root: Path, reward_id: str, cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    command = [sys.executable, "-P", "-m", "reward_service.commands.vectors", reward_id, "-", "--outcomes"]
    path = {"PYTHONPATH": f"{root}:{root / 'proto'}", "PYTHONHASHSEED": "0"}
    result = subprocess.run(
        command,
        input="\n".join(json.dumps(case) for case in cases),
        env=path,
        check=True,
        capture_output=True,
        text=True,
    )
    outcomes: list[Any] = json.loads(result.stdout)
    return outcomes
