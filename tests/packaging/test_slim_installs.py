"""Each way to install brings what it needs and no more: proven from a built wheel, in empty environments."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT, once_for_all, shared_folder

CONSTRAINTS = ROOT / "constraints.txt"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shared_folder(tmp_path_factory, "wheel")
    with once_for_all(folder) as first:
        if first:
            build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
            subprocess.run(build, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def install(wheel: Path, extra: str, folder: Path) -> Path:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), f"{wheel}{extra}"]
    subprocess.run(pip, check=True, capture_output=True)
    return python


def run(python: Path, code: str, folder: Path) -> str:
    result = subprocess.run([str(python), "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def installed(python: Path, folder: Path) -> set[str]:
    code = "import importlib.metadata as m; print(*{d.name.lower() for d in m.distributions()})"
    return set(run(python, code, folder).split())


IMPORT_ALL = """
import importlib, pkgutil, sys
for name in {packages}:
    importlib.import_module(name)
print(*sorted({{one.partition('.')[0] for one in sys.modules}}))
"""


def test_the_bare_install_is_the_contract_and_the_http_client(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, "", tmp_path)
    assert not installed(python, tmp_path) & {"fastapi", "sympy", "math-verify", "torch", "numpy", "uvicorn"}
    code = IMPORT_ALL.format(
        packages=[
            "reward_proto.v1",
            "grpo_client.rewards.client",
            "grpo_client.learning.losses",
            "grpo_client.adapters.trl",
        ]
    )
    assert not set(run(python, code, tmp_path).split()) & {"fastapi", "sympy", "torch", "numpy"}
    help_text = run(python, "import subprocess, sys; print(subprocess.run([sys.prefix + '/bin/grpo-client', 'train'], "
                    "capture_output=True, text=True).stderr)", tmp_path)  # fmt: skip
    assert "pip install 'hallmark-rl[torch]'" in help_text


@pytest.mark.slow  # installs the service anew
def test_the_service_brings_no_torch_and_serves_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, "[service]", tmp_path)
    assert not installed(python, tmp_path) & {"torch", "transformers", "numpy"}
    code = """
import asyncio, sys, time
import httpx
from reward_service.app import app

async def main():
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http:
            while (await http.get("/v1/health/ready")).status_code != 200:
                await asyncio.sleep(0.05)
            body = {"suite": "r1@1", "groups": [{"id": "g", "gold": "7", "completions": ["<answer>7</answer>"]}]}
            print((await http.post("/v1/score", json=body)).json()["groups"][0]["totals"])
    print([name for name in ("sympy", "math_verify", "torch", "reward_service.worker.rewards") if name in sys.modules])

asyncio.run(main())
"""
    total, imported = run(python, code, tmp_path).splitlines()
    assert float(total.strip("[]")) == pytest.approx(0.2 * (2.0 + 0.5 - 0.018 - 0.017))
    assert imported == "[]"
