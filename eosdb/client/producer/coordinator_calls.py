"""A producer's requests to the coordinator: one at a time, repeated until a definite response arrives.

Kafka: TransactionManager's queue of TxnRequestHandlers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from eosdb.client.answers import Kind, as_coordinators, is_lost, may_be_repeated
from eosdb.client.producer.state import INITIALIZING, LAST_LOCAL_EPOCH, TransactionManager
from eosdb.client.transport import Exchange, Transport
from eosdb.errors import (
    ConcurrentTransactionsError,
    EosdbError,
    InvalidProducerIdMappingError,
    RequestTimedOutError,
    in_doubt,
)
from eosdb.model.metrics import Metrics
from eosdb.model.requests import InitProducerId, Request, TxnOffsetCommit
from eosdb.model.values import ProducerIdAndEpoch

T = TypeVar("T")

_CONCURRENT_BACKOFF_MS: Final = 20
"""The backoff while another transaction of this id is ending, which takes little time."""


class CoordinatorCall(Generic[T]):
    """One request, which is repeated until its definite response arrives."""

    __slots__ = ("attempts", "done", "error", "exchange", "on_answer", "request",
                 "retry_at_ms", "sent_ms", "unanswered")  # fmt: skip

    def __init__(self, request: Request[T], on_answer: Callable[[T], None]) -> None:
        self.request = request
        self.on_answer = on_answer
        self.exchange: Exchange[T] | None = None
        self.sent_ms = self.retry_at_ms = self.attempts = 0
        self.unanswered = 0
        """The attempts without an answer: any of them may have been carried out."""
        self.done = False
        self.error: EosdbError | None = None

    def fail(self, error: EosdbError) -> None:
        if self.unanswered:
            in_doubt(error)
        self.error = error
        self.done = True


class CoordinatorCalls:
    """One producer's queue of requests to the coordinator."""

    def __init__(self, transport: Transport, manager: TransactionManager, metrics: Metrics) -> None:
        self._transport = transport
        self._settings = manager.settings
        self._manager = manager
        self._metrics = metrics
        self._queue: deque[CoordinatorCall[Any]] = deque()

    def enqueue(
        self,
        request: Request[T],
        on_answer: Callable[[T], None],
        exchange: Exchange[T] | None = None,
    ) -> CoordinatorCall[T]:
        """Add a request to the queue. An `exchange` is given if the request was sent already."""
        call = CoordinatorCall(request, on_answer)
        if exchange is not None and exchange.done:
            call.exchange, call.attempts, call.unanswered = exchange, 1, 1
            self._manager.sent += isinstance(request, TxnOffsetCommit)
        self._queue.append(call)
        return call

    def initialize(self) -> CoordinatorCall[ProducerIdAndEpoch]:
        """Add a request for a producer id and epoch to the queue."""
        manager, settings = self._manager, self._settings
        # After an interrupt the state may be INITIALIZING although no request was sent.
        if manager.state is not INITIALIZING:
            manager.transition(INITIALIZING)
        expected = manager.identity if manager.needs_new_epoch else None

        def given(identity: ProducerIdAndEpoch) -> None:
            # Only after the last epoch does the coordinator replace the id of a producer that it knows.
            if (
                expected is not None
                and identity.producer_id != expected.producer_id
                and expected.producer_epoch < LAST_LOCAL_EPOCH - 1
            ):
                call.error = error = InvalidProducerIdMappingError(
                    f"{transactional_id!r}: producer {expected.producer_id} has expired "
                    "(transactional.id.expiration.ms), and a newer one may have taken over meanwhile; "
                    "make a new producer"
                )
                manager.failed(error, InitProducerId)
            elif manager.state is INITIALIZING:
                manager.ended(identity)

        transactional_id, timeout_ms = settings.transactional_id, settings.transaction_timeout_ms
        request = InitProducerId(transactional_id, timeout_ms, *(expected or (-1, -1)))
        call = self.enqueue(request, given)
        return call

    def pending(self, kind: Kind) -> CoordinatorCall[Any] | None:
        """Return the request of this kind that has no response yet."""
        return next((call for call in self._queue if isinstance(call.request, kind)), None)

    def cancel(self, call: CoordinatorCall[T], error: EosdbError) -> None:
        """Fail the request without waiting for its response."""
        self._queue = deque(waiting for waiting in self._queue if waiting is not call)
        call.fail(error)

    def run(self, now_ms: int) -> None:
        """Send due requests and handle responses, until neither is left."""
        while self._queue:
            call = self._queue[0]
            if call.exchange is None:
                if now_ms < call.retry_at_ms:
                    return
                self._manager.sent += isinstance(call.request, TxnOffsetCommit)
                call.unanswered += 1  # Counted first: after an interrupt, it may have been sent.
                call.exchange = self._transport.submit(call.request)
                call.sent_ms = now_ms
                call.attempts += 1
            if not call.exchange.done:
                if now_ms - call.sent_ms < self._settings.request_timeout_ms:
                    return
                call.exchange.fail(
                    RequestTimedOutError(
                        f"{call.request.name}: no answer within request_timeout_ms"
                    )
                )
            self._handle_response(call, now_ms)

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def is_answered(self) -> bool:
        exchange = self._queue[0].exchange if self._queue else None
        return exchange is not None and exchange.done

    def due_ms(self) -> int | None:
        """The time (ms) at which `run` must be called, if no response arrives earlier."""
        if not self._queue:
            return None
        call = self._queue[0]
        if call.exchange is None:
            return call.retry_at_ms
        return call.sent_ms + self._settings.request_timeout_ms

    def _handle_response(self, call: CoordinatorCall[Any], now_ms: int) -> None:
        exchange = call.exchange
        assert exchange is not None
        if exchange.error is None:
            self._queue.popleft()
            call.done, call.error = True, None
            call.on_answer(exchange.answer)
            return
        if isinstance(call.request, TxnOffsetCommit):
            self._manager.answered(exchange.error)
        error = as_coordinators(exchange.error)
        if not is_lost(error):
            call.unanswered -= 1
        self._metrics.error(error)
        if may_be_repeated(error) and not self._manager.is_fatal_state:
            call.exchange = None
            call.error = error
            call.retry_at_ms = now_ms + self._backoff_ms(error, call.attempts)
            self._metrics.count("request-retry")
            return
        self._queue.popleft()
        call.fail(error)
        self._manager.failed(error, type(call.request))

    def _backoff_ms(self, error: EosdbError, attempts: int) -> int:
        backoff = self._settings.retry_backoff_ms
        if isinstance(error, ConcurrentTransactionsError):
            # The broker has waited for the other transaction's end, so the first repeat is immediate.
            return 0 if attempts == 1 else min(backoff, _CONCURRENT_BACKOFF_MS)
        return backoff
