"""What is easily got wrong stands in one place, and the others use it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.tidy.tree import imports, modules

PLACES = {
    # What others have named must not steer the terminal, nor forge a line.
    "click.echo": {"eosdb.cli.output", "eosdb.cli.main"},
    "print": set(),
    # What is nested too deeply is a RecursionError of Python's.
    "json.loads": {"eosdb.model.damage", "eosdb.events.encoding"},
    "json.load": set(),
    # What is read runs no code.
    "eval": set(),
    "exec": set(),
    "os.system": set(),
    "os.popen": set(),
    "marshal.loads": set(),
    # No other package is loaded because it is installed.
    "entry_points": set(),
    "metadata.entry_points": set(),
}
RUN_WHAT_THEY_READ = {"pickle", "cloudpickle", "dill", "shelve", "yaml"}


@cache
def callers() -> dict[str, set[str]]:
    """Who calls each of them."""
    found: dict[str, set[str]] = {call: set() for call in PLACES}
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                found.get(ast.unparse(node.func), set()).add(name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("call", PLACES)
def test_it_is_called_there_alone(call: str) -> None:
    assert callers()[call] <= PLACES[call], callers()[call] - PLACES[call]


def test_nothing_is_read_by_what_may_run_it() -> None:
    roots = {name: {imported.partition(".")[0] for imported in imports(name)} for name in modules()}
    assert {name for name in roots if roots[name] & RUN_WHAT_THEY_READ} == set()


PYTHONS = {"eosdb.model.threads", "eosdb.testing.scheduler"}
"""The seam, and what tests of programs run on."""


def test_whoever_starts_threads_says_when_there_is_none_to_be_had() -> None:
    text = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    assert {name for name in text if re.search(r"threading\.Thread[()]", text[name])} == PYTHONS
    pools = {name for name in text if "ThreadPoolExecutor(" in text[name]}
    assert all("threads.needed(" in text[name] for name in pools)


BEGINS = {
    "eosdb.admin.fleet": "a snapshot of each file; a temporary database",
    "eosdb.admin.summary": "a snapshot of a file that was not opened",
    "eosdb.maintenance.copies": "a snapshot of a file of another schema",
    "eosdb.maintenance.extract": "a new file; a file that is checked again under the lock",
    "eosdb.maintenance.replay": "a scratch file",
    "eosdb.maintenance.restore": "a copy that nobody else has",
}
"""Who begins transactions of SQLite's outside of the store, and on what."""


def test_sqlites_transactions_begin_in_the_store() -> None:
    """A COMMIT without its BEGIN is not looked for: it would fail."""
    begins = re.compile(r"""["'](?:BEGIN|SAVEPOINT)\b""")
    found = {n for n, path in modules().items() if begins.search(path.read_text(encoding="utf-8"))}
    assert {n for n in found if not n.startswith("eosdb.store.")} == BEGINS.keys()
