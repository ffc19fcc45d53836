"""The real upstream functions, found by where their packages are installed.

`pip install --no-deps trl==1.16.0 verl==0.9.1 ms-swift==4.6.0` serves: trl imports as it is; of verl and ms-swift,
whose packages import ray and datasets at the top, the one file that holds the rewards is loaded by itself.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest


def rewards_file(package: str, path: str, *, reason: str) -> ModuleType:
    """The module in `path` of an installed package, without importing the package. Skips the test without it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(reason)
    file = Path(found.submodule_search_locations[0]) / path
    spec = importlib.util.spec_from_file_location(f"{package}_rewards", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _annotation_only(package):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _annotation_only(package: str) -> Iterator[None]:
    """ms-swift's rewards file imports one name from the rest of it, for annotations: a stand-in is enough."""
    if package != "swift":
        yield
        return
    names = ("swift", "swift.infer_engine")
    before = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = ModuleType(name)
    sys.modules["swift.infer_engine"].InferRequest = object  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
