"""Topics named by their ids, which say which topic is meant: one that was made anew has another."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import confluent_kafka
import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata.metadata import MetadataRequest

import eosdb
from eosdb import Acl
from eosdb.wire import batches
from eosdb.wire.handlers import k01_fetch as fetch_handler
from eosdb.wire.handlers import k08_offset_commit, k09_offset_fetch
from eosdb.wire.server import Server
from tests.wire.clients import consume
from tests.wire.clients import produce as send
from tests.wire.peer import Peer, asking, batch, fetch, fetched, produce, produced
from tests.wire.waiting import Waiting

UNKNOWN_TOPIC_ID, UNKNOWN_PARTITION, NOT_AUTHORIZED = 100, 3, 29
BY_ID = 13
OFFSETS_BY_ID = 10


def id_of(db: eosdb.Database, name: str = "t") -> UUID:
    return db.broker.topic(name).topic_id


def make_anew(db: eosdb.Database) -> None:
    db.admin.delete_topic("t")
    db.admin.create_topic("t", partitions=2)


def fetch_by_id(peer: Peer, topic_id: UUID, *partitions: int, wait_ms: int = 0) -> list[int]:
    """The codes of the partitions."""
    asked = fetch(0, partitions=partitions or (0,), wait_ms=wait_ms)
    asked.topics[0].topic_id = topic_id
    (topic,) = peer.ask(asked, BY_ID).responses
    assert (topic.topic_id or UUID(int=0)) == topic_id
    return [part.error_code for part in topic.partitions]


def produce_by_id(peer: Peer, *topic_ids: UUID) -> list[tuple[int, int]]:
    asked = produce({(str(topic_id), 0): batch(b"a") for topic_id in topic_ids})
    for topic, topic_id in zip(asked.topic_data, topic_ids, strict=True):
        topic.topic_id = topic_id
    answer = peer.ask(asked, BY_ID)
    assert [topic.topic_id or UUID(int=0) for topic in answer.responses] == list(topic_ids)
    return produced(answer)


def commit_by_id(peer: Peer, *topic_ids: UUID) -> list[int]:
    """The codes of the first partition of each."""
    partition = {"partition_index": 0, "committed_offset": 1}
    topics = [{"topic_id": topic_id, "partitions": [partition]} for topic_id in topic_ids]
    answer = peer.ask(asking(OffsetCommitRequest, group_id="g", topics=topics), OFFSETS_BY_ID)
    assert [topic.topic_id or UUID(int=0) for topic in answer.topics] == list(topic_ids)
    return [topic.partitions[0].error_code for topic in answer.topics]


def offsets_by_id(peer: Peer, *topic_ids: UUID) -> dict[UUID, tuple[int, int]]:
    """Code and offset of the first partition of each; without ids, of all topics that have one."""
    topics = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in topic_ids]
    request = asking(OffsetFetchRequest, groups=[{"group_id": "g", "topics": topics or None}])
    (answer,) = peer.ask(request, OFFSETS_BY_ID).groups
    firsts = {topic.topic_id or UUID(int=0): topic.partitions[0] for topic in answer.topics}
    return {id_: (part.error_code, part.committed_offset) for id_, part in firsts.items()}


def test_a_topic_is_written_and_read_by_its_id(peer: Peer, db: eosdb.Database) -> None:
    topic_id = id_of(db)
    assert produce_by_id(peer, topic_id) == [(0, 0)]
    asked = fetch(0)
    asked.topics[0].topic_id = topic_id
    for version in range(BY_ID, 19):
        assert fetched(peer.ask(asked, version)) == [(0, b"a")]
    assert fetch_by_id(peer, topic_id, 0, 9) == [0, UNKNOWN_PARTITION]


@pytest.mark.parametrize("topic_id", [uuid4(), UUID(int=0)])
def test_an_id_that_no_topic_has_is_unknown_and_others_are_answered(
    peer: Peer, db: eosdb.Database, topic_id: UUID
) -> None:
    assert fetch_by_id(peer, topic_id, 0, 1) == [UNKNOWN_TOPIC_ID] * 2
    assert produce_by_id(peer, topic_id, id_of(db)) == [(UNKNOWN_TOPIC_ID, -1), (0, 0)]
    assert commit_by_id(peer, topic_id) == [UNKNOWN_TOPIC_ID]
    assert commit_by_id(peer, topic_id, id_of(db)) == [UNKNOWN_TOPIC_ID, 0]
    assert offsets_by_id(peer, topic_id, id_of(db)) == {
        topic_id: (UNKNOWN_TOPIC_ID, -1), id_of(db): (0, 1),
    }  # fmt: skip
    assert offsets_by_id(peer) == {id_of(db): (0, 1)}


def test_the_id_of_a_topic_that_was_made_anew_is_unknown(peer: Peer, db: eosdb.Database) -> None:
    former = id_of(db)
    make_anew(db)
    assert fetch_by_id(peer, former) == [UNKNOWN_TOPIC_ID]
    assert produce_by_id(peer, former) == [(UNKNOWN_TOPIC_ID, -1)]
    assert db.broker.offsets(eosdb.TopicPartition("t", 0)).high_watermark == 0


def test_a_topic_made_anew_while_it_is_read_is_not_taken_for_the_former(
    peer: Peer, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = id_of(db)
    read = fetch_handler._read_partition

    def read_of_another(*args: object, **options: object) -> object:
        monkeypatch.setattr(fetch_handler, "_read_partition", read)
        make_anew(db)
        send_one(db)
        return read(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(fetch_handler, "_read_partition", read_of_another)
    assert fetch_by_id(peer, former) == [UNKNOWN_TOPIC_ID]


def test_a_topic_made_anew_before_the_append_is_not_taken_for_the_former(
    db: eosdb.Database,
) -> None:
    db.admin.create_topic("t")
    former = id_of(db)
    make_anew(db)
    tp = eosdb.TopicPartition("t", 0)
    batches = {tp: eosdb.RecordBatch([eosdb.Record(value=b"a")])}
    (result,) = db.broker.produce(batches, topic_ids={"t": former}).values()
    assert isinstance(result.error, eosdb.UnknownTopicIdError)
    assert db.broker.offsets(tp).high_watermark == 0


def test_a_topic_made_anew_while_a_request_is_decoded_does_not_get_the_formers_records(
    peer: Peer, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = id_of(db)
    decode = batches.decode

    def decode_late(*args: Any) -> eosdb.RecordBatch:
        make_anew(db)
        return decode(*args)

    monkeypatch.setattr(batches, "decode", decode_late)
    assert produce_by_id(peer, former) == [(UNKNOWN_TOPIC_ID, -1)]
    assert db.broker.offsets(eosdb.TopicPartition("t", 0)).high_watermark == 0


def test_a_topic_made_anew_while_its_offset_is_committed_or_fetched_is_not_taken_for_the_former(
    peer: Peer, db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once_it_is_made_anew(handler: ModuleType, name: str) -> None:
        handle = getattr(handler, name)

        def late(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(handler, name, handle)
            make_anew(db)
            tp = eosdb.TopicPartition("t", 0)
            db.broker.offset_commit("g", {tp: eosdb.OffsetAndMetadata(7)})
            return handle(*args, **options)

        monkeypatch.setattr(handler, name, late)

    once_it_is_made_anew(k08_offset_commit, "OffsetCommit")
    assert commit_by_id(peer, id_of(db)) == [UNKNOWN_TOPIC_ID]
    assert offsets_by_id(peer, id_of(db)) == {id_of(db): (0, 7)}
    former = id_of(db)
    once_it_is_made_anew(k09_offset_fetch, "_fetched")
    assert offsets_by_id(peer, former) == {former: (UNKNOWN_TOPIC_ID, -1)}


def test_a_long_poll_is_told_when_its_topic_is_made_anew(
    server: Server, peer: Peer, db: eosdb.Database
) -> None:
    former = id_of(db)
    waiting = Waiting(lambda: fetch_by_id(peer, former, wait_ms=100_000))
    make_anew(db)
    send_one(db)
    assert waiting.answer() == [UNKNOWN_TOPIC_ID]


def send_one(db: eosdb.Database) -> None:
    with db.producer() as producer:
        producer.send("t", b"another", partition=0)


def test_whoever_may_not_use_a_topic_is_told_so_by_its_id(peer: Peer, db: eosdb.Database) -> None:
    topic_id = id_of(db)
    rows = [Acl("User:bob", "all", "topic", "t"), Acl("User:*", "all", "group", "g")]
    db.admin.create_acls(rows)
    assert fetch_by_id(peer, topic_id) == [NOT_AUTHORIZED]
    assert produce_by_id(peer, topic_id) == [(NOT_AUTHORIZED, -1)]
    assert commit_by_id(peer, topic_id) == [NOT_AUTHORIZED]
    assert offsets_by_id(peer, topic_id) == {topic_id: (NOT_AUTHORIZED, -1)}
    asked = asking(MetadataRequest, topics=[{"name": None, "topic_id": topic_id}])
    (topic,) = peer.ask(asked, 12).topics
    assert (topic.error_code, topic.name) == (NOT_AUTHORIZED, None)


@pytest.mark.parametrize("name", ["", None, "other"])
def test_metadata_by_an_id_is_found_whatever_the_name(
    peer: Peer, db: eosdb.Database, name: str | None
) -> None:
    asked = asking(MetadataRequest, topics=[{"name": name, "topic_id": id_of(db)}])
    (topic,) = peer.ask(asked, 12).topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "t", 2)
    assert [t.error_code for t in peer.ask(asked, 11).topics] == [42]  # Ids are from 12 on.


def test_librdkafka_reads_and_writes_where_ids_are_offered(
    server: Server, db: eosdb.Database
) -> None:
    send(server.bootstrap_servers, "t", [b"a", b"b"], partition=0)
    assert consume(server.bootstrap_servers, "t", 2) == [b"a", b"b"]
    former = id_of(db)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap_servers, "group.id": "g"}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    assert len(consumer.consume(2, 60)) == 2
    make_anew(db)
    assert id_of(db) != former
    send(server.bootstrap_servers, "t", [b"another"], partition=0)
    assert consume(server.bootstrap_servers, "t", 1) == [b"another"]
    consumer.close()
