"""Who may import whom. Each row of the table says what the modules of a room must not import."""

from __future__ import annotations

import sys

import pytest

from tests.tidy.tree import imports, modules

VOCABULARY = {
    "eosdb.model", "eosdb.errors", "eosdb.clock", "eosdb.config", "eosdb.events",
    "eosdb.failpoints", "eosdb.validation", "eosdb.consumer_protocol", "eosdb.reports",
    "eosdb.progress", "eosdb.record_columns", "eosdb.decoding", "eosdb.damage",
}  # fmt: skip
PURE = {
    "eosdb.log.producer_state",
    "eosdb.coordinator.group",
    "eosdb.coordinator.transaction",
    "eosdb.coordinator.transaction_answers",
    "eosdb.coordinator.transaction_end",
    "eosdb.coordinator.transaction_state",
    "eosdb.client.answers",
    "eosdb.client.assignment",
    "eosdb.client.assignors",
    "eosdb.client.cooperative_assignor",
    "eosdb.client.failure",
    "eosdb.client.sticky_balance",
    "eosdb.client.partitioner",
    "eosdb.client.progress",
    "eosdb.client.settling",
    "eosdb.client.transaction_manager",
    "eosdb.log.taken_back",
    "eosdb.testing.simulation.ledger",
}
SQL = {"sqlite3", "sqlalchemy"}
ROOMS = {"store", "log", "coordinator", "client", "broker", "database", "admin"}
ABOVE_LOG = {
    "coordinator", "client", "broker", "database", "admin", "produce", "log_requests", "group_broker",
    "housekeeping", "waiting",
}  # fmt: skip

MAY_NOT: list[tuple[str, set[str]]] = [
    ("eosdb.cli", {"eosdb.store", "eosdb.log", "eosdb.coordinator", "eosdb.spark_io", *SQL}),
    ("eosdb.spark_io", {"eosdb.store", "eosdb.log", "eosdb.coordinator", "eosdb.cli"}),
    ("eosdb.migrations", {"eosdb"}),
    ("eosdb.testing", {f"eosdb.{r}" for r in ("store", "log", "coordinator", "broker", "cli")}),
    ("eosdb.testing.simulation.checker", {"eosdb.client", "eosdb.database"}),
    ("eosdb.store", {f"eosdb.{room}" for room in (ABOVE_LOG | {"log"})}),
    ("eosdb.log", {f"eosdb.{room}" for room in ABOVE_LOG}),
    ("eosdb.coordinator", {f"eosdb.{r}" for r in ("client", "broker", "database", "admin")}),
    ("eosdb.client", {f"eosdb.{r}" for r in ROOMS - {"client"}} | SQL),
    ("eosdb.broker", {"eosdb.client", "eosdb.database"}),
    ("eosdb.admin", {"eosdb.client", "eosdb.database"}),
    *((name, {f"eosdb.{room}" for room in ROOMS} | SQL) for name in sorted(VOCABULARY)),
    *((name, {"eosdb.store", "random", "os", "threading", *SQL}) for name in sorted(PURE)),
]


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


@pytest.mark.parametrize(("room", "forbidden"), MAY_NOT, ids=[room for room, _ in MAY_NOT])
def test_a_room_does_not_import_upward_or_sideways(room: str, forbidden: set[str]) -> None:
    inside = [name for name in modules() if within(name, room)]
    assert inside, f"the table names {room}, which is gone"
    found = {
        f"{name} imports {imported}"
        for name in inside
        for imported in imports(name)
        for banned in forbidden
        if within(imported, banned) and not within(imported, room)
    }
    assert not found


@pytest.mark.parametrize("banned", ["eosdb.cli", "eosdb.spark_io", "click", "rich", "pyspark"])
def test_the_core_knows_nothing_of_its_users(banned: str) -> None:
    core = [
        name
        for name in modules()
        if not any(within(name, user) for user in ("eosdb.cli", "eosdb.spark_io"))
    ]
    assert not {n for n in core for imported in imports(n) if within(imported, banned)}


def test_only_the_clock_reads_the_time() -> None:
    readers = {n for n in modules() if any(within(i, "time") for i in imports(n))}
    assert readers == {"eosdb.clock"}
    readers = {n for n in modules() if any(within(i, "datetime") for i in imports(n))}
    assert readers == {"eosdb.clock"}


def test_sqlite3_is_named_only_where_sql_lives() -> None:
    # The sceptic looks at the file with its own eyes.
    sceptic = "eosdb.testing.simulation.checker"
    rooms = ("eosdb.store", "eosdb.log", "eosdb.coordinator", "eosdb.migrations", sceptic)
    users = {n for n in modules() if any(within(i, "sqlite3") for i in imports(n))}
    assert not {name for name in users if not any(within(name, room) for room in rooms)}


def test_importing_eosdb_does_not_load_what_it_may_not_need() -> None:
    import subprocess

    code = (
        "import sys, eosdb; "
        "print([m for m in ('alembic', 'sqlalchemy', 'click', 'rich', 'pyspark') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"
