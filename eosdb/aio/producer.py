"""The producer for asyncio: aiokafka's calls, carried out by the writer's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Any, Final, TypeVar

from eosdb.aio.worker import Home, outlived, to_the_end, to_the_end_of_a_block
from eosdb.aio.writer import Call, Item, Writer
from eosdb.client.producer.accumulator import ProduceFuture
from eosdb.client.producer.layout import Sendable
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.sent import SentRecords
from eosdb.errors import IllegalStateError
from eosdb.model.values import (
    ConsumerGroupMetadata,
    Headers,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
    TransactionToken,
)

T = TypeVar("T")


class Sending(Item[RecordMetadata]):
    """A record to send."""

    __slots__ = ("_is_in_transaction", "_send", "_sent")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[Producer], ProduceFuture],
        *,
        is_in_transaction: bool,
    ) -> None:
        super().__init__(loop)
        self._is_in_transaction = is_in_transaction
        self._send = send
        self._sent: ProduceFuture | None = None

    def begin(self, producer: Producer) -> None:
        """Give the record to the producer. It has an answer at once if that refuses it."""
        try:
            self._sent = self._send(producer)
        except BaseException as error:
            self.answer(None, error)

    def settle(self) -> None:
        """Take the answer, after a flush."""
        if self._sent is not None and not self.is_answered:
            try:
                self.answer(self._sent.result(0), None)
            except BaseException as error:
                self.answer(None, error)

    def hand_over(self) -> None:
        super().hand_over()
        if self._is_in_transaction and not self.future.cancelled():
            self.future.exception()  # The end of the transaction says it, too: asyncio need not.


class Outgoing:
    """The thread's side: a producer, used by nobody else. Several AsyncProducers may share one that has no
    transactions, and with it their commits."""

    def __init__(self, producer: Producer, *, is_transactional: bool) -> None:
        self.producer: Final = producer
        self.is_transactional: Final = is_transactional
        self.users = 0
        """How many AsyncProducers use it; the loop counts."""
        self._refused: BaseException | None = None
        """Why the open transaction lacks a record."""

    def work(self, items: Sequence[Item[Any]]) -> None:
        for are_records, run in groupby(items, lambda item: isinstance(item, Sending)):
            if not are_records:
                for call in run:
                    assert isinstance(call, Call)
                    call.run()
            elif self.is_transactional:
                for record in run:
                    self._begin(record)
            else:
                with self.producer.gathering():
                    for record in run:
                        self._begin(record)
        records = [item for item in items if isinstance(item, Sending)]
        if records and self.is_transactional:
            self.producer.flush()
        for record in records:
            record.settle()

    def _begin(self, record: Item[Any]) -> None:
        assert isinstance(record, Sending)
        record.begin(self.producer)
        if record.error is not None:
            self._lacks_a_record(record.error)

    def send_many(
        self, topic: str, records: Iterable[Sendable], partition: int | None
    ) -> SentRecords:
        try:
            return self.producer.send_many(topic, records, partition=partition)
        except BaseException as error:
            self._lacks_a_record(error)
            raise

    def _lacks_a_record(self, error: BaseException) -> None:
        """In Python's threads a refused record raises inside the transaction; here its task may not have
        looked yet when it commits."""
        if self._refused is None and self.producer.state == "IN_TRANSACTION":
            self._refused = error

    def take_refused(self) -> BaseException | None:
        refused, self._refused = self._refused, None
        return refused

    def begin(self) -> TransactionToken:
        token = self.producer.begin_transaction()
        self._refused = None
        return token

    def commit(self) -> None:
        """Raises what kept a record out of the transaction, or what commit_transaction raises."""
        if self._refused is not None:
            raise self._refused
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()
        self._refused = None


class _Transaction(AbstractAsyncContextManager[TransactionToken, None]):
    """The block of `producer.transaction()`: the Producer's own, entered and left by the thread."""

    def __init__(self, writer: Writer, outgoing: Outgoing, check: Callable[[], None]) -> None:
        self._writer = writer
        self._outgoing = outgoing
        self._check = check
        self._block = outgoing.producer.transaction()

    async def __aenter__(self) -> TransactionToken:
        self._check()
        return await self._writer.acquire(
            self._outgoing, self._block.__enter__, lambda _: self._leave(asyncio.CancelledError())
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left = self._writer.call(self._outgoing, partial(self._leave, error))
        await to_the_end_of_a_block(left, error)

    def _leave(self, error: BaseException | None) -> None:
        refused = self._outgoing.take_refused()
        why = error or refused
        self._block.__exit__(None if why is None else type(why), why, None)
        if error is None and refused is not None:
            raise refused


class AsyncProducer:
    """Sends records; exactly once with a transactional id. Any number of tasks may share it.

    `async with` starts and stops it. Records of all tasks and producers go through one queue, and those
    that wait at the same time share a commit.
    """

    def __init__(
        self,
        home: Home,
        writer: Writer,
        outgoing: Outgoing,
        release: Callable[[], Callable[[], None]],
    ) -> None:
        self._home = home
        self._writer = writer
        self._outgoing = outgoing
        self._release = release
        self._is_started = False
        self._stopped: asyncio.Future[None] | None = None

    @property
    def state(self) -> str:
        """The producer's state by Kafka's name, such as `IN_TRANSACTION`."""
        return self._outgoing.producer.state

    async def start(self) -> None:
        """Take the transactional id, if there is one: fence its previous holder, and end what that left
        open. Raises what `Producer.init_transactions` raises."""
        self._home.check_may_write()
        if self._is_started or self._stopped is not None:
            raise IllegalStateError("a producer is started once; make another one")
        if self._outgoing.is_transactional:
            producer = self._outgoing.producer
            try:
                await self._writer.acquire(
                    self._outgoing, producer.init_transactions, lambda _: producer.close()
                )
            except asyncio.CancelledError:
                self.begin_to_stop()
                raise
        self._is_started = True

    async def stop(self) -> None:
        """Send what waits, or abort the open transaction; idempotent. Also done when it is cancelled."""
        if self._stopped is None:
            self._home.check_may_write()
        await outlived(self.begin_to_stop())

    def begin_to_stop(self) -> asyncio.Future[None]:
        """Have the thread close the producer, unless others share it."""
        if self._stopped is None:
            self._stopped = self._writer.call(self._outgoing, self._release())
        return self._stopped

    # -- records --------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record, waiting only for room; returns a future of its RecordMetadata.

        Everything that `Producer.send` raises, serializers included, is the future's error; in a
        transaction it is the commit's error, too. Cancelling the future does not take the record back.
        """
        self._check()
        await self._home.let_others_run()
        await self._writer.room()
        self._check()
        record = Sending(
            self._home.loop,
            lambda producer: producer.send(
                topic, value, key, partition=partition, headers=headers, timestamp=timestamp
            ),
            is_in_transaction=self._outgoing.is_transactional,
        )
        size = 64 + sum(len(data) for data in (key, value) if isinstance(data, bytes | str))
        return self._writer.put(self._outgoing, record, size)

    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send one record, and return its place once it is stored. Raises what keeps it from that."""
        return await (
            await self.send(
                topic, value, key, partition=partition, headers=headers, timestamp=timestamp
            )
        )

    async def send_many(
        self, topic: str, records: Iterable[Sendable], *, partition: int | None = None
    ) -> SentRecords:
        """Send an iterable, which is read in another thread, as `Producer.send_many` does."""
        return await self._call(lambda: self._outgoing.send_many(topic, records, partition))

    async def flush(self) -> None:
        """Wait until every record queued so far is stored or has failed."""
        await self._call(lambda: None)

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions of the topic. Raises UnknownTopicOrPartitionError."""
        return await self._call(lambda: self._outgoing.producer.partitions_for(topic))

    async def metrics(self) -> dict[str, float]:
        """Counters, averages and rates under Kafka's names."""
        return await self._call(self._outgoing.producer.metrics)

    # -- transactions ---------------------------------------------------------------------------

    def transaction(self) -> AbstractAsyncContextManager[TransactionToken, None]:
        """A transaction around the block: committed at its end, aborted when it raises or is cancelled.

        The block is left when the outcome is known, and gives a token for `db.outcome`.
        """
        return _Transaction(self._writer, self._outgoing, self._check)

    async def begin_transaction(self) -> TransactionToken:
        """As `Producer.begin_transaction`; for a cancelled task it is aborted at once."""
        self._check()
        return await self._writer.acquire(
            self._outgoing, self._outgoing.begin, lambda _: self._outgoing.abort()
        )

    async def commit_transaction(self) -> None:
        """As `Producer.commit_transaction`; a cancellation waits for the outcome."""
        self._check()
        await to_the_end(self._writer.call(self._outgoing, self._outgoing.commit))

    async def abort_transaction(self) -> None:
        """As `Producer.abort_transaction`; a cancellation waits for the outcome."""
        self._check()
        await to_the_end(self._writer.call(self._outgoing, self._outgoing.abort))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's offsets with the transaction: `await consumer.group_metadata()` fences members
        that have lost their partitions (KIP-447), the group's name alone does not."""
        given = with_metadata(offsets)
        await self._call(
            lambda: self._outgoing.producer.send_offsets_to_transaction(given, group_metadata)
        )

    async def _call(self, function: Callable[[], T]) -> T:
        self._check()
        return await self._writer.call(self._outgoing, function)

    def _check(self) -> None:
        self._home.check_may_write()
        if self._stopped is not None:
            raise IllegalStateError("the producer has been stopped")
        if not self._is_started:
            raise IllegalStateError(
                "the producer has not been started; use `async with`, or await producer.start()"
            )

    async def __aenter__(self) -> AsyncProducer:
        try:
            await self.start()
        except BaseException:
            if not self._is_started:
                self.begin_to_stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stopped = self.begin_to_stop()
        if not isinstance(error, GeneratorExit):
            await outlived(stopped)


def with_metadata(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as aiokafka takes them, bare or with metadata."""
    return {
        tp: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for tp, offset in offsets.items()
    }
