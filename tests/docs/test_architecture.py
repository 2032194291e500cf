"""The page about the architecture is true: rooms, files, calls. Events are folded as folds.py says."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import eosdb
from eosdb import Acl, ManualClock, Record, RecordBatch, TopicPartition
from eosdb.coordinator import projection
from eosdb.events.kinds import KINDS
from eosdb.model.requests import ConsumerGroupHeartbeat
from tests.docs import folds
from tests.tidy.test_layers import ROOMS, TIERS
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
TP = TopicPartition("orders", 0)
WRITES = re.compile(r'(?:INSERT(?: OR \w+)? INTO|UPDATE(?! SET)|DELETE FROM)\s+"?(\w+)')


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def table(title: str) -> list[tuple[str, str]]:
    """The first two columns of the section's table, without its head."""
    rows = [line.split("|")[1:3] for line in section(title).splitlines() if line.startswith("|")]
    return [(first.strip(), second.strip()) for first, second in rows[2:]]


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", re.sub(r"(?s)```.*?```", "", text))


def test_the_rooms_are_those_of_the_layer_test_in_its_order() -> None:
    def place(room: str) -> str:
        path = room.removeprefix("eosdb.") if room != "eosdb" else ""
        if path.split(".")[0] in ("migrations", "spark_io", "cli"):
            return path.replace(".", "/")
        where = "/".join(("eosdb", *filter(None, path.split("."))))
        return where if (ROOT / where).is_dir() else f"{where}.py"

    on_the_page = [in_backticks(first)[0] for first, _ in table("Rooms")]
    assert on_the_page == [place(names.split()[0]) for names in ROOMS]


def test_the_drawing_shows_the_tiers_of_the_layer_test() -> None:
    drawn = {
        tier.strip(): [room.strip() for room in rooms.split("·")]
        for tier, _, rooms in (line.partition("│") for line in section("Tiers").splitlines())
        if rooms
    }
    listed: dict[str, list[str]] = {}
    for tier, rows in reversed(TIERS.items()):
        names = [name for row in reversed(rows) for name in row.split()]
        rooms = [re.sub(r"^eosdb\.(integrations\.)?", "", name).split(".")[0] for name in names]
        listed[tier] = list(dict.fromkeys(r for r in rooms if r not in ("eosdb", "__main__")))
    assert drawn == listed


def test_every_file_that_is_named_is_there() -> None:
    named = {name.partition(":")[0] for name in in_backticks(PAGE) if ".py" in name}
    paths = (*ROOT.glob("*.py"), *ROOT.glob("[!.]*/**/*.py"))
    files = {path.as_posix() for path in paths}
    assert named
    assert not {name for name in named if not any(f.endswith(f"/{name}") for f in files)}


def test_each_event_is_folded_into_the_tables_that_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)

    def watched(kind: str, fold: Callable[..., None]) -> Callable[..., None]:
        def folded(unit: Any, event: Any, position: int) -> None:
            def see(statement: str) -> None:
                found[kind].update(WRITES.findall(statement))

            unit.connection.set_trace_callback(see)
            try:
                fold(unit, event, position)
            finally:
                unit.connection.set_trace_callback(None)

        return folded

    for kind, projections in projection._FOLDS.items():
        name = kind.__name__
        monkeypatch.setitem(
            projection._FOLDS, kind, tuple(watched(name, fold) for fold in projections)
        )
    clock = ManualClock(1_000_000)
    config = eosdb.BrokerConfig(history_retention_ms=-1)
    with eosdb.connect(tmp_path / "all.db", clock=clock, config=config) as db:
        for _ in everything_that_can_happen(db, clock):
            clock.advance(1_000)
        db.backup(tmp_path / "copy.db")
    with eosdb.connect(tmp_path / "copy.db", clock=clock, config=config) as copy:
        copy.admin.create_topic("of_the_new_life")
        copy.admin.create_partitions("of_the_new_life", 2)
    listed = {event: set(tables.split()) for event, tables in folds.TABLES.items()}
    assert {kind.__name__ for kind in KINDS.values()} == set(listed)
    assert {e: found[e] for e in listed if found[e] != listed[e]} == {}


