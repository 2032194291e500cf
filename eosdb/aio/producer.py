"""The producer for asyncio: aiokafka's calls, carried out in the writer's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import groupby
from typing import Any, Final, Never, TypeVar, Unpack

from eosdb.aio.worker import Home, behind, outlived, to_the_end, to_the_end_of_a_block
from eosdb.aio.writer import QueuedCall, QueuedItem, WriterQueue
from eosdb.client.producer.accumulator import ProduceFuture
from eosdb.client.producer.bulk import Sendable, SentRecords
from eosdb.client.producer.producer import Producer
from eosdb.errors import IllegalStateError
from eosdb.model.config import keywords_of
from eosdb.model.records.serializing import check_key_is_named
from eosdb.model.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    RecordOptions,
    TopicPartition,
    TransactionToken,
)

T = TypeVar("T")


class Sending(QueuedItem[RecordMetadata]):
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
        """Pass the record to the producer. If the producer refuses it, the item has its result at once."""
        try:
            self._sent = self._send(producer)
        except BaseException as error:
            self.answer(None, error)

    def settle(self) -> None:
        """Take over the record's result after a flush."""
        if self._sent is not None and not self.is_answered:
            try:
                self.answer(self._sent.result(0), None)
            except BaseException as error:
                self.answer(None, error)

    def hand_over(self) -> None:
        super().hand_over()
        if self._is_in_transaction and not self.future.cancelled():
            self.future.exception()  # Marks the error as seen: the commit raises it, too.


class QueuedSend:
    """The thread's side of an AsyncProducer: a Producer, used only there. Several AsyncProducers without
    transactions may share one, and so share commits."""

    def __init__(self, producer: Producer, *, is_transactional: bool) -> None:
        self.producer: Final = producer
        self.is_transactional: Final = is_transactional
        self.users = 0
        """The AsyncProducers that use this one, counted by the loop."""
        self.refused: BaseException | None = None
        """The error of a record that the open transaction lacks."""

    def work(self, items: Sequence[QueuedItem[Any]]) -> None:
        for are_records, run in groupby(items, lambda item: isinstance(item, Sending)):
            if not are_records:
                for call in run:
                    assert isinstance(call, QueuedCall)
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

    def _begin(self, record: QueuedItem[Any]) -> None:
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
        """Keep the error of a refused record for `commit`: the task may not have seen it by then."""
        if self.refused is None and self.producer.state == "IN_TRANSACTION":
            self.refused = error

    def begin(self) -> TransactionToken:
        token = self.producer.begin_transaction()
        self.refused = None
        return token

    def commit(self) -> None:
        """Commit. Raises the error of a record that the producer has refused, and the errors of
        `Producer.commit_transaction`."""
        if self.refused is not None:
            raise self.refused
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()
        self.refused = None


