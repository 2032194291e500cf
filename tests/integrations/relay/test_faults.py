"""What stops a relay, and what it says then; and what it puts aside."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.errors import (
    ConfigError,
    CorruptRecordError,
    IllegalStateError,
    InvalidTimestampError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from eosdb.integrations import relay
from eosdb.integrations.relay import Relay
from eosdb.integrations.relay.status import POSITIONS_TOPIC
from eosdb.testing.kafka import KafkaDouble
from tests.integrations.relay.contents import contents, fill, values

pytestmark = pytest.mark.slow

Made = Callable[..., Relay]
P0 = TopicPartition("orders", 0)


class Way:
    """One way that records can go."""

    def __init__(self, source: eosdb.Database, target: eosdb.Database | KafkaDouble) -> None:
        self.source = source
        self.target = target

    @property
    def db(self) -> eosdb.Database:
        return self.target.db if isinstance(self.target, KafkaDouble) else self.target

    def run(self, **options: object) -> relay.RelayStatus:
        make: Made = relay.to_kafka if isinstance(self.target, KafkaDouble) else relay.to_file
        with make(self.source, self.target, **options) as made:
            return made.run(until_caught_up=True)


@pytest.fixture
def way(source: eosdb.Database, target: eosdb.Database) -> Way:
    return Way(source, target)


@pytest.fixture(params=["file", "cluster"])
def both_ways(request: pytest.FixtureRequest, source: eosdb.Database) -> Way:
    """What depends on the target is tried with each kind."""
    kind = "target" if request.param == "file" else "cluster"
    return Way(source, request.getfixturevalue(kind))


def send_large(source: eosdb.Database) -> None:
    with source.producer() as producer:
        producer.send("orders", "before", partition=0)
        producer.send("orders", "x" * 5_000, key=b"key", partition=0, headers=[("h", b"1")])
        producer.send("orders", "behind", partition=0)


def test_a_record_too_large_stops_it_with_its_place(both_ways: Way) -> None:
    both_ways.db.admin.create_topic("orders", 2, {"max.message.bytes": "3000"})
    send_large(both_ways.source)
    with pytest.raises(
        MessageTooLargeError, match=r"offset 1 of orders-0, 5003 bytes.*dead-letter"
    ):
        both_ways.run()
    assert values(both_ways.db) == []
    both_ways.db.admin.alter_topic_config("orders", {"max.message.bytes": None})
    assert both_ways.run().records == 3
    assert contents(both_ways.db) == contents(both_ways.source)


def test_a_record_too_large_goes_to_the_dead_letters_where_that_is_asked_for(
    both_ways: Way,
) -> None:
    both_ways.db.admin.create_topic("orders", 2, {"max.message.bytes": "3000"})
    send_large(both_ways.source)
    both_ways.run(too_large="dead-letter")
    assert values(both_ways.db) == [b"before", b"behind"]
    letter = next(iter(both_ways.db.dead_letters("orders.dlq").letters()))
    assert letter.failure is not None
    assert (letter.record.key, len(letter.record.value)) == (b"key", 5_000)
    failure = letter.failure
    assert (failure.topic, failure.partition, failure.offset) == ("orders", 0, 1)
    assert failure.group_id == "__eosdb_relay.relay"
    assert both_ways.run(too_large="dead-letter").records == 0


def test_a_dead_letter_topic_that_is_too_small_gets_the_headers(both_ways: Way) -> None:
    both_ways.db.admin.create_topic("orders", 2, {"max.message.bytes": "3000"})
    both_ways.db.admin.create_topic("orders.dlq", 1, {"max.message.bytes": "3000"})
    send_large(both_ways.source)
    both_ways.run(too_large="dead-letter")
    assert values(both_ways.db) == [b"before", b"behind"]
    letter = next(iter(both_ways.db.dead_letters("orders.dlq").letters()))
    assert letter.failure is not None
    assert (letter.failure.offset, letter.record.value) == (1, None)


def test_many_small_records_are_not_taken_for_one_that_is_too_large(both_ways: Way) -> None:
    both_ways.db.admin.create_topic("orders", 2, {"max.message.bytes": "3000"})
    fill(both_ways.source, range(2_000))
    assert both_ways.run().records == 2_000
    assert contents(both_ways.db) == contents(both_ways.source)


def test_records_that_are_gone_before_they_were_relayed_stop_it(way: Way) -> None:
    fill(way.source, range(10))
    way.run()
    fill(way.source, range(10, 20))
    way.source.broker.delete_records(P0, 8)
    with pytest.raises(
        OffsetOutOfRangeError, match=r"orders-0: relayed up to offset 6.*begins at 8"
    ):
        way.run()
    said: list[str] = []
    assert way.run(on_gap="earliest", notify=said.append).records == 8
    assert "continued at offset 8 instead of 6" in said[0]
    assert len(values(way.db)) == 18


def test_a_topic_made_anew_under_its_name_stops_it(way: Way) -> None:
    fill(way.source, range(4))
    way.run()
    way.source.admin.delete_topic("orders")
    way.source.admin.create_topic("orders", 2)
    fill(way.source, range(10, 20))
    with pytest.raises(
        OffsetOutOfRangeError, match=r"orders-\d: the topic was deleted and recreated"
    ):
        way.run()
    assert way.run(on_gap="earliest").records == 10
    assert len(values(way.db)) == 14


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_topic_of_the_target_that_is_another_than_was_written_to_stops_it(
    both_ways: Way, is_made_anew: bool
) -> None:
    """What had been relayed is gone from there, and a position in another topic says otherwise."""
    way = both_ways
    fill(way.source, range(4))
    way.run()
    way.db.admin.delete_topic("orders")
    if is_made_anew:
        way.db.admin.create_topic("orders", 2)
    fill(way.source, range(4, 6))
    with pytest.raises(
        OffsetOutOfRangeError, match=r"orders-\d: the topic at the target was deleted"
    ):
        way.run()
    way.run(on_gap="earliest")
    assert contents(way.db) == contents(way.source)
    fill(way.source, range(6, 8))
    assert way.run().records == 2


def test_an_older_copy_of_the_file_stops_it(way: Way, tmp_path: Path) -> None:
    fill(way.source, range(4))
    way.source.backup(tmp_path / "copy.db")
    fill(way.source, range(4, 8))
    way.run()
    with eosdb.connect(tmp_path / "copy.db", durability="off") as copy:
        fill(copy, range(100, 120))
        with pytest.raises(IllegalStateError, match="older copy of the file"):
            Way(copy, way.target).run()
    assert contents(way.db) == contents(way.source)


def test_an_exact_copy_of_the_file_goes_on(way: Way, tmp_path: Path) -> None:
    fill(way.source, range(4))
    way.run()
    way.source.backup(tmp_path / "copy.db")
    with eosdb.connect(tmp_path / "copy.db", durability="off") as copy:
        fill(copy, range(4, 6))
        assert Way(copy, way.target).run().records == 2
        assert contents(way.db) == contents(copy)


def test_what_no_relay_wrote_among_the_positions_stops_it(way: Way) -> None:
    way.run()
    with way.db.producer() as producer:
        producer.send(POSITIONS_TOPIC, "what?", key="who?")
    with pytest.raises(CorruptRecordError, match="no relay wrote: key b'who\\?'"):
        way.run()


def test_the_file_itself_is_no_target(source: eosdb.Database) -> None:
    with pytest.raises(ConfigError, match="is the source, too"):
        Way(source, source).run()


def test_two_relays_by_other_names_keep_positions_of_their_own(way: Way) -> None:
    fill(way.source, range(3))
    assert way.run(name="one").records == 3
    assert way.run(name="two").records == 3
    assert way.run(name="one").records == 0


def test_a_cluster_that_refuses_the_topic_stops_it(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    fill(source, range(3))
    Way(source, cluster).run()
    fill(source, range(3))
    cluster.answer("produce", TopicAuthorizationFailedError)
    with pytest.raises(TopicAuthorizationFailedError, match=f"{cluster}, topic "):
        Way(source, cluster).run()


def test_a_cluster_that_refuses_a_timestamp_stops_it(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    fill(source, range(3))
    Way(source, cluster).run()
    fill(source, range(3))
    cluster.answer("produce", InvalidTimestampError)
    with pytest.raises(InvalidTimestampError):
        Way(source, cluster).run()


def test_timestamps_that_the_target_replaces_are_told(both_ways: Way) -> None:
    both_ways.db.admin.create_topic("orders", 2, {"message.timestamp.type": "LogAppendTime"})
    said: list[str] = []
    both_ways.run(notify=said.append)
    assert "LogAppendTime" in said[0]


def test_an_unreadable_record_stops_it(way: Way, tmp_path: Path) -> None:
    fill(way.source, range(6))
    path = tmp_path / "damaged.db"
    way.source.backup(path)
    content = path.read_bytes()
    shutil.copy(path, tmp_path / "whole.db")
    path.write_bytes(content.replace(b"k33", b"k#3"))
    assert path.read_bytes() != content
    with (
        eosdb.connect(path, durability="off") as damaged,
        pytest.raises(CorruptRecordError),
    ):
        Way(damaged, way.target).run()
