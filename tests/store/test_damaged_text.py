"""A text that is not as eosdb writes it, in whichever column it stands, is an error of eosdb's: no JSON, no
base64, nested so deeply that Python cannot read it, no UTF-8."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import Consumer, OffsetAndMetadata, TopicPartition
from eosdb.admin.tools import Tools
from eosdb.errors import EosdbError

pytestmark = pytest.mark.simulation

TP = TopicPartition("orders", 0)
JUNK = {
    "nested": b"[" * 100_000,
    "no JSON, no base64": b"!",
    "another JSON": b"[[1]]",
    "no UTF-8": b'["\xff"]',
}
TOKEN = eosdb.TransactionToken("done", 0, 0)


def consume(db: eosdb.Database) -> None:
    with contextlib.closing(db.consumer("g", auto_offset_reset="earliest")) as consumer:
        consumer.subscribe("orders")
        consumer.poll()


def join(db: eosdb.Database) -> Consumer[Any, Any]:
    consumer = db.consumer("h")
    consumer.subscribe("orders")
    consumer.poll()
    return consumer


ASKED: dict[str, Callable[[eosdb.Database], object]] = {
    "topics": lambda db: [
        (db.admin.describe_topic(name), Tools(db.admin).topic_config(name))
        for name in db.admin.list_topics()
    ],
    "metadata": lambda db: db.broker.topic_metadata(),
    "records": lambda db: db.admin.scan(TP, 0, 100),
    "poll": consume,
    "groups": lambda db: [db.admin.describe_group_offsets("g"), *db.broker.list_groups()],
    "join": lambda db: join(db).close(),
    "transactions": lambda db: db.broker.list_transactions(),
    "transaction": lambda db: db.broker.describe_transactions(["done", "open"]),
    "outcome": lambda db: db.outcome(TOKEN),
    "producers": lambda db: db.broker.describe_producers(TP),
    "dump": lambda db: list(db.admin.dump_log(TP)),
    "views": lambda db: (db.admin.list_views(), db.columns("typed")),
    "why": lambda db: db.admin.diagnose(TP, "g"),
    "users": lambda db: Tools(db.admin).list_credentials(),
    "acls": lambda db: db.admin.list_acls(),
    "snapshots": lambda db: db.admin.list_snapshots(),
    "overview": lambda db: db.admin.overview(),
    "timeline": lambda db: db.admin.timeline("orders"),
    "cut": lambda db: db.admin.consistent_cut(),
    "journal": lambda db: list(db.admin.journal()),
    "info": lambda db: db.info(),
    "verify": lambda db: db.verify(),
    "once": lambda db: db.append_once("sink", 1, {TP: [eosdb.Record(value=b"1")]}, held=("a",)),
    "produce": lambda db: db.producer().send("orders", "more").result(),
    "begin": lambda db: db.producer(transactional_id="done").init_transactions(),
    "housekeeping": lambda db: db.housekeeping(),
    "rebuild": lambda db: db.rebuild(),
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "t.db"
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("orders", config={"retention.ms": -1})
        db.admin.create_view("typed", "orders", {"a": "INTEGER"})
        db.admin.set_password("alice", "secret")
        kinds = ("topic", "group", "transactional_id", "cluster")
        db.admin.create_acls(eosdb.Acl("User:*", "all", kind, "*") for kind in kinds)
        producer = db.producer(transactional_id="done")
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", '{"a": 1}', key="k", headers=[("h", b"v")])
            producer.send_offsets_to_transaction({TP: OffsetAndMetadata(0, "note")}, "g")
        db.producer(transactional_id="open").init_transactions()
        db.append_once("sink", 1, {TP: [eosdb.Record(value=b"1")]}, held=("a",))
        db.take_snapshot()
        join(db)  # and does not leave
    return path


BASE64 = {"file_id", "salt", "stored_key", "server_key"}


def columns(path: Path) -> list[tuple[str, str]]:
    """The columns of eosdb's tables that hold JSON or base64."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table'"
        ).fetchall()
        return [
            (table, column)
            for (table,) in tables
            for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
            if column in BASE64
            or connection.execute(
                f"SELECT 1 FROM {table} WHERE typeof({column}) = 'text' "
                f"AND substr({column}, 1, 1) IN ('[', '{{')"
            ).fetchone()
        ]


@pytest.mark.parametrize("junk", JUNK)
def test_whatever_is_asked_then_raises_nothing_but_errors_of_eosdbs(
    tmp_path: Path, original: Path, junk: str
) -> None:
    damaged = columns(original)
    assert {("groups", "members"), ("topics", "config"), ("eosdb_file", "file_id")} <= set(damaged)
    refused, foreign = 0, list[str]()
    for table, column in damaged:
        path = tmp_path / "t.db"
        shutil.copy(original, path)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for (trigger,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
            ).fetchall():
                connection.execute(f'DROP TRIGGER "{trigger}"')
            with contextlib.suppress(sqlite3.IntegrityError):  # No two rows may be the same.
                connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT)", (JUNK[junk],))
        with contextlib.suppress(EosdbError), eosdb.connect(path, durability="off") as db:
            for name, ask in ASKED.items():
                try:
                    ask(db)
                except EosdbError as error:
                    refused += 1
                    if (
                        junk == "no UTF-8" and type(error) is eosdb.StorageError
                    ):  # The disk is well.
                        foreign.append(f"{table}.{column}: {name}: {error!r:.100}")
                except Exception as error:
                    foreign.append(f"{table}.{column}: {name}: {error!r:.100}")
        for file in tmp_path.glob("t.db*"):  # An error that is still in a cycle keeps a log there.
            file.unlink()
    assert not foreign, "\n".join(foreign)
    assert refused
