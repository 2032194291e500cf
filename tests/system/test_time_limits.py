"""A time limit (Celery, RQ) is an exception of a signal handler. It reaches the caller as it is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import eosdb
from eosdb.client.consumer.fetcher import Fetcher
from eosdb.store.readers import Readers
from eosdb.store.writing.timings import Timings
from eosdb.store.writing.unit import Unit
from eosdb.system.signals import is_of_a_signal
from tests.readers import committed_values
from tests.requests import TP


class TimeLimit(Exception):
    pass


class Timeout(TimeoutError):
    """Of the system's errors, which eosdb translates."""


def limit(error: type[Exception], *_: object) -> None:
    raise error


@pytest.fixture(params=[TimeLimit, Timeout])
def error(request: pytest.FixtureRequest) -> Iterator[type[Exception]]:
    before = signal.signal(signal.SIGUSR1, partial(limit, request.param))
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def send(db: eosdb.Database) -> None:
    db.producer().send("t", "1").result()


def send_many(db: eosdb.Database) -> None:
    db.producer().send_many("t", ["1", "2"])


def commit(db: eosdb.Database) -> None:
    producer = db.producer(transactional_id="x")
    producer.init_transactions()
    with producer.transaction():
        producer.send("t", "1")


def block(db: eosdb.Database) -> None:
    with db.begin() as tx:
        tx.publish("t", "1")


def process(db: eosdb.Database) -> None:
    eosdb.process(db, "in", lambda _: "1", "t", group_id="g", until_idle_ms=0)


def poll(db: eosdb.Database) -> None:
    consumer = db.consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("in")
    consumer.poll()


def query(db: eosdb.Database) -> None:
    db.query(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
    ).all()


WHERE: list[tuple[Callable[[eosdb.Database], None], type, str]] = [
    (send, Timings, "committed"), (send, Unit, "write_waiting"), (send_many, Timings, "committed"),
    (commit, Timings, "committed"), (commit, Unit, "write_waiting"), (block, Timings, "committed"),
    (process, Timings, "committed"), (poll, Readers, "read"), (poll, Fetcher, "_collect_from"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "name"), WHERE)
def test_it_reaches_the_caller_and_what_is_committed_stays(
    call: Callable[[eosdb.Database], None], kind: type, name: str, error: type[Exception],
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    db.admin.create_topic("t")
    db.admin.create_topic("in")
    db.producer().send("in", "1").result()
    plain, count = getattr(kind, name), [0]

    def interrupted(*arguments: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == 1:
            signal.raise_signal(signal.SIGUSR1)
        return plain(*arguments, **named)

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(kind, name, interrupted)
        call(db)
    assert count[0], "the place was never reached"
    db.producer().send("t", "after").result()
    assert committed_values(db, TP)[-1] == b"after"
    assert db.verify().ok


def test_it_ends_a_query_of_sqlite(error: type[Exception], db: eosdb.Database) -> None:
    signal.signal(signal.SIGALRM, partial(limit, error))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(error):
        query(db)


def test_other_errors_are_none_of_a_signal() -> None:
    try:
        raise ValueError
    except ValueError as raised:
        assert not is_of_a_signal(raised)
