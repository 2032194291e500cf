"""`eosdb.join` on connections that do something else than they are told: an authorizer that ignores,
triggers of the program's, settings. What is acknowledged is there whole; what is refused left nothing."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.broker.outbox import JoinedTransaction
from eosdb.coordinator.projection import apply
from eosdb.errors import EosdbError, HandlerFailedError, InvalidRequestError
from eosdb.store.writing.joined_unit import joined
from tests.conftest import START_MS

TP = TopicPartition("orders", 0)
Rows = dict[str, list[object]]
CONFIG = eosdb.BrokerConfig(auto_create_topics_enable=True)
CALLS: list[Callable[[JoinedTransaction], object]] = [
    lambda tx: tx.publish("orders", "x", idempotency_key="k"),
    lambda tx: tx.publish("orders", "y", headers=[("h", b"")]),
    lambda tx: tx.publish("made", "z"),
    lambda tx: tx.commit_offsets({TP: OffsetAndMetadata(1)}, "standing"),
    lambda tx: tx.commit_offsets({TP: OffsetAndMetadata(1)}, "new"),
]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of the program's own, in a transaction of its own."""
    path = tmp_path / "app.db"
    with eosdb.connect(path, clock=eosdb.ManualClock(START_MS), durability="off") as db:
        db.admin.create_topic("orders")
        db.broker.offset_commit("standing", {TP: OffsetAndMetadata(0)})
        with db.producer() as producer:
            producer.send("orders", "first")
    # Without its cache: what was prepared while it was ignored stays so, and not even as an INSERT.
    own = sqlite3.connect(path, isolation_level=None, cached_statements=0)
    with contextlib.closing(own):
        own.execute("CREATE TABLE shop (what TEXT)")
        own.execute("BEGIN IMMEDIATE")
        yield own


def rows(own: sqlite3.Connection) -> Rows:
    own.set_authorizer(None)
    names = own.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: sorted(own.execute(f'SELECT * FROM main."{name}"').fetchall(), key=repr)
        for (name,) in names
    }


def called(own: sqlite3.Connection, call: Callable[[JoinedTransaction], object]) -> str | None:
    """The error of the call, if it was refused."""
    tx = eosdb.join(own, config=CONFIG, clock=eosdb.ManualClock(START_MS))
    try:
        call(tx)
    except EosdbError as error:
        assert error.outcome == "not written"
        return str(error)
    return None


Asked = tuple[int, str | None, str | None]


def authorizer(
    wanted: Callable[[Asked], bool], answer: int, seen: set[Asked] | None = None
) -> Callable[..., int]:
    def authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
        if seen is not None:
            seen.add((action, first, second))
        return answer if wanted((action, first, second)) else sqlite3.SQLITE_OK

    return authorize


@pytest.mark.slow
@pytest.mark.parametrize("answer", [sqlite3.SQLITE_IGNORE, sqlite3.SQLITE_DENY])
def test_whatever_an_authorizer_ignores_or_denies_nothing_is_half_done(
    own: sqlite3.Connection, answer: int
) -> None:
    refused = 0
    for call in CALLS:
        before, seen = rows(own), set[Asked]()
        own.set_authorizer(authorizer(lambda _: False, answer, seen))
        own.execute("SAVEPOINT mine")
        assert called(own, call) is None
        whole = rows(own)
        own.execute("ROLLBACK TO mine")
        places: list[Asked] = sorted(seen, key=str)
        places += [(action, None, None) for action in {action for action, *_ in seen}]
        for place in places:

            def wanted(asked: Asked, place: Asked = place) -> bool:
                return all(b in (None, a) for a, b in zip(asked, place, strict=True))

            own.set_authorizer(authorizer(wanted, answer))
            error = called(own, call)
            assert rows(own) == (whole if error is None else before), place
            refused += error is not None
            own.execute("ROLLBACK TO mine")
        own.execute("RELEASE mine")
    assert refused > 100


