"""Which functions are handlers, what they are given, and `db.begin()` inside one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ConsumerRecord, ProducerRecord, UserTransaction
from eosdb.client.processor.handlers import takes_transaction
from tests.cases import each
from tests.client.processor.work import Run, feed, read, values


@pytest.fixture(autouse=True)
def _topics(db: eosdb.Database) -> None:
    for topic in ("in", "out"):
        db.admin.create_topic(topic)


def required(record: object, tx: object) -> None: ...


# -- how many parameters --------------------------------------------------------------------------


class Methods:
    def one(self, record: object) -> None: ...

    def two(self, record: object, tx: object) -> None: ...

    def __call__(self, record: object, tx: object) -> None: ...


def three(setting: object, record: object, tx: object) -> None: ...


def defaulted(record: object, limit: int = 3) -> None: ...


def rest(record: object, *more: object) -> None: ...


@each(
    ("handler", "two"),
    [
        (required, True),
        (Methods().one, False),
        (Methods().two, True),
        (Methods(), True),
        (partial(three, 1), True),
        (partial(three, 1, 2), False),
        (partial(rest, 1), False),
        (defaulted, False),
        (rest, False),
        (lambda *_: None, False),
        (lambda _record, _tx, *_, **__: None, True),
        (bytes, False),
    ],
)
def test_a_handler_gets_the_transaction_if_it_requires_two_parameters(
    handler: Callable[..., Any], two: bool
) -> None:
    assert takes_transaction(handler) is two


def named(record: object, *, tx: object) -> None: ...


@pytest.mark.parametrize("handler", [three, lambda: None, named, "handle", None])
def test_what_cannot_be_a_handler_is_refused_at_once(db: eosdb.Database, handler: Any) -> None:
    with pytest.raises(eosdb.ConfigError, match="handler"):
        db.processor("in", handler, "out", group_id="g")


# -- db.begin() in a handler ----------------------------------------------------------------------


@pytest.mark.parametrize("through", ["the same object", "another", "a link"])
def test_begin_in_a_handler_names_the_right_way(
    db: eosdb.Database, run: Run, db_path: Path, tmp_path: Path, through: str
) -> None:
    (tmp_path / "link.db").symlink_to(db_path)
    told: list[str] = []

    def handle(record: ConsumerRecord) -> Iterator[bytes]:
        path = tmp_path / "link.db" if through == "a link" else db_path
        with eosdb.connect(path, clock=db.clock, durability="off") as other:
            used = db if through == "the same object" else other
            with pytest.raises(eosdb.IllegalStateError) as info, used.begin() as tx:
                tx.publish("out", b"once for each attempt")
        told.append(str(info.value))
        assert isinstance(record.value, bytes)
        yield record.value

    feed(db, b"a")
    run(handle)
    (message,) = told
    assert "def handler(record, tx)" in message
    assert values(db) == [b"a"]
    with db.begin() as tx:
        tx.publish("out", b"after")


def test_begin_in_a_handler_of_two_parameters_is_told_so_at_once(
    db: eosdb.Database, run: Run, db_path: Path
) -> None:
    def handle(record: ConsumerRecord, tx: UserTransaction) -> bytes:
        for used in (db, other):
            with pytest.raises(eosdb.IllegalStateError, match=r"second parameter.*tx\.publish"):
                used.begin()
        assert isinstance(record.value, bytes)
        return record.value

    feed(db, b"a")
    with eosdb.connect(db_path, clock=db.clock) as other:
        run(handle)
    assert values(db) == [b"a"]


def test_another_file_and_the_users_own_producer_are_the_users_business(
    db: eosdb.Database, run: Run, tmp_path: Path
) -> None:
    producer = db.producer()

    def handle(record: ConsumerRecord) -> None:
        producer.send("out", record.value)
        with other.begin() as tx:
            tx.publish("t", record.value)

    feed(db, b"a")
    with eosdb.connect(tmp_path / "other.db", durability="off") as other:
        other.admin.create_topic("t")
        run(handle)
        producer.flush()
        assert values(other, "t") == [b"a"]
    assert values(db) == [b"a"]


# -- what it returns ------------------------------------------------------------------------------

RETURNED: list[tuple[object, list[tuple[bytes, bytes]] | None]] = [
    # what a handler of the record k → v returns, and the keys and values that are stored; None: it fails
    ("x", [(b"kv", b"x")]),
    (["x", "y"], [(b"kv", b"x"), (b"kv", b"y")]),
    (("key", "x"), [(b"key", b"x")]),
    ([("key", "x"), "y"], [(b"key", b"x"), (b"kv", b"y")]),
    ((("a", "x"), ("b", "y")), [(b"a", b"x"), (b"b", b"y")]),
    ((ProducerRecord(value="x", key="a"), "y"), [(b"a", b"x"), (b"kv", b"y")]),
    ((), []),
    (("a", "b", "c"), None),
    (("a",), None),
]


def test_a_pair_is_a_key_and_a_value_as_for_send_many(db: eosdb.Database, run: Run) -> None:
    for batch in (False, True):
        for returned, stored in RETURNED:
            db.admin.create_topic(name := f"out{RETURNED.index((returned, stored))}{batch}")
            feed(db, b"v")
            report = run(
                lambda _, returned=returned: returned, name, batch=batch, max_attempts=1,
                dead_letter_topic="dlq",
            )  # fmt: skip
            own = None if batch else b"kv"
            expected = [(own if key == b"kv" else key, value) for key, value in stored or ()]
            assert [(record.key, record.value) for record in read(db, name)] == expected, returned
            assert report.dead_lettered == (stored is None)
