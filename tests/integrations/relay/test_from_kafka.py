"""From a Kafka cluster into a file, and the whole way there and back."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from eosdb.integrations import relay
from eosdb.integrations.relay.kafka_ends import KafkaSource
from eosdb.testing.kafka import KafkaDouble
from tests.integrations.relay.contents import Running, contents, fill, values

pytestmark = pytest.mark.slow


def relayed(cluster: KafkaDouble, target: eosdb.Database, **options: object) -> relay.RelayStatus:
    with relay.from_kafka(target, cluster, **options) as made:  # type: ignore[arg-type]
        return made.run(until_caught_up=True)


def test_records_come_back_from_a_cluster_as_they_went(
    source: eosdb.Database, cluster: KafkaDouble, target: eosdb.Database
) -> None:
    fill(source, range(200))
    with source.producer(transactional_id="odd") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", "taken back", partition=0)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("orders", None, key=None, partition=1, headers=[("a", None), ("a", b"1")])
    with relay.to_kafka(source, cluster) as there:
        there.run(until_caught_up=True)
    assert relayed(cluster, target, max_records=50).records == 201
    assert contents(target) == contents(source)
    assert target.admin.describe_topic("orders").config == {"retention.ms": "-1"}
    assert relayed(cluster, target).records == 0


def test_a_cluster_that_restarts_is_read_once(cluster: KafkaDouble, target: eosdb.Database) -> None:
    cluster.db.admin.create_topic("orders", 2)
    fill(cluster.db, range(300))
    with Running(relay.from_kafka(target, cluster, max_records=20)) as running:
        running.until(lambda status: status.records >= 100)
        cluster.restart()
        fill(cluster.db, range(300, 400))
        running.until(lambda status: status.records >= 400)
    assert contents(target) == contents(cluster.db)


def test_what_the_cluster_aborts_or_has_not_committed_does_not_come(
    cluster: KafkaDouble, target: eosdb.Database
) -> None:
    cluster.db.admin.create_topic("orders", 1)
    with cluster.db.producer(transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", "aborted")
        producer.abort_transaction()
        with producer.transaction():
            producer.send("orders", "committed")
        producer.begin_transaction()
        producer.send("orders", "open")
        producer.flush()
        assert relayed(cluster, target).records == 1
    assert values(target) == [b"committed"]


def test_a_record_that_the_cluster_deleted_before_stops_it(
    cluster: KafkaDouble, target: eosdb.Database
) -> None:
    cluster.db.admin.create_topic("orders", 1)
    fill(cluster.db, range(5))
    relayed(cluster, target)
    fill(cluster.db, range(5, 10))
    cluster.db.broker.delete_records(TopicPartition("orders", 0), 8)
    with pytest.raises(OffsetOutOfRangeError, match="begins at 8"):
        relayed(cluster, target)
    assert relayed(cluster, target, on_gap="earliest").records == 3


def test_a_topic_made_anew_while_it_is_read_stops_it(
    cluster: KafkaDouble, target: eosdb.Database
) -> None:
    cluster.db.admin.create_topic("orders", 1)
    fill(cluster.db, range(5))
    with Running(relay.from_kafka(target, cluster, topics=["orders"])) as running:
        running.until(lambda status: status.records == 5)
        cluster.db.admin.delete_topic("orders")
        cluster.db.admin.create_topic("orders", 1)
        fill(cluster.db, range(100, 120))
        running.join()
        assert isinstance(running.error, OffsetOutOfRangeError)
        assert "deleted and recreated" in str(running.error)
    assert len(values(target)) == 5


def test_a_topic_that_is_not_there_is_named(cluster: KafkaDouble, target: eosdb.Database) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nothing'"):
        relayed(cluster, target, topics=["nothing"])


def test_topics_of_none_are_refused(cluster: KafkaDouble, target: eosdb.Database) -> None:
    with pytest.raises(ConfigError, match="topics: got none"):
        relayed(cluster, target, topics=[])


def test_nothing_is_fetched_while_the_ends_of_partitions_are_asked_for(
    cluster: KafkaDouble, target: eosdb.Database
) -> None:
    """A broker answers in order, and a fetch waits for records: half a second for each partition."""
    cluster.db.admin.create_topic("orders", 2)
    fill(cluster.db, range(5))
    with relay.from_kafka(target, cluster) as made:
        source = made._source
        assert isinstance(source, KafkaSource)
        topics = source.topics(None)
        source.begin(topics, {tp: of.start for tp, of in source.bounds(topics).items()})
        assert source._consumer.assignment()
        assert source.bounds(topics)[TopicPartition("orders", 0)].start == 0
        assert not source._consumer.assignment()