@pytest.mark.parametrize("forms", ["INSERT", "INSERT OR REPLACE", "UPSERT", "UPDATE"])
def test_a_write_of_any_form_that_an_authorizer_ignores_is_noticed(
    own: sqlite3.Connection, forms: str
) -> None:
    """Also of those forms that no call of today uses here."""
    values = "INTO counters (name, value) VALUES (?, ?)"
    statement, parameters = {
        "UPSERT": (
            f"INSERT {values} ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            ("a", 1),
        ),
        "UPDATE": ("UPDATE counters SET value = ? WHERE name = ?", (77, "topic_id")),
    }.get(forms, (f"{forms} {values}", ("a", 1)))
    ignored = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE}
    with joined(own, apply) as unit:
        own.set_authorizer(authorizer(lambda asked: asked[0] in ignored, sqlite3.SQLITE_IGNORE))
        with pytest.raises(InvalidRequestError, match="ignores or changes a statement"):
            unit.execute(statement, parameters)
        own.set_authorizer(None)
        unit.execute(statement, parameters)


@pytest.mark.parametrize(
    ("action", "first"),
    [
        (sqlite3.SQLITE_TRANSACTION, None),
        (sqlite3.SQLITE_TRANSACTION, "BEGIN"),
        *((sqlite3.SQLITE_SAVEPOINT, first) for first in (None, "BEGIN", "ROLLBACK", "RELEASE")),
    ],
)
def test_a_transaction_or_savepoint_that_is_ignored_is_noticed(
    own: sqlite3.Connection, action: int, first: str | None
) -> None:
    """Else the release of the savepoint would commit, and what is refused would stay."""
    own.execute("ROLLBACK")
    own.isolation_level = "DEFERRED"
    before = rows(own)
    own.set_authorizer(
        authorizer(
            lambda asked: asked[0] == action and first in (None, asked[1]), sqlite3.SQLITE_IGNORE
        )
    )
    assert called(own, CALLS[0]) is not None or own.in_transaction
    own.set_authorizer(None)
    own.rollback()
    assert rows(own) == before


@pytest.mark.parametrize(
    "trigger",
    [
        "BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END",
        "BEFORE INSERT ON eosdb_journal BEGIN SELECT RAISE(IGNORE); END",
        "BEFORE UPDATE ON partitions BEGIN SELECT RAISE(IGNORE); END",
        "BEFORE UPDATE ON group_offsets BEGIN SELECT RAISE(IGNORE); END",
        "AFTER UPDATE ON partitions BEGIN UPDATE partitions SET size_bytes = 0; END",
        "AFTER UPDATE ON group_offsets BEGIN UPDATE group_offsets SET committed_offset = 0; END",
    ],
)
def test_triggers_of_the_programs_on_eosdbs_tables_are_noticed(
    own: sqlite3.Connection, trigger: str
) -> None:
    own.execute(f"CREATE TRIGGER mine {trigger}")
    before = rows(own)
    errors = [called(own, call) for call in (CALLS[0], CALLS[3])]
    assert any(error is not None and "trigger" in error for error in errors)
    if all(errors):
        assert rows(own) == before


SETTINGS = {
    "PRAGMA query_only = ON": False,
    "PRAGMA foreign_keys = OFF": True,
    "PRAGMA foreign_keys = ON": True,
    "PRAGMA recursive_triggers = ON": True,
    "PRAGMA count_changes = ON": True,
    "PRAGMA reverse_unordered_selects = ON": True,
    "PRAGMA ignore_check_constraints = ON": True,
    "PRAGMA case_sensitive_like = ON": True,
    "PRAGMA full_column_names = ON": True,
    "PRAGMA short_column_names = OFF": True,
    "PRAGMA trusted_schema = OFF": True,
    "PRAGMA automatic_index = OFF": True,
    "PRAGMA cell_size_check = ON": True,
    "PRAGMA defer_foreign_keys = ON": True,
    "PRAGMA writable_schema = ON": True,
    "ATTACH ':memory:' AS records": True,
    "CREATE TEMP TABLE journal (x)": False,
    "CREATE TEMP VIEW partitions AS SELECT 1": False,
    "CREATE TEMP TABLE eosdb_mine (x)": False,
}
"""What a program may set, and whether a record can be published nevertheless."""


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_program_has_set_changes_nothing_or_is_refused(
    own: sqlite3.Connection, setting: str
) -> None:
    before = rows(own)
    own.execute("SAVEPOINT mine")
    for call in CALLS:
        assert called(own, call) is None
    whole = rows(own)
    own.execute("ROLLBACK TO mine")
    own.execute("ROLLBACK")  # Some take effect outside of transactions alone.
    own.execute(setting)
    own.execute("BEGIN")
    errors = [called(own, call) for call in CALLS]
    own.execute("PRAGMA full_column_names = OFF")
    assert {error is None for error in errors} == {SETTINGS[setting]}, errors
    found = {name: rows(own)[name] for name in whole}
    assert found == (whole if SETTINGS[setting] else before)


