"""Every module has its place: in a layer, and in the rules that hold for all but a few named places."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

RULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
SOURCES = {"reward_proto": ROOT / "proto", "reward_service": ROOT, "grpo_client": ROOT}


def modules() -> set[str]:
    """Every module and package of the project, by name."""
    files = [(file, root) for package, root in SOURCES.items() for file in (root / package).rglob("*.py")]
    names = {".".join(file.relative_to(root).with_suffix("").parts) for file, root in files}
    return {name.removesuffix(".__init__") for name in names}


def named() -> set[str]:
    """What contracts of layers name: a module, or a folder with all that is in it."""
    return {
        f"{container}.{one.strip()}"
        for rule in RULES
        if rule["type"] == "layers"
        for container in rule["containers"]
        for layer in rule["layers"]
        for one in layer.split("|")
    }


def children(package: str) -> set[str]:
    """The modules and folders directly in a package."""
    return {name for name in modules() if name.rpartition(".")[0] == package}


def test_no_module_falls_outside_the_layers() -> None:
    places = named()
    outside = {
        name
        for name in modules() - set(SOURCES)
        if not any(name == place or name.startswith(f"{place}.") for place in places)
    }
    assert outside == set()
    assert places <= modules()


@pytest.mark.parametrize(
    ("rule", "package", "free"),
    [
        ("the serving process imports no reward and no verification library", "reward_service", "cli commands worker"),
        ("torch and MLX stay in their backends", "grpo_client", "backends"),
        ("torch and MLX stay in their backends", "grpo_client.backends", "torch mlx"),
        ("only the engines import math_verify and sympy", "reward_service.worker", "__main__ locked verify"),
    ],
)
def test_a_rule_holds_for_all_of_a_folder_but_what_is_named_here(rule: str, package: str, free: str) -> None:
    (sources,) = (set(one["source_modules"]) for one in RULES if one["name"] == rule)
    exempt = {f"{package}.{one}" for one in free.split()}
    assert children(package) - exempt <= sources
    assert exempt <= children(package)


def test_tests_stand_where_what_they_test_stands() -> None:
    wings = {path.name for path in (ROOT / "grpo_client").iterdir() if (path / "__init__.py").exists()}
    assert {path.name for path in (ROOT / "tests" / "client").iterdir() if has_tests(path)} <= wings


def has_tests(folder: Path) -> bool:
    return folder.is_dir() and any(folder.rglob("test_*.py"))
