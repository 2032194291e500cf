"""The owner of a transactional id holds a lock: what it has open is aborted by the first write after its
death, and by nobody while it lives. Time stands still here, so no time-out can have helped.

`abandon` ends a database object as the death of its process does. Real processes are in
`tests/broker/test_owned_appends.py` and `tests/crash/test_dead_processors.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.model.protocol.consumer_protocol import with_owner

pytestmark = pytest.mark.slow

APP = with_owner("app", "member-1")
Open = Callable[[], eosdb.Database]


@pytest.fixture
def process(db_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens the file once more, as another process does."""
    opened: list[eosdb.Database] = []

    def make() -> eosdb.Database:
        opened.append(eosdb.connect(db_path, clock=clock, durability="off"))
        return opened[-1]

    make().admin.create_topic("t")
    yield make
    for db in opened:
        db.close()


def write(db: eosdb.Database) -> None:
    db.broker.append(TopicPartition("t", 0), RecordBatch([Record(value=b"")]))


def begin(producer: eosdb.Producer) -> None:
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.flush()


def states(db: eosdb.Database) -> dict[str, str]:
    return {each.transactional_id: each.state for each in db.broker.list_transactions()}


def test_an_owner_that_has_gone_is_missed_by_its_own_process_too(process: Open) -> None:
    db = process()
    presence = db.broker.presence(APP)
    producer = db.producer(transactional_id=APP)
    producer.init_transactions()
    begin(producer)
    assert presence is not None
    presence.end()
    write(db)
    assert states(db) == {APP: "CompleteAbort"}


@pytest.mark.parametrize("transactions", [0, 3])
def test_the_first_write_after_an_owners_death_aborts_what_it_had_open(
    process: Open, caplog: pytest.LogCaptureFixture, transactions: int
) -> None:
    """In whichever transaction it died: each has an epoch of its own."""
    dies, writes = process(), process()
    presence = dies.broker.presence(APP)
    producer = dies.producer(transactional_id=APP)
    producer.init_transactions()
    for _ in range(transactions):
        begin(producer)
        producer.commit_transaction()
    begin(producer)
    for db in (writes, dies, writes):
        write(db)
        process()
    assert states(writes) == {APP: "Ongoing"}
    assert presence is not None
    dies.abandon()
    with caplog.at_level(logging.WARNING, "eosdb.transactions"):
        write(writes)
    assert states(writes) == {APP: "CompleteAbort"}
    assert "its process has died" in caplog.text
    assert writes.verify().ok


def test_an_id_that_an_earlier_version_gave_a_processor_has_its_time_out(
    process: Open, clock: ManualClock
) -> None:
    old_id = "app-member-1:__eosdb.owner:2204"
    db, writes = process(), process()
    producer = db.producer(transactional_id=old_id, transaction_timeout_ms=60_000)
    producer.init_transactions()
    begin(producer)
    db.abandon()
    clock.advance(60_000)
    write(writes)
    assert states(writes) == {old_id: "Ongoing"}
    clock.advance(1)
    write(writes)
    assert states(writes) == {old_id: "CompleteAbort"}


def test_a_processors_transactional_id_names_the_users_id_and_the_member(process: Open) -> None:
    db = process()
    write(db)
    members = list[str]()

    def handle(record: eosdb.ConsumerRecord) -> None:
        members.extend(m.member_id for m in db.broker.describe_group("g").members)

    db.processor("t", handle, group_id="g", transactional_id="app").run(until_idle_ms=1)
    assert list(states(db)) == [f"app-owned-by-eosdb-{members[0]}"]