class _Transaction(AbstractAsyncContextManager[TransactionToken, None]):
    """The block of `AsyncProducer.transaction`: enters and leaves the block of `Producer.transaction` in
    the thread."""

    def __init__(
        self, writer: WriterQueue, outgoing: QueuedSend, check: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._outgoing = outgoing
        self._check = check
        self._block = outgoing.producer.transaction()

    async def __aenter__(self) -> TransactionToken:
        self._check()
        return await self._writer.acquire(
            self._outgoing, self._block.__enter__, lambda _: self._leave(asyncio.CancelledError())
        )

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        left = self._writer.call(self._outgoing, partial(self._leave, error))
        await to_the_end_of_a_block(left, error)

    def _leave(self, error: BaseException | None) -> None:
        refused, self._outgoing.refused = self._outgoing.refused, None
        why = error or refused
        self._block.__exit__(None if why is None else type(why), why, None)
        if error is None and refused is not None:
            raise refused


class AsyncProducer:
    """Sends records, exactly once with a transactional id. Any number of tasks may share it.

    `async with` starts and stops the producer. Records of all tasks, and of producers without transactions,
    go through one queue, and those that wait at the same time share a commit; so do transactions.
    """

    def __init__(
        self,
        home: Home,
        writer: WriterQueue,
        outgoing: QueuedSend,
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
        """Initialise the transactional id, if there is one: fence its previous holder, and end the
        transaction that it left open. Raises the errors of `Producer.init_transactions`."""
        self._home.check_may_write()
        if self._is_started or self._stopped is not None:
            raise IllegalStateError("a producer is started once; create another one")
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
        """Send waiting records, or abort the open transaction; idempotent. A cancelled call still
        completes."""
        if self._stopped is None:
            self._home.check_may_write()
        await outlived(self.begin_to_stop())

    def begin_to_stop(self) -> asyncio.Future[None]:
        """Have the thread close the producer, unless others share it."""
        if self._stopped is None:
            self._stopped = self._writer.call(self._outgoing, self._release())
        return self._stopped

    # -- records --------------------------------------------------------------------------------

    @keywords_of(ProducerRecord)
    async def send(
        self,
        topic: str,
        value: object = None,
        *misplaced: Never,
        **options: Unpack[RecordOptions],
    ) -> asyncio.Future[RecordMetadata]:
        """Queue one record, waiting only if the queue is full. Returns a future of the RecordMetadata.

        Errors that `Producer.send` would raise, also those of serializers, are the future's; in a
        transaction the commit raises them, too. Cancelling the future does not cancel the record.
        """
        check_key_is_named("send", misplaced)
        ProducerRecord(**options)  # Raises TypeError for an unknown keyword.
        self._check()
        await self._home.let_others_run()
        await self._writer.room()
        self._check()
        record = Sending(
            self._home.loop,
            lambda producer: producer.send(topic, value, **options),
            is_in_transaction=self._outgoing.is_transactional,
        )
        parts = options.get("key"), value
        size = 64 + sum(len(data) for data in parts if isinstance(data, bytes | str))
        return self._writer.put(self._outgoing, record, size)

    @keywords_of(ProducerRecord)
    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        *misplaced: Never,
        **options: Unpack[RecordOptions],
    ) -> RecordMetadata:
        """Send one record, and return its metadata when it is stored. Raises the error if it is not."""
        return await (await self.send(topic, value, *misplaced, **options))

    async def send_many(
        self, topic: str, records: Iterable[Sendable], *, partition: int | None = None
    ) -> SentRecords:
        """Like `Producer.send_many`; the iterable is read in another thread."""
        return await self._call(lambda: self._outgoing.send_many(topic, records, partition))

    async def flush(self) -> None:
        """Wait until all records queued so far are stored or have failed."""
        await self._call(lambda: None)

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of the topic. Raises UnknownTopicOrPartitionError."""
        return await self._call(lambda: self._outgoing.producer.partitions_for(topic))

    async def metrics(self) -> dict[str, float]:
        """Return counters, averages and rates under Kafka's names."""
        return await self._call(self._outgoing.producer.metrics)

    # -- transactions ---------------------------------------------------------------------------

    def transaction(self) -> AbstractAsyncContextManager[TransactionToken, None]:
        """Run the block in a transaction: commit at its end, abort if it raises or is cancelled.

        Leaving the block waits until the outcome is known. `as` gives a token for `db.outcome`.
        """
        return _Transaction(self._writer, self._outgoing, self._check)

    async def begin_transaction(self) -> TransactionToken:
        """Like `Producer.begin_transaction`; if the task is cancelled, the transaction is aborted at
        once."""
        self._check()
        return await self._writer.acquire(
            self._outgoing, self._outgoing.begin, lambda _: self._outgoing.abort()
        )

    async def commit_transaction(self) -> None:
        """Like `Producer.commit_transaction`; a cancellation waits for the outcome."""
        self._check()
        await to_the_end(self._writer.call(self._outgoing, self._outgoing.commit))

    async def abort_transaction(self) -> None:
        """Like `Producer.abort_transaction`; a cancellation waits for the outcome."""
        self._check()
        await to_the_end(self._writer.call(self._outgoing, self._outgoing.abort))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's offsets with the transaction. With `await consumer.group_metadata()`, members
        that have lost their partitions are fenced (KIP-447); with the group id alone they are not."""
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

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        stopped = self.begin_to_stop()
        await behind(error, lambda: outlived(stopped))


def with_metadata(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert offsets to OffsetAndMetadata. As in aiokafka, plain numbers are allowed."""
    return {
        tp: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for tp, offset in offsets.items()
    }