def everything_that_can_happen(db: eosdb.Database, clock: ManualClock) -> Iterator[object]:
    """One of each kind of event at least."""
    yield db.admin.create_topic("orders", config={"cleanup.policy": "compact"})
    yield db.admin.create_partitions("orders", 2)
    yield db.admin.alter_topic_config("orders", {"delete.retention.ms": 0})
    yield db.admin.create_view("typed", "orders", {"amount": "INTEGER"})
    yield db.admin.drop_view("typed")
    yield db.append_once("sink", 1, {TP: [Record(b"k", b"sink")]}, held=["a file"])
    with db.begin() as tx:
        yield tx.publish("orders", b"v", key=b"k", partition=0, idempotency_key="once")
    consumer = db.consumer("billing", auto_offset_reset="earliest")
    consumer.subscribe(["orders"])
    yield consumer.poll()
    yield consumer.commit()
    with db.producer(transactional_id="app") as producer:
        producer.init_transactions()
        for is_committed in (True, False):
            producer.begin_transaction()
            producer.send("orders", b"x" * 70_000, key=b"k", partition=0)
            producer.send("orders", b"scheduled", key=b"k", deliver_at=clock.time_ms() + 1)
            producer.send_offsets_to_transaction(consumer.position_offsets(), "billing")
            if is_committed:
                yield producer.commit_transaction()
            else:
                yield producer.abort_transaction()
    consumer.close()
    yield db.broker.append(TP, RecordBatch([Record(b"gone", None)]))
    yield db.take_snapshot()
    yield db.broker.append(TP, RecordBatch([Record(b"k", b"x" * 70_000)]))
    yield db.broker.append(TP, RecordBatch([Record(b"k", b"x" * 70_000)]))
    yield db.housekeeping()
    yield db.admin.alter_topic_config("orders", {"cleanup.policy": "delete"})
    yield db.broker.delete_records(TP, 1)
    acl = Acl("User:ANONYMOUS", "all", "cluster", "kafka-cluster", "literal", "allow")
    yield db.admin.create_acls([acl])
    yield db.admin.delete_acls(lambda _: True)
    yield db.admin.set_password("alice", "secret")
    yield db.admin.remove_user("alice")
    yield db.broker.offset_delete("billing", [TP])
    first = ConsumerGroupHeartbeat(
        "shipping",
        member_id="m",
        rebalance_timeout_ms=1,
        subscribed_topic_names=["orders"],
        topic_partitions={},
    )
    yield db.broker.ask(first)
    config: dict[str, object | None] = {"consumer.session.timeout.ms": 50_000}
    yield db.admin.alter_group_config("shipping", config)
    yield db.admin.alter_group_config("shipping", dict.fromkeys(config))
    clock.advance(30 * 24 * 60 * 60 * 1_000)
    yield db.housekeeping()
    yield db.housekeeping()
    yield db.admin.delete_topic("orders")


# -- the stack -----------------------------------------------------------------------------------


def calls(request: Callable[[], object], last: str) -> list[str]:
    """eosdb's calls on the stack when SQLite is asked, or a row is left to wait, from within `last`."""
    deepest: list[str] = []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        asks = event == "c_call" and getattr(argument, "__name__", "").startswith("execute")
        if not asks and (event != "call" or frame.f_code.co_qualname != "Unit.save"):
            return
        names: list[str] = []
        at: FrameType | None = frame
        while at is not None:
            module = at.f_globals.get("__name__", "")
            # From 3.12 on Python has no frames for comprehensions.
            if module.startswith("eosdb.") and not at.f_code.co_name.endswith("comp>"):
                names.insert(0, f"{module.removeprefix('eosdb.')}: {at.f_code.co_qualname}")
            at = at.f_back
        if any(name.endswith(last) for name in names) and len(names) > len(deepest):
            deepest[:] = names

    sys.setprofile(look)
    try:
        request()
    finally:
        sys.setprofile(None)
    assert deepest
    return deepest


def on_the_page(name: str) -> list[str]:
    block = PAGE.split(f"<!-- frames: {name} -->\n```\n", 1)[1].split("```", 1)[0]
    return block.splitlines()


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[eosdb.Database]:
    with eosdb.connect(tmp_path / "orders.db") as db:
        db.admin.create_topic("orders")
        db.broker.append(TP, RecordBatch([Record(b"k", b"v")]))
        yield db


def test_the_calls_of_poll(orders: eosdb.Database) -> None:
    with orders.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 0)
        assert calls(consumer.poll, "log.reading.block: read_whole") == on_the_page("poll")


def test_the_calls_of_a_small_transaction(orders: eosdb.Database) -> None:
    producer = orders.producer(transactional_id="x")
    producer.init_transactions()

    def transaction() -> None:
        with producer.transaction():
            producer.send("orders", b"v")

    transaction()
    assert calls(transaction, "coordinator.projection: apply") == on_the_page("commit")


def test_the_calls_of_a_heartbeat(orders: eosdb.Database) -> None:
    joined = orders.broker.join_group("g", protocols=[("range", b"")])
    member = (joined.generation_id, joined.member_id)
    orders.broker.sync_group("g", *member, assignments={})
    assert calls(
        lambda: orders.broker.heartbeat("g", *member), "groups.rows: renew_session"
    ) == on_the_page("heartbeat")


def test_the_calls_of_produce(orders: eosdb.Database) -> None:
    batch = {TP: RecordBatch([Record(b"k", b"v")])}
    assert calls(
        lambda: orders.broker.produce(batch), "coordinator.projection: apply"
    ) == on_the_page("produce")
