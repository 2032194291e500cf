"""A request for many partitions, most of which have nothing new: each is answered as if asked for alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import eosdb
from eosdb import Acl, Record, RecordBatch, TopicPartition
from eosdb.wire.handlers import k01_fetch as fetch_handler
from eosdb.wire.session import ANONYMOUS
from tests.maintenance import everything
from tests.requests import begin
from tests.wire.peer import Peer, fetch

COUNT = 6


def parts(peer: Peer, offset: int, partitions: range, *, committed: bool) -> list[Any]:
    asked = fetch(offset, partitions=partitions, committed=committed)
    return [
        (part.partition_index, part.error_code, part.high_watermark, part.last_stable_offset,
         part.log_start_offset, part.aborted_transactions, bytes(part.records))
        for part in peer.ask(asked, 12).responses[0].partitions
    ]  # fmt: skip


@pytest.mark.parametrize("committed", [True, False])
def test_whatever_a_partition_has_or_lacks_it_is_answered_as_alone(
    peer: Peer, db: eosdb.Database, committed: bool
) -> None:
    db.admin.create_partitions("t", COUNT)
    batch = RecordBatch([Record(value=b"v")] * 2)
    for index in (1, 2, 4):
        db.broker.append(TopicPartition("t", index), batch)
    held = RecordBatch([Record(value=b"open")], *begin(db), 0, True)
    db.broker.append(TopicPartition("t", 0), held, transactional_id="a")
    raw = everything.raw(Path(db.path))
    raw.execute("UPDATE partitions SET size_bytes = 7 WHERE partition = 4")
    raw.close()
    asked = range(COUNT + 1)  # The last one does not exist.
    for offset in (0, 1, 2, 3):
        alone = [parts(peer, offset, range(i, i + 1), committed=committed)[0] for i in asked]
        assert parts(peer, offset, asked, committed=committed) == alone
    assert [code for _, code, *_ in alone] == [1, 1, 1, 1, alone[4][1], 1, 3]
    assert alone[4][1] not in (0, 1)


def test_what_may_not_be_read_is_refused_also_if_there_is_nothing_new(
    peer: Peer, db: eosdb.Database
) -> None:
    may_alter = Acl(ANONYMOUS, "alter", "cluster", "kafka-cluster")
    db.admin.create_acls([may_alter, Acl("User:somebody", "read", "topic", "t")])
    assert [code for _, code, *_ in parts(peer, 0, range(2), committed=True)] == [29, 29]
    db.admin.create_acls([Acl(ANONYMOUS, "read", "topic", "t")])
    assert [code for _, code, *_ in parts(peer, 0, range(2), committed=True)] == [0, 0]


def test_a_long_poll_that_ends_at_its_time_has_read_once_and_one_with_news_twice(
    peer: Peer, db: eosdb.Database
) -> None:
    with mock.patch.object(fetch_handler, "_read", wraps=fetch_handler._read) as read:
        peer.ask(fetch(0, partitions=range(2), wait_ms=30), 12)
        assert read.call_count == 1
        asked = fetch(0, partitions=range(2), wait_ms=100_000)
        peer.send(asked, 12)
        db.admin.create_topic("other")
        db.broker.append(TopicPartition("other", 0), RecordBatch([Record(value=b"v")]))
        db.broker.append(TopicPartition("t", 1), RecordBatch([Record(value=b"v")]))
        assert peer.answer(asked, 12).responses[0].partitions[1].records
        assert read.call_count <= 3  # One, if the records were there before the request.