@pytest.mark.parametrize("level", [None, "IMMEDIATE", "EXCLUSIVE", "DEFERRED"])
def test_isolation_levels_and_factories_make_no_difference(
    own: sqlite3.Connection, level: Literal["IMMEDIATE", "EXCLUSIVE", "DEFERRED"] | None
) -> None:
    own.execute("ROLLBACK")
    own.isolation_level, own.row_factory, own.text_factory = level, sqlite3.Row, bytes
    if level is None:
        own.execute("BEGIN")
    assert [called(own, call) for call in CALLS] == [None] * len(CALLS)
    assert own.in_transaction
    own.rollback()
    assert called(own, CALLS[1]) is None or level is None


def replaced(own: sqlite3.Connection, name: str) -> None:
    for arguments in (-1, 1, 2):
        own.create_function(name, arguments, lambda *_: None)


@pytest.mark.parametrize(
    "name", ["count", "ifnull", "max", "length", "json_valid", "typeof", "like"]
)
def test_a_function_under_the_name_of_sqlites_is_refused_or_not_called(
    own: sqlite3.Connection, name: str
) -> None:
    before = rows(own)
    own.execute("SAVEPOINT mine")
    assert called(own, CALLS[0]) is None
    whole = rows(own)
    own.execute("ROLLBACK TO mine")
    replaced(own, name)
    error = called(own, CALLS[0])
    assert rows(own) == (whole if error is None else before)


# -- names that are eosdb's --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eosdb_mine", "EOSDB_Mine"])
def test_a_table_that_is_given_a_reserved_name_is_noticed_before_the_commit(
    own: sqlite3.Connection, name: str
) -> None:
    """SQLite tells an authorizer of the renaming, and not of the new name."""
    own.execute(f"ALTER TABLE shop RENAME TO {name}")
    assert f"{name}: names that begin with eosdb_ are reserved" in str(called(own, CALLS[0]))


@pytest.mark.parametrize("name", ["eosdb_mine", "EOSDB_Mine"])
def test_a_block_that_gives_a_table_a_reserved_name_is_undone(tmp_path: Path, name: str) -> None:
    with eosdb.connect(tmp_path / "app.db", durability="off") as db:
        db.admin.create_topic("orders")
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE shop (what TEXT)")
        for _ in range(2):  # The driver has the statement prepared the second time.
            with (
                pytest.raises(InvalidRequestError, match=f"{name}: names that begin"),
                db.begin() as tx,
            ):
                tx.publish("orders", "never")
                tx.connection.exec_driver_sql(f"ALTER TABLE shop RENAME TO {name}")
        with db.begin() as tx:
            tx.connection.exec_driver_sql("ALTER TABLE shop RENAME TO store")
            tx.publish("orders", "tea")
        assert db.query("SELECT * FROM store").columns == ("what",)
        assert db.broker.offsets(TP).log_end_offset == 1


def test_a_handler_that_gives_a_table_a_reserved_name_has_failed(tmp_path: Path) -> None:
    def handle(record: eosdb.ConsumerRecord, tx: eosdb.UserTransaction) -> None:
        tx.connection.exec_driver_sql("ALTER TABLE shop RENAME TO eosdb_mine")

    with eosdb.connect(tmp_path / "app.db", durability="off") as db:
        db.admin.create_topic("orders")
        with db.begin() as tx:
            tx.connection.exec_driver_sql("CREATE TABLE shop (what TEXT)")
            tx.publish("orders", "tea")
        with pytest.raises(HandlerFailedError, match="reserved"):
            eosdb.process(db, "orders", handle, group_id="g", until_idle_ms=1, max_attempts=1)
        assert db.query("SELECT * FROM shop").columns == ("what",)
        assert db.broker.offset_fetch("g") == {}
