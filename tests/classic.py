"""A transactional producer of version 1, by hand: the server speaks it, and the clients of this package do
not."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import eosdb
from eosdb import OffsetAndMetadata, Record, RecordBatch, TopicPartition, TransactionToken
from eosdb.model.requests import EndTxn
from eosdb.model.values import waiting_partition


class ClassicProducer:
    """Has the calls of `eosdb.Producer` that tests make; each record is stored at once."""

    def __init__(self, db: eosdb.Database, transactional_id: str) -> None:
        self._db, self._id = db, transactional_id
        self._sequences: Counter[TopicPartition] = Counter()
        self._number = 0
        self.is_known = False
        """Whether the coordinator has an open transaction."""

    def init_transactions(self) -> None:
        with contextlib.suppress(eosdb.errors.ConcurrentTransactionsError):
            self.who = self._db.broker.init_producer_id(self._id)
            return
        self.who = self._db.broker.init_producer_id(
            self._id
        )  # It had to abort a transaction first.

    def begin_transaction(self) -> TransactionToken:
        return TransactionToken(self._id, *self.who, self._number)

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int = 0,
        headers: Any = (),
        deliver_at: int | None = None,
    ) -> None:
        is_scheduled = deliver_at is not None
        tp = TopicPartition(topic, waiting_partition(partition) if is_scheduled else partition)
        self._db.broker.add_partitions_to_txn(self._id, *self.who, {tp})
        self.is_known = True
        key, value = (data.encode() if isinstance(data, str) else data for data in (key, value))
        record = Record(key, value, tuple(headers), deliver_at)
        batch = RecordBatch(
            [record], *self.who, self._sequences[tp], True, is_scheduled=is_scheduled
        )
        self._sequences[tp] += 1
        self._db.broker.append(tp, batch, transactional_id=self._id, transaction_version=1)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        self._db.broker.add_offsets_to_txn(self._id, *self.who, group)
        self.is_known = True
        self._db.broker.txn_offset_commit(self._id, group, *self.who, offsets)

    def flush(self) -> None:
        """Nothing waits."""

    def commit_transaction(self) -> None:
        self._end(committed=True)

    def abort_transaction(self) -> None:
        self._end(committed=False)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[TransactionToken]:
        yield self.begin_transaction()
        self.commit_transaction()

    def end_request(self, *, committed: bool) -> EndTxn:
        return EndTxn(self._id, *self.who, committed, transaction_version=1)

    def _end(self, *, committed: bool) -> None:
        if self.is_known:
            self._db.broker.ask(self.end_request(committed=committed))
            self.is_known, self._number = False, self._number + 1
        else:  # The coordinator does not know an empty transaction, so the next one needs another epoch.
            self.who = self._db.broker.init_producer_id(self._id, 60_000, *self.who)
            self._sequences.clear()
            self._number = 0


def transactional(db: eosdb.Database, name: str, version: int) -> Any:
    """An initialised producer of this version."""
    made = ClassicProducer(db, name) if version == 1 else db.producer(transactional_id=name)
    made.init_transactions()
    return made
