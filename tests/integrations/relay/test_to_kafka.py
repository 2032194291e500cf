"""From a file to a Kafka cluster: what arrives, and that it arrives once whatever happens."""

from __future__ import annotations

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.errors import (
    InvalidPartitionsError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from eosdb.integrations import relay
from eosdb.integrations.relay.kafka_client import KafkaClient
from eosdb.integrations.relay.status import POSITIONS_TOPIC
from eosdb.testing.kafka import KafkaDouble
from tests.integrations.relay.contents import Running, contents, fill, values
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def relayed(source: eosdb.Database, cluster: KafkaDouble, **options: object) -> relay.RelayStatus:
    with relay.to_kafka(source, cluster, **options) as made:  # type: ignore[arg-type]
        return made.run(until_caught_up=True)


def test_committed_records_arrive_with_all_that_they_carry(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    fill(source, range(100))
    with source.producer(transactional_id="odd") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", "taken back", partition=0)
        producer.abort_transaction()
        with producer.transaction():
            headers = [("a", b"1"), ("a", None), ("b", b"")]
            producer.send(
                "orders", b"\x00\xff", key=None, partition=1, headers=headers, timestamp=7
            )
            producer.send("orders", None, key=b"gone", partition=1, timestamp=5)
        producer.begin_transaction()
        producer.send("orders", "not yet", partition=1)
        producer.flush()

        status = relayed(source, cluster)

        assert contents(cluster.db) == contents(source)
        assert len(contents(cluster.db)) == status.records == 102
        producer.commit_transaction()
    relayed(source, cluster)
    assert contents(cluster.db) == contents(source)
    assert values(cluster.db)[-1] == b"not yet"


def test_a_second_run_sends_nothing_again(source: eosdb.Database, cluster: KafkaDouble) -> None:
    fill(source, range(10))
    assert relayed(source, cluster).records == 10
    assert relayed(source, cluster).records == 0
    fill(source, range(10, 13))
    assert relayed(source, cluster).records == 3
    assert contents(cluster.db) == contents(source)


def test_positions_whose_end_is_not_told_are_not_taken_for_none(
    source: eosdb.Database, cluster: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka answers ListOffsets with -1001, and no error, when its connection breaks."""
    fill(source, range(10))
    relayed(source, cluster)
    start = KafkaClient.start

    def start_and_lose_the_end(self: KafkaClient, topic: str, partition: int) -> int:
        found = start(self, topic, partition)
        monkeypatch.setattr(KafkaClient, "start", start)
        cluster.lose_response("list_offsets")
        return found

    monkeypatch.setattr(KafkaClient, "start", start_and_lose_the_end)
    assert relayed(source, cluster).records == 0
    assert cluster.counts["lose_response"] == 1
    assert contents(cluster.db) == contents(source)


def test_a_run_continues_with_what_is_committed_meanwhile(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    with Running(relay.to_kafka(source, cluster)) as running:
        for number in range(3):
            fill(source, [number])
            running.until(lambda status, sent=number: status.records > sent)  # type: ignore[misc]
    assert contents(cluster.db) == contents(source)


def test_a_missing_topic_is_created_like_that_of_the_source(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    relayed(source, cluster)
    made = cluster.db.admin.describe_topic("orders")
    assert (len(made.partitions), made.config) == (2, {"retention.ms": "-1"})


def test_a_missing_topic_is_an_error_where_none_may_be_created(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic 'orders'.* 2 partitions"):
        relayed(source, cluster, create_topics=False)


def test_a_topic_with_fewer_partitions_is_an_error(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    cluster.db.admin.create_topic("orders", 1)
    with pytest.raises(InvalidPartitionsError, match="2 partitions in the source and 1"):
        relayed(source, cluster)


def test_a_topic_that_the_source_does_not_have_is_an_error(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'order'; it has orders"):
        relayed(source, cluster, topics=["order"])


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    fill(source, range(20))
    cluster.lose_response("end_txn", times=3)
    relayed(source, cluster, max_records=5)
    assert contents(cluster.db) == contents(source)
    assert cluster.counts["lose_response"] == 3


def test_a_cluster_that_dies_again_and_again_gets_everything_once(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    fill(source, range(400))
    with Running(relay.to_kafka(source, cluster, max_records=10)) as running:
        for count in (50, 150, 300):
            running.until(lambda status, least=count: status.records >= least)  # type: ignore[misc]
            cluster.restart()
        running.until(lambda status: status.lag == 0 and status.records > 0)
    assert contents(cluster.db) == contents(source)


def test_a_cluster_that_is_away_is_waited_for(source: eosdb.Database, cluster: KafkaDouble) -> None:
    fill(source, range(10))
    cluster.kill()
    said: list[str] = []
    with Running(relay.to_kafka(source, cluster, notify=said.append)) as running:
        eventually(lambda: running.relay.status().failures > 0)
        assert str(cluster) in running.relay.status().last_error
        cluster.restart()
        running.until(lambda status: status.records == 10)
    assert contents(cluster.db) == contents(source)
    assert any("trying again" in text for text in said)
    assert running.relay.status().last_error == ""


def test_a_second_relay_fences_the_first(source: eosdb.Database, cluster: KafkaDouble) -> None:
    fill(source, range(5))
    with Running(relay.to_kafka(source, cluster)) as first:
        first.until(lambda status: status.records == 5)
        with Running(relay.to_kafka(source, cluster)) as second:
            second.until(lambda status: bool(status.partitions))
            fill(source, range(5, 10))
            second.until(lambda status: status.records == 5)
            first.join()
        assert isinstance(first.error, ProducerFencedError)
        assert "another relay named 'relay'" in str(first.error)
    assert contents(cluster.db) == contents(source)


def test_a_transaction_that_took_too_long_is_not_taken_for_another_relay(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    with Running(relay.to_kafka(source, cluster)) as running:
        running.until(lambda status: bool(status.partitions))
        cluster.delay("end_txn", 2_000)
        fill(source, range(10))
        eventually(lambda: cluster.counts["delay"] > 0)
        cluster.clock.advance(120_000)
        running.until(lambda status: status.records == 10)
        assert running.relay.status().failures > 0
    assert contents(cluster.db) == contents(source)


def test_positions_are_in_a_compacted_topic_of_the_target(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    fill(source, range(4))
    relayed(source, cluster)
    assert cluster.db.admin.describe_topic(POSITIONS_TOPIC).config == {"cleanup.policy": "compact"}
    kept = [content.key for content in contents(cluster.db, POSITIONS_TOPIC)]
    assert len([key for key in kept if key and b'"orders"' in key]) == 2


def test_a_transaction_that_fits_arrives_in_one(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    for start in range(0, 100, 10):
        fill(source, range(start, start + 10))
    relayed(source, cluster, max_records=34)
    tp = TopicPartition("orders", 0)
    records = cluster.db.broker.fetch(tp, 0, max_records=1_000).records
    kinds = "".join("x" if record.control else "." for record in records)
    counts = [len(part) for part in kinds.split("x") if part]
    assert sum(counts) == 50
    assert len(counts) > 2
    assert not [count for count in counts if count % 5]


def test_records_wait_until_their_transaction_can_be_read_whole(
    source: eosdb.Database, cluster: KafkaDouble
) -> None:
    """Partition 1 has an open transaction, behind which the rest of a committed one waits."""
    with source.producer(transactional_id="slow") as slow:
        slow.init_transactions()
        slow.begin_transaction()
        slow.send("orders", "slow", partition=1)
        slow.flush()
        fill(source, range(2))
        assert relayed(source, cluster).records == 0
        slow.commit_transaction()
    assert relayed(source, cluster).records == 3
    assert source.broker.offsets(TopicPartition("orders", 0)).last_stable_offset == 2
