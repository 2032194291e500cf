"""Who may import whom: a room imports what stands below it, and whatever is not listed fails."""

from __future__ import annotations

import sys
from functools import cache

import pytest

from tests.cases import each
from tests.programs import ended
from tests.tidy.tree import imports, modules

TIERS = {
    "engine": [
        "eosdb.migrations",
        "eosdb.errors",
        "eosdb.system",
        "eosdb.native",
        "eosdb.model",
        "eosdb.model.records",
        "eosdb.model.protocol",
        "eosdb.model.notices",
        "eosdb.events",
        "eosdb.store.file",
        "eosdb.store.wal",
        "eosdb.store.schema",
        "eosdb.store.writing",
        "eosdb.store",
        "eosdb.coordinator.due",
        "eosdb.log",
        "eosdb.log.reading",
        "eosdb.coordinator.transactions",
        "eosdb.coordinator.groups",
        "eosdb.coordinator",
        "eosdb.broker",
    ],
    "operating": ["eosdb.admin.timeline", "eosdb.admin", "eosdb.maintenance"],
    "clients": [
        "eosdb.client",
        "eosdb.client.consumer",
        "eosdb.client.producer",
        "eosdb.client.processor",
        "eosdb.database",
        "eosdb.aio",
        "eosdb.failpoints",
        "eosdb",
    ],
    "wire": ["eosdb.wire"],
    "testing": ["eosdb.testing"],
    "integrations": [
        f"eosdb.integrations.{name}"
        for name in (
            "tracing",
            "datasette",
            "exposition",
            "publishing",
            "arrow",
            "lakehouse",
            "relay",
            "moving",
            "ui",
            "django",
        )
    ],
    "commands": [
        "eosdb.spark_io.planning",
        "eosdb.spark_io.reading",
        "eosdb.spark_io.writing",
        "eosdb.spark_io",
        "eosdb.cli",
        "eosdb.cli.commands",
        "eosdb.__main__",
    ],
}
ROOMS = [row for tier in TIERS.values() for row in tier]
"""From the ground up. A name stands for itself and for what is inside it, unless that is listed, too.
The names of one row are one room."""
BUDGET = {
    "engine": 27_899,
    "operating": 6_549,
    "clients": 10_440,
    "wire": 5_904,
    "testing": 1_456,
    "integrations": 7_551,
    "commands": 10_289,
}
"""The lines of Python that a tier may have: 2 % more than at the last release, which lowers them again."""
DOORS = {
    "eosdb.database": {
        "eosdb.wire",
        *(f"eosdb.integrations.{name}" for name in ("arrow", "exposition", "publishing")),
    }
}
"""What a database offers of later tiers: imported when it is asked for."""

CORE = {
    f"eosdb.{room}"
    for room in ("events", "store", "log", "coordinator", "broker", "admin", "maintenance")
}
SQL = {"sqlite3", "sqlalchemy"}
STRANGERS: list[tuple[set[str], set[str]]] = [
    # A client speaks to a broker through a transport alone, and no broker knows a client.
    ({"eosdb.client"}, {*CORE, *SQL}),
    # Commands and Spark use what every program has; so does what tests use.
    ({"eosdb.cli"}, {"eosdb.store", "eosdb.log", "eosdb.coordinator", *SQL}),
    ({"eosdb.spark_io"}, {"eosdb.store", "eosdb.log", "eosdb.coordinator"}),
    ({"eosdb.testing"}, {"eosdb.store", "eosdb.log", "eosdb.coordinator", "eosdb.broker.broker"}),
    # Optional packages stay out of the core.
    (
        {"eosdb"},
        {
            "click",
            "rich",
            "pyspark",
            "pyarrow",
            "deltalake",
            "pyiceberg",
            "matplotlib",
            "fsspec",
            "confluent_kafka",
            "starlette",
            "uvicorn",
            "jinja2",
            "opentelemetry",
            "prometheus_client",
            "datasette",
            "pluggy",
            "django",
        },
    ),
    # Kafka's protocol, and what it is made of, are met in one room.
    (
        CORE | {"eosdb.client", "eosdb.database", "eosdb.cli", "eosdb.spark_io"},
        {"kafka", "aiokafka", "cramjam"},
    ),
    ({"eosdb.wire"}, SQL),
    # A revision is never changed, so it leans on nothing that may change.
    ({"eosdb.migrations"}, {"eosdb"}),
]
"""What stands below and is out of reach all the same."""
EXCEPT = {
    "eosdb": {
        "eosdb.cli",
        "eosdb.spark_io",
        "eosdb.integrations",
        "eosdb.model.records.arrow_types",  # Imported where pyarrow is needed anyway.
    },
    "eosdb.migrations": {"eosdb.migrations"},
}
TOGETHER = {("moving", "relay")}
"""The integrations that import another: a move is a relay that comes to an end."""

