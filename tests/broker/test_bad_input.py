"""Whatever a caller hands in: a named error, and nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import BrokerConfig, OffsetAndMetadata, Record, RecordBatch, TopicPartition
from tests.cases import each
from tests.readers import newest_position
from tests.requests import TP

pytestmark = pytest.mark.both_roads

HUGE = 2**63
LONE = "\ud800"
Batch = RecordBatch


def records(*given: Any) -> RecordBatch:
    return RecordBatch(list(given))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "name"),
    [
        (None, "INVALID_RECORD"),
        ([Record(value=b"v")], "INVALID_RECORD"),
        (RecordBatch([]), "INVALID_RECORD"),
        (RecordBatch(b"bytes"), "INVALID_RECORD"),  # type: ignore[arg-type]
        (RecordBatch(None), "INVALID_RECORD"),  # type: ignore[arg-type]
        (records(b"v"), "INVALID_RECORD"),
        (records(None), "INVALID_RECORD"),
        (records(Record(value="text")), "INVALID_RECORD"),  # type: ignore[arg-type]
        (records(Record(key=5, value=b"v")), "INVALID_RECORD"),  # type: ignore[arg-type]
        (records(Record(value=b"v"), Record(value=1.5)), "INVALID_RECORD"),  # type: ignore[arg-type]
        (records(Record(headers="h")), "INVALID_RECORD"),  # type: ignore[arg-type]
        (records(Record(headers=[("h",)])), "INVALID_RECORD"),  # type: ignore[list-item]
        (records(Record(headers=[(b"h", b"v")])), "INVALID_RECORD"),  # type: ignore[list-item]
        (records(Record(headers=[("h", "v")])), "INVALID_RECORD"),  # type: ignore[list-item]
        (records(Record(headers=[(LONE, b"v")])), "INVALID_RECORD"),
        (records(Record(timestamp=-1)), "INVALID_TIMESTAMP"),
        (records(Record(timestamp=HUGE)), "INVALID_TIMESTAMP"),
        (records(Record(timestamp="now")), "INVALID_TIMESTAMP"),  # type: ignore[arg-type]
        (records(Record(timestamp=1.5)), "INVALID_TIMESTAMP"),  # type: ignore[arg-type]
        (records(Record(value=b"x" * 1_048_589)), "MESSAGE_TOO_LARGE"),
        (Batch([Record()], HUGE, 0, 0), "INVALID_RECORD"),
        (Batch([Record()], 0, 2**15, 0), "INVALID_RECORD"),
        (Batch([Record()], 0, 0, 2**31), "INVALID_RECORD"),
        (Batch([Record()], 0, 0, -1), "INVALID_RECORD"),
        (Batch([Record()], 0, -1, 0), "INVALID_RECORD"),
        (Batch([Record()], -2, 0, 0), "INVALID_RECORD"),
        (Batch([Record()], "7", 0, 0), "INVALID_RECORD"),  # type: ignore[arg-type]
        (Batch([Record()], -1, -1, -1, True), "INVALID_RECORD"),
        (Batch([Record()], 0, 0, 0, True), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_a_bad_batch(classic_db: eosdb.Database, batch: Any, name: str) -> None:
    with pytest.raises(eosdb.ApiError) as raised:
        classic_db.broker.append(TP, batch)
    assert raised.value.name == name
    assert classic_db.broker.offsets(TP).log_end_offset == 0


TEXTS: list[Any] = [None, 5, b"t", LONE, ["t"]]
NUMBERS: list[Any] = [None, "1", 1.5, HUGE, -HUGE - 1, True]
PARTITIONS: list[Any] = [
    None, "t", ("t",), ("t", "0"), ("t", -1), ("t", HUGE), ("t", True), (5, 0), (LONE, 0),
    ("a b", 0), ("t\0", 0), ("", 0), TopicPartition("t", 1), TopicPartition("nope", 0),
]  # fmt: skip


def calls() -> list[Any]:
    """Every argument of every request, with values it cannot be."""

    def add(what: str, values: list[Any], call: Callable[[eosdb.Broker, Any], object]) -> None:
        found.extend((what, call, value) for value in values)

    found: list[Any] = []
    offsets = {TP: OffsetAndMetadata(1)}
    add("init id", [*TEXTS[1:], ""], lambda b, v: b.init_producer_id(v))
    add("init timeout", NUMBERS, lambda b, v: b.init_producer_id("a", v))
    add("init pid", NUMBERS, lambda b, v: b.init_producer_id("a", 1000, v, 0))
    add("init epoch", [*NUMBERS, 2**15], lambda b, v: b.init_producer_id("a", 1000, 0, v))
    add("half expectation", [5], lambda b, v: b.init_producer_id("a", 1000, v, -1))
    add("add id", TEXTS, lambda b, v: b.add_partitions_to_txn(v, 0, 0, [TP]))
    add("add tp", PARTITIONS, lambda b, v: b.add_partitions_to_txn("a", 0, 0, [v]))
    add("add tps", [None, 5], lambda b, v: b.add_partitions_to_txn("a", 0, 0, v))
    add("add pid", NUMBERS, lambda b, v: b.add_partitions_to_txn("a", v, 0, [TP]))
    add("offsets group", TEXTS, lambda b, v: b.add_offsets_to_txn("a", 0, 0, v))
    add("txn group", [*TEXTS, ""], lambda b, v: b.txn_offset_commit("a", v, 0, 0, offsets))
    add("txn tp", PARTITIONS,
        lambda b, v: b.txn_offset_commit("a", "g", 0, 0, {v: OffsetAndMetadata(1)}))  # fmt: skip
    add("end id", TEXTS, lambda b, v: b.end_txn(v, 0, 0, True))
    add("end epoch", NUMBERS, lambda b, v: b.end_txn("a", 0, v, True))
    add("marker pid", [*NUMBERS, -1], lambda b, v: b.write_txn_markers(v, 0, True, [TP], 0))
    add("marker epoch", [*NUMBERS, -1], lambda b, v: b.write_txn_markers(0, v, True, [TP], 0))
    add("marker ce", [*NUMBERS, -2], lambda b, v: b.write_txn_markers(0, 0, True, [TP], v))
    add("marker tp", PARTITIONS, lambda b, v: b.write_txn_markers(0, 0, True, [v], 0))
    add("fetch tp", PARTITIONS, lambda b, v: b.fetch(v, 0))
    add("fetch offset", [*NUMBERS, -1, 1], lambda b, v: b.fetch(TP, v))
    add("fetch level", [None, "serializable", 1], lambda b, v: b.fetch(TP, 0, isolation_level=v))
    add("fetch max", [*NUMBERS, 0], lambda b, v: b.fetch(TP, 0, max_records=v))
    add("fetch bytes", [*NUMBERS, -1], lambda b, v: b.fetch(TP, 0, max_bytes=v))
    add("list time", [*NUMBERS, -4], lambda b, v: b.list_offsets(TP, v))
    add("commit group", TEXTS, lambda b, v: b.offset_commit(v, offsets))
    add("commit tp", PARTITIONS, lambda b, v: b.offset_commit("g", {v: OffsetAndMetadata(1)}))
    add("commit map", [None, 5, [TP]], lambda b, v: b.offset_commit("g", v))
    add("commit offset", [*NUMBERS, -1],
        lambda b, v: b.offset_commit("g", {TP: OffsetAndMetadata(v)}))  # fmt: skip
    add("commit metadata", [5, b"m", LONE, "m" * 5000],
        lambda b, v: b.offset_commit("g", {TP: OffsetAndMetadata(1, v)}))  # fmt: skip
    add("commit generation", NUMBERS,
        lambda b, v: b.offset_commit("g", offsets, generation_id=v))  # fmt: skip
    add("offsets of group", TEXTS, lambda b, v: b.offset_fetch(v))
    add("offsets of tps", [5, [5]], lambda b, v: b.offset_fetch("g", v))
    add("delete offsets", PARTITIONS[:-2], lambda b, v: b.offset_delete("g", [v]))
    add("delete group", [*TEXTS, "nobody"], lambda b, v: b.delete_group(v))
    add("coordinator", [None, 5], lambda b, v: b.find_coordinator(v))
    add("coordinator of", [None, "topic"], lambda b, v: b.find_coordinator("a", v))
    add("producers", PARTITIONS, lambda b, v: b.describe_producers(v))
    add(
        "describe", [None, "a", [5], [LONE], ["nobody"], 5], lambda b, v: b.describe_transactions(v)
    )
    add("duration", NUMBERS, lambda b, v: b.list_transactions(duration_ms=v))
    add("states", [None, 5, "Ongoing", [5]], lambda b, v: b.list_transactions(states=v))
    add("producers listed", [None, 5, ["1"]], lambda b, v: b.list_transactions(producer_ids=v))
    add("leader epoch", [*NUMBERS, 2**31],
        lambda b, v: b.offset_commit("g", {TP: OffsetAndMetadata(1, "", v)}))  # fmt: skip
    add("protocols", [None, 5, "range", [("range", "m")], [(5, b"")], [("range",)], ["ab"], [5]],
        lambda b, v: b.join_group("g", protocols=v))  # fmt: skip
    add("rebalance", [*NUMBERS, 0, 2**31],
        lambda b, v: b.join_group("g", protocols=[("range", b"")], rebalance_timeout_ms=v))  # fmt: skip
    add("assignments", [5, "m", [("m", b"")], {"m": "a"}, {5: b""}],
        lambda b, v: b.sync_group("g", 1, "m", assignments=v))  # fmt: skip
    add("members", [None, 5, [5]], lambda b, v: b.leave_group("g", v))
    add("delete before", [*NUMBERS, -2, 1], lambda b, v: b.delete_records(TP, v))
    add("delete tp", PARTITIONS, lambda b, v: b.delete_records(v, 0))
    add("offsets tp", PARTITIONS, lambda b, v: b.offsets(v))
    add("partitions for", [*TEXTS, "nope"], lambda b, v: b.partitions_for(v))
    return found


@pytest.fixture
def untouched(db_path: Path) -> Iterator[eosdb.Database]:
    config = BrokerConfig(transaction_version=1)
    with eosdb.connect(db_path, durability="off", config=config) as db:
        db.admin.create_topic("t")
        yield db
        assert db.verify().ok


@pytest.mark.slow
@each(("what", "call", "value"), calls())
def test_a_bad_argument(
    untouched: eosdb.Database,
    what: str,
    call: Callable[[eosdb.Broker, Any], object],
    value: Any,
) -> None:
    before = newest_position(untouched)
    with pytest.raises(eosdb.ApiError) as raised:
        call(untouched.broker, value)
    assert len(str(raised.value)) > 10, what
    assert newest_position(untouched) in (before, before + 1), "at most an election"


def test_a_filter_of_transactions_may_be_any_iterable(classic_db: eosdb.Database) -> None:
    who = classic_db.broker.init_producer_id("a")
    states, ids = iter(["Empty"]), (number for number in [who.producer_id])
    (found,) = classic_db.broker.list_transactions(states, ids)  # type: ignore[arg-type]
    assert found.transactional_id == "a"


EMPTY_ID: list[Callable[[eosdb.Broker], object]] = [
    lambda b: b.init_producer_id(""),
    lambda b: b.add_partitions_to_txn("", 0, 0, [TP]),
    lambda b: b.add_offsets_to_txn("", 0, 0, "g"),
    lambda b: b.txn_offset_commit("", "g", 0, 0, {TP: OffsetAndMetadata(1)}),
    lambda b: b.end_txn("", 0, 0, True),
    lambda b: b.append(TP, RecordBatch([Record()], 0, 0, 0, True), transactional_id=""),
    lambda b: b.describe_transactions([""]),
]


@each("request_", EMPTY_ID)
def test_an_empty_transactional_id_is_an_invalid_request_everywhere(
    classic_db: eosdb.Database, request_: Callable[[eosdb.Broker], object]
) -> None:
    with pytest.raises(eosdb.InvalidRequestError, match="transactional_id: got an empty text"):
        request_(classic_db.broker)


@each("batches", [None, 5, [TP]])
def test_produce_wants_a_mapping(classic_db: eosdb.Database, batches: Any) -> None:
    with pytest.raises(eosdb.InvalidRequestError):
        classic_db.broker.produce(batches)


def test_every_partition_has_its_own_error(classic_db: eosdb.Database) -> None:
    good, bad = RecordBatch([Record(value=b"v")]), RecordBatch([])
    nowhere = TopicPartition("nope", 0)
    results = classic_db.broker.produce({TP: good, nowhere: good, TopicPartition("t", 7): bad})
    assert results[TP].base_offset == 0
    names = {tp: r.error.name for tp, r in results.items() if r.error}
    assert names == {
        nowhere: "UNKNOWN_TOPIC_OR_PARTITION",
        TopicPartition("t", 7): "INVALID_RECORD",
    }


@each("acks", [2, "two", None, -2])
def test_acks_are_all_one_or_none(classic_db: eosdb.Database, acks: Any) -> None:
    results = classic_db.broker.produce({TP: RecordBatch([Record(value=b"v")])}, acks=acks)
    error = results[TP].error
    assert error is not None
    assert error.name == "INVALID_REQUIRED_ACKS"


@each(("topic", "partition", "name"), [
        ("a b", 0, "INVALID_TOPIC_EXCEPTION"), ("", 0, "INVALID_TOPIC_EXCEPTION"),
        (".", 0, "INVALID_TOPIC_EXCEPTION"), ("x" * 250, 0, "INVALID_TOPIC_EXCEPTION"),
        ("nope", 0, "UNKNOWN_TOPIC_OR_PARTITION"), ("t", 7, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", -1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ])  # fmt: skip
def test_describe_producers_tells_a_bad_name_from_an_unknown_one(
    classic_db: eosdb.Database, topic: str, partition: int, name: str
) -> None:
    """As a Kafka 4.4.0 answers DescribeProducers."""
    with pytest.raises(eosdb.ApiError) as raised:
        classic_db.broker.describe_producers(TopicPartition(topic, partition))
    assert raised.value.name == name


@each("name", ["", ".", "..", "a b", "a/b", "ü", "a\0", "x" * 250, 5, None])
def test_illegal_topic_names(classic_db: eosdb.Database, name: Any) -> None:
    with pytest.raises(eosdb.InvalidTopicExceptionError):
        classic_db.admin.create_topic(name)


@each("partitions", [0, -1, 1.5, "3", 10_001, True])
def test_illegal_partition_counts(classic_db: eosdb.Database, partitions: Any) -> None:
    with pytest.raises(eosdb.InvalidPartitionsError):
        classic_db.admin.create_topic("u", partitions=partitions)


@each("config", [
        {"colour": "red"}, {"retention.ms": "soon"}, {"retention.ms": -2}, {5: "x"},
        {"cleanup.policy": "burn"}, {"message.timestamp.type": "Never"}, {"retention.ms": None},
        {"max.message.bytes": 2**31},
    ])  # fmt: skip
def test_illegal_topic_settings(classic_db: eosdb.Database, config: Any) -> None:
    with pytest.raises(eosdb.InvalidConfigError):
        classic_db.admin.create_topic("u", config=config)
    assert classic_db.admin.list_topics() == ["t"]


@pytest.mark.slow
def test_ten_megabytes_and_nul_bytes_pass_where_they_are_allowed(
    classic_db: eosdb.Database,
) -> None:
    classic_db.admin.create_topic("large", config={"max.message.bytes": 20_000_000})
    large, tp = b"\0x" * 5_000_000, TopicPartition("large", 0)
    classic_db.broker.append(tp, records(Record(key=b"\0", value=large, headers=[("\0", b"\0")])))
    (record,) = classic_db.broker.fetch(tp, 0).records
    assert (record.key, record.value, record.headers) == (b"\0", large, (("\0", b"\0"),))
    who = classic_db.broker.init_producer_id("nul\0id")
    assert (
        classic_db.broker.describe_transactions(["nul\0id"])["nul\0id"].producer_id
        == who.producer_id
    )
    classic_db.broker.offset_commit("g\0", {tp: OffsetAndMetadata(1, "m\0")})
    assert classic_db.broker.offset_fetch("g\0") == {tp: OffsetAndMetadata(1, "m\0")}
    assert classic_db.verify().ok
