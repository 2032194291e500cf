"""The move of a file to a cluster: nothing lost, nothing twice, groups where they stood."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import confluent_kafka
import pytest

import eosdb
from eosdb import OffsetAndMetadata, TopicPartition
from eosdb.errors import (
    CoordinatorLoadInProgressError,
    EosdbError,
    IllegalStateError,
    PolicyViolationError,
)
from eosdb.integrations.moving.move import to_kafka
from eosdb.integrations.relay import to_kafka as relay_to_kafka
from eosdb.testing.kafka import KafkaDouble
from tests.integrations.moving.conftest import GROUPS
from tests.integrations.relay.contents import PATIENCE_S, contents, fill

pytestmark = [pytest.mark.process, pytest.mark.slow]

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
_KILLED_AT = """
import os, sys, eosdb
from eosdb.integrations.moving.move import to_kafka

told = []
def die(text):
    told.append(text)
    if len(told) == int(sys.argv[3]):
        os._exit(9)

with eosdb.connect(sys.argv[1], durability="off") as db:
    to_kafka(db, sys.argv[2], notify=die).execute()
"""


def _values_from(db: eosdb.Database, group: str, tp: TopicPartition) -> list[bytes | None]:
    """What a group reads next, to the end; where the beginning is deleted, from the first record."""
    at = db.broker.offset_fetch(group)[tp].offset
    offsets = db.broker.offsets(tp)
    found: list[bytes | None] = []
    at = max(at, offsets.log_start_offset)
    while at < offsets.last_stable_offset:
        data = db.broker.fetch_data(tp, at, isolation_level="read_committed")
        found += data.rows.value
        at = data.stop
    return found


def _is_moved(shop: eosdb.Database, cluster: KafkaDouble) -> None:
    assert contents(cluster.db) == contents(shop)
    for group in GROUPS:
        for tp in (P0, P1):
            assert _values_from(cluster.db, group, tp) == _values_from(shop, group, tp), (group, tp)


def test_a_plan_asks_again_where_a_broker_has_just_started(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    told: list[str] = []
    cluster.answer("describe_groups", CoordinatorLoadInProgressError, times=1)
    assert not to_kafka(shop, cluster, notify=told.append).plan().obstacles
    assert len(told) == 1
    assert told[0].endswith("; trying again")
    assert cluster.counts["answer"] == 1


def test_everything_moves_and_groups_stand_where_they_stood(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    told: list[str] = []
    move = to_kafka(shop, cluster, notify=told.append)
    assert not move.plan().is_done
    assert cluster.db.admin.list_topics() == []  # A plan changes nothing.
    done = move.execute()
    assert done.is_done, done
    _is_moved(shop, cluster)
    assert cluster.db.admin.describe_topic("orders").config == {"retention.ms": "-1"}
    with pytest.raises(PolicyViolationError, match=f"has moved to {cluster}"):
        fill(shop, [1])
    told.clear()
    assert to_kafka(shop, cluster, notify=told.append).execute().is_done
    assert told == []


def test_consumers_go_on_with_the_next_record(shop: eosdb.Database, cluster: KafkaDouble) -> None:
    with shop.consumer("readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        read: list[bytes | None] = []
        while len(read) < 20:
            batch = consumer.poll(timeout_ms=1_000, max_records=20 - len(read))
            read += [record.value for record in batch]
        consumer.commit()
    to_kafka(shop, cluster).execute()
    fill(cluster.db, range(100, 104))
    everything = [content.value for content in contents(cluster.db)]
    stranger = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    stranger.subscribe(["orders"])
    deadline = eosdb.SystemClock().monotonic_ms() + PATIENCE_S * 1000
    while len(read) < len(everything):
        assert eosdb.SystemClock().monotonic_ms() < deadline, read
        message = stranger.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            read.append(message.value())
    stranger.close()
    assert sorted(map(str, read)) == sorted(map(str, everything))


@pytest.mark.parametrize("step", [2, 4, 5])
def test_killed_at_any_step_and_run_again_it_goes_on(
    shop: eosdb.Database, cluster: KafkaDouble, step: int
) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _KILLED_AT, shop.path, cluster, str(step)], timeout=PATIENCE_S
    )
    assert run.returncode == 9
    assert to_kafka(shop, cluster).execute().is_done
    _is_moved(shop, cluster)


def test_while_others_write_nothing_is_lost(shop: eosdb.Database, cluster: KafkaDouble) -> None:
    refused = threading.Event()

    def write() -> None:
        with shop.producer() as producer:
            number = 1_000
            while True:
                try:
                    producer.send("orders", f"{number}", partition=number % 2).result()
                except PolicyViolationError:
                    refused.set()
                    return
                number += 1

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert to_kafka(shop, cluster).execute().is_done
    assert refused.wait(PATIENCE_S)
    writer.join(PATIENCE_S)
    _is_moved(shop, cluster)


def test_an_open_transaction_is_aborted_and_its_producer_fenced(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    with shop.producer(transactional_id="till") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"never", partition=0).result()
        producer.send_offsets_to_transaction({P0: OffsetAndMetadata(15)}, "billing")
        assert "till" in [step.subject for step in to_kafka(shop, cluster).plan().steps]
        to_kafka(shop, cluster).execute()
        with pytest.raises(eosdb.errors.EosdbError):
            producer.commit_transaction()
    assert b"never" not in [content.value for content in contents(cluster.db)]
    _is_moved(shop, cluster)


def test_a_transaction_that_ends_in_time_arrives_with_the_offsets_in_it(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    producer = shop.producer(transactional_id="till")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"in time", partition=0).result()
    producer.send_offsets_to_transaction({P0: OffsetAndMetadata(15)}, "billing")

    def tell(text: str) -> None:
        if text.startswith("closed"):
            producer.commit_transaction()

    to_kafka(shop, cluster, notify=tell).execute(wait_ms=PATIENCE_S * 1000)
    producer.close()
    assert b"in time" in [content.value for content in contents(cluster.db)]
    _is_moved(shop, cluster)


def test_a_group_with_members_is_waited_for_or_named(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    consumer = shop.consumer("billing")
    consumer.subscribe(["orders"])
    consumer.poll(timeout_ms=0)
    with pytest.raises(IllegalStateError, match="billing has 1 members in the file"):
        to_kafka(shop, cluster).execute()
    fill(shop, [1])  # It is not closed.

    def leave(text: str) -> None:
        if text.startswith("waiting"):
            consumer.close()

    assert to_kafka(shop, cluster, notify=leave).execute(wait_ms=PATIENCE_S * 1000).is_done
    _is_moved(shop, cluster)


def test_others_records_in_the_cluster_are_found(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    def intrude(text: str) -> None:
        if text.startswith("closed"):
            fill(cluster.db, [99])

    with pytest.raises(IllegalStateError, match="somebody else writes to that topic"):
        to_kafka(shop, cluster, notify=intrude).execute()
    assert "billing" not in cluster.db.broker.list_groups()
    assert shop.admin.describe_topic("orders").config["eosdb.moving.to"] == cluster


def test_a_group_that_has_read_on_in_the_cluster_is_not_set_back(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    cluster.db.admin.create_topic("orders", 2)
    cluster.db.broker.offset_commit("audit", {P1: OffsetAndMetadata(40)})
    with pytest.raises(IllegalStateError, match="group audit stands at offset 40 of orders-1"):
        to_kafka(shop, cluster).execute()
    cluster.db.broker.delete_group("audit")
    assert to_kafka(shop, cluster).execute().is_done
    _is_moved(shop, cluster)


def test_a_move_is_taken_back_and_done_again(shop: eosdb.Database, cluster: KafkaDouble) -> None:
    to_kafka(shop, cluster).execute()
    assert not to_kafka(shop, cluster).undo().is_done
    fill(shop, range(200, 210))
    assert to_kafka(shop, cluster).execute().is_done
    _is_moved(shop, cluster)


def test_a_move_is_not_taken_back_when_the_cluster_has_more(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    to_kafka(shop, cluster).execute()
    fill(cluster.db, [99])
    with pytest.raises(IllegalStateError, match="the cluster has records that it lacks"):
        to_kafka(shop, cluster).undo()
    with pytest.raises(PolicyViolationError):
        fill(shop, [1])


def test_a_compacted_topic_moves(tmp_path: Path, cluster: KafkaDouble) -> None:
    with eosdb.connect(tmp_path / "keys.db", durability="off") as db:
        db.admin.create_topic("prices", 1, {"cleanup.policy": "compact"})
        tp = TopicPartition("prices", 0)
        with db.producer() as producer:
            for number in range(60):
                producer.send("prices", f"{number}", key=f"k{number % 7}")
        with relay_to_kafka(db, cluster) as relay:
            relay.run(until_caught_up=True)
        db.housekeeping()
        assert len(contents(db, "prices")) == 7  # The cluster has all of them yet.
        db.broker.offset_commit("readers", {tp: OffsetAndMetadata(56)})
        assert to_kafka(db, cluster).execute().is_done
        at = cluster.db.broker.offset_fetch("readers")[tp].offset
        data = cluster.db.broker.fetch_data(tp, at, isolation_level="read_committed")
        assert list(data.rows.value) == [b"56", b"57", b"58", b"59"]


def test_what_a_killed_relay_left_open_does_not_count(
    shop: eosdb.Database, cluster: KafkaDouble
) -> None:
    cluster.db.admin.create_topic("orders", 2)
    with cluster.db.producer(transactional_id="killed") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"never", partition=0).result()
        assert not to_kafka(shop, cluster).plan().obstacles
        producer.abort_transaction()
    assert to_kafka(shop, cluster).execute().is_done
    _is_moved(shop, cluster)


@pytest.mark.parametrize("side", ["here", "there"])
@pytest.mark.parametrize("step", range(1, 9))
def test_a_topic_made_anew_at_any_step_is_not_taken_for_the_one_that_moves(
    shop: eosdb.Database, cluster: KafkaDouble, side: str, step: int
) -> None:
    """What is in it stays where it is; the next attempt moves it, or says what is in the way."""
    told: list[str] = []
    changing = shop if side == "here" else cluster.db

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == step:
            changing.admin.delete_topic("orders")
            changing.admin.create_topic("orders", 2)
            fill(changing, range(100, 120))

    with contextlib.suppress(EosdbError):
        to_kafka(shop, cluster, notify=tell).execute()
    was_changed = len(told) >= step
    moved_to = shop.admin.describe_topic("orders").config.get("eosdb.moved.to")
    if side == "here" and was_changed:
        assert moved_to is None
        assert len(contents(shop)) == 20
    elif was_changed and not told[-1].startswith("moved"):
        assert moved_to is None
        assert len(contents(cluster.db)) == 20
