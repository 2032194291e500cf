"""Transactions of handlers with one parameter: Kafka's transactions, with a producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eosdb.client.consumer.consumer import Consumer
from eosdb.client.processor.transaction import (
    FAULTS_OF_RESULTS,
    Make,
    Offsets,
    ProcessingTransaction,
    send_by,
)
from eosdb.client.producer.producer import Producer
from eosdb.client.producer.state import ClientState
from eosdb.model.clock import Clock
from eosdb.model.metrics import Metrics
from eosdb.model.values import ProducerRecord

_MAY_BE_ABORTED: Final = {
    ClientState.IN_TRANSACTION.name,
    ClientState.ABORTABLE_ERROR.name,
    ClientState.ABORTING_TRANSACTION.name,
}
_REFUSED: Final = {ClientState.ABORTABLE_ERROR.name, ClientState.FATAL_ERROR.name}


class ProducerTransaction(ProcessingTransaction):
    """Processes records in Kafka's transactions, one at a time."""

    outlives_poll = True

    def __init__(
        self,
        consumer: Consumer,
        clock: Clock,
        metrics: Metrics,
        make_producer: Callable[[], Producer],
    ) -> None:
        super().__init__(consumer, clock, metrics)
        self._make_producer = make_producer

    def prepare(self) -> None:
        if self.producer is None:
            producer = self._make_producer()
            producer.init_transactions()
            self.producer = producer

    def begin(self) -> None:
        if self._began_ms is None:
            self.prepare()
            assert self.producer is not None
            self.producer.begin_transaction()
            self._began_ms = self._clock.monotonic_ms()

    def deliver(self, make: Make) -> Exception | None:
        self.begin()
        # decisions/0010: results are sent after the handler has returned, so there is nothing to roll
        # back.
        try:
            results = make(None)
        except Exception as error:
            return error
        assert not self.is_broken
        # After an interrupt between two results, the transaction must not be committed.
        self.is_broken = bool(results)
        for result in results:
            was_refused = self.producer is not None and self.producer.state in _REFUSED
            try:
                self.send(result)
            except FAULTS_OF_RESULTS as error:
                if was_refused:
                    raise  # The refused send may have been for an earlier record.
                return error
        self.is_broken = False
        return None

    def send(self, record: ProducerRecord) -> None:
        self.begin()
        assert self.producer is not None
        send_by(self.producer.send, record)

    def commit(self) -> Offsets:
        if self._began_ms is None:
            return {}
        assert self.producer is not None
        offsets = self._offsets()
        self.producer._commit_with(offsets, self._committer())
        self._is_committed()
        self._forget()
        return offsets

    def _undo(self) -> None:
        producer = self.producer
        if producer is None:
            return
        if producer.state in _MAY_BE_ABORTED:
            producer.abort_transaction()
        if producer.state != ClientState.READY.name:
            # The producer was fenced, or is in the middle of a commit: initialising the id again ends the
            # transaction.
            producer.close()
            self.producer = None
            self.prepare()

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close()