PURE = {
    "eosdb.admin.worries",
    "eosdb.log.producer_state",
    "eosdb.coordinator.groups.consumer_decisions",
    "eosdb.coordinator.groups.decisions",
    "eosdb.coordinator.groups.departures",
    "eosdb.coordinator.groups.migration",
    "eosdb.coordinator.transactions.decisions",
    "eosdb.coordinator.transactions.state",
    "eosdb.client.answers",
    "eosdb.client.consumer.assignors",
    "eosdb.client.processor.failure",
    "eosdb.model.assignors",
    "eosdb.model.protocol.linear_regex",
    "eosdb.model.records.partitioner",
    "eosdb.client.producer.state",
}


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


@cache
def floors() -> dict[str, int]:
    return {name: floor for floor, names in enumerate(ROOMS) for name in names.split()}


@cache
def floor_of(name: str) -> int | None:
    """The floor of the longest name in the list that is the module or holds it. The package itself
    is listed for its public names, and holds nothing."""
    listed = [room for room in floors() if name == room or (room != "eosdb" and within(name, room))]
    return floors()[max(listed, key=len)] if listed else None


def imported_modules(name: str) -> set[str]:
    return {imported for imported in imports(name) if imported in modules()}


@cache
def is_empty(name: str) -> bool:
    """Whether it is a package that only says what is in it."""
    path = modules()[name]
    return path.name == "__init__.py" and "import" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_keeps_within_its_budget(tier: str) -> None:
    rooms = {floors()[name] for row in TIERS[tier] for name in row.split()}
    lines = sum(
        path.read_text(encoding="utf-8").count("\n")
        for name, path in modules().items()
        if floor_of(name) in rooms
    )
    assert lines <= BUDGET[tier], f"{tier}: {lines} lines, the budget is {BUDGET[tier]}"


def test_a_module_imports_what_stands_below_it_or_in_its_room() -> None:
    homeless = [name for name in modules() if floor_of(name) is None and not is_empty(name)]
    assert not homeless, "in no room of the list"
    upwards = [
        f"{name} imports {imported}, which stands above it"
        for name in modules()
        if not is_empty(name)
        for imported in imported_modules(name)
        if not any(within(imported, door) for door in DOORS.get(name, ()))
        and (floor_of(imported) or 0) > (floor_of(name) or 0)
    ]
    assert not upwards


def test_no_integration_imports_another_except_where_it_is_said() -> None:
    def integration(name: str) -> str | None:
        parts = name.split(".")
        return parts[2] if parts[:2] == ["eosdb", "integrations"] and parts[2:] else None

    arrows = {
        (one, other)
        for name in modules()
        for imported in imports(name)
        if (one := integration(name)) and (other := integration(imported)) and one != other
    }
    assert arrows == TOGETHER


def test_every_name_in_the_list_is_there() -> None:
    gone = [room for room in floors() if not any(within(name, room) for name in modules())]
    assert not gone


def test_no_module_needs_itself() -> None:
    """Rows of the list keep rooms in order; this keeps modules of one room from going round in circles."""
    graph = {name: imported_modules(name) - {name} for name in modules()}
    while leaves := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    assert not graph, "in circles, or above one"


@each(("rooms", "strangers"), STRANGERS)
def test_a_room_keeps_away_from_strangers(rooms: set[str], strangers: set[str]) -> None:
    inside = {
        name
        for room in rooms
        for name in modules()
        if within(name, room) and not any(within(name, e) for e in EXCEPT.get(room, ()))
    }
    found = {
        f"{name} imports {imported}"
        for name in inside
        for imported in imports(name)
        for stranger in strangers
        if within(imported, stranger) and imported not in EXCEPT.get(stranger, ())
    }
    assert not found


@each("name", sorted(PURE))
def test_what_decides_touches_nothing(name: str) -> None:
    outside = {"eosdb.store", "random", "os", "threading", *SQL}
    assert not {i for i in imports(name) for banned in outside if within(i, banned)}


def test_only_the_clock_reads_the_time() -> None:
    readers = {n for n in modules() if any(within(i, "time") for i in imports(n))}
    assert readers == {"eosdb.model.clock"}
    readers = {n for n in modules() if any(within(i, "datetime") for i in imports(n))}
    assert readers == {"eosdb.model.clock"}


def test_sqlite3_is_named_only_where_sql_lives() -> None:
    rooms = [
        *(
            f"eosdb.{r}"
            for r in ("store", "log", "coordinator", "admin", "maintenance", "migrations")
        ),
        "eosdb.native.accelerator",  # It tries a connection of its own.
        # Only as the type of what they hand on.
        "eosdb.broker.core",
        "eosdb.broker.outbox",
    ]
    users = {n for n in modules() if any(within(i, "sqlite3") for i in imports(n))}
    assert not {name for name in users if not any(within(name, room) for room in rooms)}


@pytest.mark.process
@pytest.mark.real_start
def test_importing_eosdb_does_not_load_what_it_may_not_need() -> None:
    code = (
        "import sys, eosdb; "
        "print([m for m in ('alembic', 'sqlalchemy', 'click', 'rich', 'pyspark') if m in sys.modules])"
    )
    loaded = ended([sys.executable, "-c", code], check=True)
    assert loaded.stdout.strip() == "[]"
