"""The source tree as the tidy tests look at it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "eosdb": ROOT / "eosdb",
    "eosdb.cli": ROOT / "cli",
    "eosdb.migrations": ROOT / "migrations",
    "eosdb.spark_io": ROOT / "spark_io",
}
LINKS = {"cli", "migrations", "spark_io"}


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by its installed name."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if package == "eosdb" and parts[0] in LINKS:
                continue
            if parts[-1] == "__init__":
                parts = parts[:-1]
            found[".".join((package, *parts))] = path
    return found


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


@cache
def imports(name: str) -> frozenset[str]:
    """What a module imports when it runs, by full name; imports for type checkers only are left out."""
    path = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in _running(parsed(name)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *([base] if base else [])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names if names <= modules().keys() else {base, *names}
    return frozenset(found)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
                waiting.append(node)
                yield node
