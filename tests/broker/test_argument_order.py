"""Offsets come before the group, as in Kafka's calls; the types tell the other order. Keys are named."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eosdb
import eosdb.aio
from eosdb import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from eosdb.broker.outbox import JoinedTransaction
from tests.cases import each

TP = TopicPartition("t", 0)
OFFSETS = {TP: OffsetAndMetadata(1)}
GROUPS: list[Any] = ["g", ConsumerGroupMetadata("g")]


@pytest.fixture(autouse=True)
def _records(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.producer().send("t", "a")


@each("group", GROUPS)
@each("is_swapped", [False, True])
def test_a_block_takes_both(db: eosdb.Database, group: Any, is_swapped: bool) -> None:
    with db.begin() as tx:
        tx.commit_offsets(*((group, OFFSETS) if is_swapped else (OFFSETS, group)))
    assert db.broker.offset_fetch("g") == OFFSETS


def test_so_does_the_asynchronous_one(tmp_path: Path) -> None:
    path = tmp_path / "another.db"

    async def main() -> None:
        async with eosdb.aio.connect(path) as db:
            await db.admin.create_topic("t")
            async with db.begin() as tx:
                await tx.commit_offsets({TP: 3}, "g")
                await tx.commit_offsets("h", {TP: 4})
        with eosdb.connect(path) as file:
            offsets = [file.broker.offset_fetch(group)[TP].offset for group in "gh"]
            assert offsets == [3, 4]

    asyncio.run(main())


@each("wrong", [("g", "h"), (OFFSETS, OFFSETS), (OFFSETS, None), (7, "g")])
def test_what_is_neither_is_refused(db: eosdb.Database, wrong: Any) -> None:
    with pytest.raises(eosdb.EosdbError, match="got"), db.begin() as tx:
        tx.commit_offsets(*wrong)
    assert db.broker.list_groups() == []


@each(
    "call",
    [
        eosdb.Producer.send,
        eosdb.UserTransaction.publish,
        JoinedTransaction.publish,
        eosdb.aio.AsyncProducer.send,
        eosdb.aio.AsyncProducer.send_and_wait,
        eosdb.aio.AsyncUserTransaction.publish,
    ],
)
def test_a_key_is_given_by_name(call: Callable[..., object]) -> None:
    parameters = [*inspect.signature(call).parameters.values()]
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == ["self", "topic", "value"]
    assert "key" in {each.name for each in parameters}


def test_pairs_begin_with_the_key(db: eosdb.Database) -> None:
    producer = db.producer(value_serializer=str)
    with pytest.raises(
        TypeError, match=r"key: got dict, .*the pairs of send_many are \(key, value\)"
    ):
        producer.send_many("t", [({"total": 1}, "k")])
