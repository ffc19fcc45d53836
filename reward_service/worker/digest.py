"""The digest of a reward: a sha256 over the source that determines its numbers.

From the reward's function, follow every name to the top-level definition it stands for (functions, classes, constants
such as regexes and tables), through imports within the same package. Positions, comments, docstrings, annotations and
the reward's own decorator are dropped. What comes from other packages counts by name here and by version in the lock.

Not followed: the calling convention (`reward_service.worker.types` and `.catalogue`), and names reached by `getattr`
or a string: a reward must not do that.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

_CALLING_CONVENTION = frozenset({"reward_service.worker.types", "reward_service.worker.catalogue"})
_IGNORED_FIELDS = frozenset({"ctx", "annotation", "returns", "type_comment", "type_params", "kind"})

Closure = Mapping[str, str]
"""Definition (`module:name`) → sha256 of its normalised source."""


@dataclass
class _Module:
    """One source file: what its top level binds, imports, and does besides."""

    name: str
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    loose: list[ast.stmt] = field(default_factory=list)


def closure_of(module: str, name: str) -> Closure:
    """Every definition reachable from `module.name`, by name, with the hash of each.

    Raises ValueError for a name that the module does not define at its top level.
    """
    root_package = module.partition(".")[0]
    found: dict[str, str] = {}
    waiting = [(module, name)]
    while waiting:
        place = waiting.pop()
        key = f"{place[0]}:{place[1]}"
        if key not in found:
            definition = _definition(*place, root_package=root_package, bare=place == (module, name))
            found |= definition.foreign
            found[key] = definition.content
            waiting += definition.references
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Definition:
    """One definition: the hash of its source, the foreign names that it mentions, and those of our own."""

    content: str
    foreign: Mapping[str, str]
    references: Sequence[tuple[str, str]]


@lru_cache(maxsize=4096)
def _definition(module: str, name: str, *, root_package: str, bare: bool) -> _Definition:
    statements = _statements(module, name)
    if bare:
        statements = [_without_decorators(statement) for statement in statements]
    return _Definition(
        content=_sha256(json.dumps([list(_flatten(statement)) for statement in statements])),
        foreign={f"{module}:{local}": _sha256(target) for local, target in _foreign(module, statements)},
        references=[
            one for statement in statements for one in _references(module, statement, root_package=root_package)
        ],
    )


def digest_of(
    reward_id: str, *, closure: Closure, params: Mapping[str, Any], uses: Mapping[str, str], lock: Mapping[str, str]
) -> str:
    """`sha256:…` of a reward. A definition counts by its name and content, not by the file that holds it."""
    definitions = sorted((key.rpartition(":")[2], content) for key, content in closure.items())
    content = {"id": reward_id, "definitions": definitions, "params": params, "uses": uses, "lock": dict(lock)}
    return "sha256:" + _sha256(json.dumps(content, sort_keys=True))


@lru_cache(maxsize=256)
def _module(name: str) -> _Module:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ValueError(f"no source for module {name}: its rewards cannot be given a digest")
    module = _Module(name)
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                module.imports[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
        elif isinstance(statement, ast.ImportFrom):
            source = importlib.util.resolve_name("." * statement.level + (statement.module or ""), package)
            for alias in statement.names:
                module.imports[alias.asname or alias.name] = (source, alias.name)
        else:
            bound = set(_bound_names(statement))
            for name_bound in bound:
                module.definitions.setdefault(name_bound, []).append(statement)
            if not bound:
                module.loose.append(statement)
    return module


def _statements(module_name: str, name: str) -> list[ast.stmt]:
    """The statements that make `name` what it is: its definition, and loose ones that mention it (`TABLE["x"] = 1`)."""
    module = _module(module_name)
    if name not in module.definitions:
        raise ValueError(f"{module_name} has no top-level definition {name!r}: define rewards at the top of a module")
    touching = [statement for statement in module.loose if name in _loaded_names(statement)]
    return module.definitions[name] + touching


def _references(module_name: str, statement: ast.stmt, *, root_package: str) -> Iterator[tuple[str, str]]:
    """The definitions of our own that a statement mentions, as (module, name)."""
    module = _module(module_name)
    for node in _walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            source, name = module.imports.get(node.value.id, ("", None))
            target = source if name is None else f"{source}.{name}"
            if _is_ours(target, root_package) and _is_module(target):
                yield _origin(target, node.attr, root_package)
        elif isinstance(node, ast.Name):
            if node.id in module.definitions:
                yield module_name, node.id
            elif node.id in module.imports:
                source, name = module.imports[node.id]
                if name is not None and _is_ours(source, root_package) and not _is_module(f"{source}.{name}"):
                    yield _origin(source, name, root_package)


def _foreign(module_name: str, statements: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The names of other packages that statements mention, and what each stands for: `re` for `import regex as re`."""
    imports = _module(module_name).imports
    for local in {name for statement in statements for name in _loaded_names(statement)} & imports.keys():
        source, name = imports[local]
        if source.partition(".")[0] not in {module_name.partition(".")[0], "reward_service"}:
            yield local, source if name is None else f"{source}.{name}"


def _origin(module_name: str, name: str, root_package: str) -> tuple[str, str]:
    """Where a name is defined, through re-exports (`from .parser import parse` in an `__init__`)."""
    module = _module(module_name)
    if name not in module.definitions and name in module.imports:
        source, original = module.imports[name]
        if original is not None and _is_ours(source, root_package):
            return _origin(source, original, root_package)
    return module_name, name


@lru_cache(maxsize=1024)
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _is_ours(module_name: str, root_package: str) -> bool:
    return module_name.partition(".")[0] in {root_package, "reward_service"} and module_name not in _CALLING_CONVENTION


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _loaded_names(statement: ast.stmt) -> set[str]:
    return {node.id for node in _walk(statement) if isinstance(node, ast.Name)}


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for _, value in _fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """The fields that can move a number. Empty ones are left out: a newer Python's new field changes nothing."""
    for name, value in ast.iter_fields(node):
        if name not in _IGNORED_FIELDS and value is not None and value != []:
            is_body = name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield name, [part for part in value if not _is_docstring(part)] if is_body else value


def _without_decorators(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        bare = copy.copy(statement)
        bare.decorator_list = []
        return bare
    return statement


def _flatten(node: ast.AST) -> Iterator[Any]:
    """A node as nested lists of class name, field names and constants; the same text in every Python version."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        node = ast.Assign(targets=[node.target], value=node.value)
    yield type(node).__name__
    for name, value in _fields(node):
        yield name
        parts = value if isinstance(value, list) else [value]
        yield [
            list(_flatten(part)) if isinstance(part, ast.AST) else f"{type(part).__name__}:{part!r}" for part in parts
        ]


def _is_docstring(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
