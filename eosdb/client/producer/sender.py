"""The sender: turns waiting batches into requests, and responses into results and states (Kafka: Sender).

The sender has no thread and no loop: `run_once(now)` does due work and returns when more will be due. One
request carries at most one batch for each partition. A batch that has to be sent again keeps its sequence
and waits until all earlier batches have responses, so losses never change the order.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from eosdb.client.answers import is_lost
from eosdb.client.producer.accumulator import ProducerBatch, RecordAccumulator
from eosdb.client.producer.completion import BatchCompletion
from eosdb.client.producer.coordinator_calls import CoordinatorCall, CoordinatorCalls
from eosdb.client.producer.state import ABORTABLE_ERROR, READY, UNINITIALIZED, TransactionManager
from eosdb.client.transport import CarriesOutTurns, DirectTransport, Exchange, Transport
from eosdb.errors import (
    DatabaseLockedError,
    EosdbError,
    NetworkExceptionError,
    RequestTimedOutError,
)
from eosdb.model.metrics import Metrics
from eosdb.model.requests import AddPartitionsToTxn, Produce, Request
from eosdb.model.threads import Fate
from eosdb.model.values import CLASSIC, ProduceResult, ProducerIdAndEpoch, TopicPartition

Behind: TypeAlias = Sequence[tuple[Request[Any], Exchange[Any]]]
"""Requests that require all earlier records to be stored, and the exchanges for their answers."""
ProduceAnswer: TypeAlias = dict[TopicPartition, ProduceResult]


class SentBatch(NamedTuple):
    """One attempt to store a batch."""

    batch: ProducerBatch
    identity: ProducerIdAndEpoch | None
    was_first: bool
    """Whether all earlier batches had responses when this one was sent."""


class ProduceRequest(NamedTuple):
    """One request in flight."""

    exchange: Exchange[ProduceAnswer]
    attempts: list[SentBatch]
    sent_ms: int
    sent_ns: int


class Turn(NamedTuple):
    """Requests that the broker carries out together or not at all, kept until their answers are handled."""

    requests: list[list[SentBatch]]
    behind: Behind
    fate: Fate
    sent_ms: int
    sent_ns: int


class Sender:
    """Sends the requests of one producer. The caller holds the producer's lock."""

    def __init__(
        self,
        transport: Transport,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        metrics: Metrics,
    ) -> None:
        self.settings: Final = manager.settings
        settings = self.settings
        self.transport: Final = transport
        self._direct = transport if type(transport) is DirectTransport else None
        """The transport if it is direct: it carries out requests at once and in order, so several may be
        submitted together."""
        self._may_go_together = self._direct is not None and (
            settings.enable_idempotence or settings.max_in_flight_requests_per_connection > 1
        )
        self.manager: Final = manager
        self.accumulator: Final = accumulator
        self.metrics: Final = metrics
        self.coordinator: Final = CoordinatorCalls(transport, manager, metrics)
        self._initialized: CoordinatorCall[ProducerIdAndEpoch] | None = None
        """The request for an identity, without transactions."""
        self._completion = BatchCompletion(manager, accumulator, metrics)
        self._on_the_way: list[ProduceRequest] = []
        self._acks = str(settings.acks).strip().lower()
        self._fire_and_forget = self._acks == "0"
        self._turn: Turn | None = None
        """The turn whose answers an interrupt has left unhandled."""
        self.is_running = False
        """Whether a step runs; a caller that sees it is inside a delivery callback."""
        self._in_hand: list[ProducerBatch] = []
        self._is_whole = True
        """Whether no step was interrupted, for example by a signal (decisions/0018)."""
        self.is_flushing = False
        """Whether all batches are sent at once, full or not."""

    # -- one step -------------------------------------------------------------------------------

    # decisions/0006: the sender has no thread of its own; its callers pass the time.
    def run_once(self, now_ms: int) -> int | None:
        """Do the work that is due at `now_ms`. Returns the ms until more is due; None if nothing is
        left. Delivery callbacks run when all states are final; records that they send are sent in the
        same run."""
        if self.is_running:
            return 0
        self.is_running = True
        try:
            self._begin_step()
            due = self._work(now_ms)
            if self._completion.call_back():
                due = self._work(now_ms)
            self._is_whole = True
            return due
        finally:
            self.is_running = False

    def _begin_step(self) -> None:
        """Repair the state that an interrupted step left behind."""
        if not self._is_whole:
            if self._turn is not None and (answers := self._turn.fate.ask()) is not None:
                self._answered(self._turn, answers)
            self._turn = None
            self._completion.mend(
                self._in_hand,
                [attempt.batch for request in self._on_the_way for attempt in request.attempts],
            )
        self._is_whole = False

    def settle(self) -> None:
        """Learn the outcome of an interrupted turn."""
        if self._turn is not None:
            self._begin_step()
            self._is_whole = True

    def _work(self, now_ms: int) -> int | None:
        self.transport.poll()
        self._receive(now_ms)
        self._completion.expire(now_ms)
        self.coordinator.run(now_ms)
        self._completion.resolve(lambda: self._current_identity(now_ms))
        while requests := self._drain_all(now_ms):
            self._send(requests, now_ms)
            self.coordinator.run(now_ms)
            self._completion.resolve(lambda: self._current_identity(now_ms))
        return self._next_due(now_ms)

    def has_unanswered(self) -> bool:
        """Whether a batch waits or is in flight, or was being handled by an interrupted step."""
        return (
            bool(self.accumulator)
            or not (self._is_whole or self.is_running)
            or any(not a.batch.done for request in self._on_the_way for a in request.attempts)
        )

    def drop_waiting(self, why: EosdbError, *, unsent_only: bool = False) -> None:
        """Fail the batches that are not in flight. A batch with a sequence may be stored already;
        `unsent_only` keeps it until its outcome is known (Kafka:
        RecordAccumulator.abortUndrainedBatches)."""
        if not self.is_running:
            self._begin_step()
        for batch in self.accumulator.waiting():
            if not (unsent_only and batch.identity):
                self._completion.give_up(batch, why)
        if not self.is_running:
            self._completion.call_back()
            self._is_whole = True

    def drop_all(self, why: EosdbError) -> None:
        """Fail all batches; later responses are ignored."""
        for request in self._on_the_way:
            for attempt in request.attempts:
                attempt.batch.is_sent = False
                attempt.batch.in_doubt = True
                if not attempt.batch.done:
                    self._completion.give_up(attempt.batch, why)
        self._on_the_way.clear()
        self.drop_waiting(why)

    # -- answers --------------------------------------------------------------------------------

    def _receive(self, now_ms: int) -> None:
        """Handle the responses that have arrived, and give up overdue ones."""
        if not self._on_the_way:
            return
        waiting: list[ProduceRequest] = []
        arrived: list[ProduceRequest] = []
        for request in self._on_the_way:
            if not request.exchange.done:
                if now_ms - request.sent_ms < self.settings.request_timeout_ms:
                    waiting.append(request)
                    continue
                request.exchange.fail(
                    RequestTimedOutError("produce: no answer within request_timeout_ms")
                )
            arrived.append(request)
        self._on_the_way = waiting
        for request in arrived:
            self._handle_response(request, now_ms)

    def _handle_response(self, request: ProduceRequest, now_ms: int) -> None:
        error = request.exchange.error
        if error is not None:
            self.metrics.error(error)
            self.manager.answered(error)
        answer = error or request.exchange.answer
        self._complete_all(request.attempts, answer, now_ms, request.sent_ns)

    def _complete_all(
        self,
        attempts: list[SentBatch],
        answer: ProduceAnswer | EosdbError,
        now_ms: int,
        sent_ns: int,
    ) -> None:
        self.metrics.observe("request-latency", (self.metrics.now_ns() - sent_ns) / 1_000_000)
        for attempt in attempts:
            one = answer if isinstance(answer, EosdbError) else answer[attempt.batch.tp]
            self._complete(attempt, one, now_ms)

    def _complete(
        self, attempt: SentBatch, answer: ProduceResult | EosdbError, now_ms: int
    ) -> None:
        batch, identity, was_first = attempt
        batch.is_sent = False
        batch.in_doubt |= is_lost(answer if isinstance(answer, EosdbError) else answer.error)
        self._completion.complete(batch, identity, was_first, answer, now_ms)

    # -- requests -------------------------------------------------------------------------------

    def _drain_all(self, now_ms: int) -> list[list[SentBatch]]:
        """Return the requests that may be sent now; more than one only if none can overtake another."""
        requests: list[list[SentBatch]] = []
        self._in_hand = []
        while (attempts := self._drain(now_ms)) and self._may_go_together:
            requests.append(attempts)
        return [*requests, attempts] if attempts else requests

    def _drain(self, now_ms: int) -> list[SentBatch]:
        """Return the batches of one request, at most one for each partition."""
        if not self.accumulator:
            return []
        manager = self.manager
        if manager.is_fatal_state:
            assert manager.error is not None
            self.drop_waiting(manager.error)
            return []
        if manager.state is ABORTABLE_ERROR:
            assert manager.error is not None
            self.drop_waiting(manager.error, unsent_only=True)
        queues = self.accumulator.queues()
        if not queues:
            return []
        identity: ProducerIdAndEpoch | None = None
        if self.settings.enable_idempotence:
            identity = self._current_identity(now_ms)
            if identity is None:
                return []
        taken: list[SentBatch] = []
        for tp, queue in queues:
            batch = queue[0]
            if batch.retry_at_ms > now_ms or tp in self._completion.to_bump:
                continue
            if batch.attempts == 0 and not self._is_ready(queue, now_ms):
                continue
            if not self._is_added(tp):
                continue
            progress = manager.progress(tp)
            was_first = True
            if identity is None:
                on_the_way = sum(a.batch.tp == tp for r in self._on_the_way for a in r.attempts)
                if on_the_way >= self.settings.max_in_flight_requests_per_connection:
                    continue
            elif batch.identity is None:
                limit = self.settings.max_in_flight_requests_per_connection
                if not progress.admits_new(
                    identity, limit, now_ms, in_order=self._direct is not None
                ):
                    continue
                progress.assign(batch, identity)
                was_first = progress.is_first(batch)
            elif not progress.is_first(batch):
                continue
            self._in_hand.append(batch)
            self.accumulator.take_first(tp)
            taken.append(SentBatch(batch, batch.identity, was_first))
        return taken

    def _send(self, requests: list[list[SentBatch]], now_ms: int) -> None:
        """Submit requests, together if the transport is direct, and handle the responses that are there."""
        is_transactional = self.manager.transactional_id is not None
        start_ns = self.metrics.now_ns()
        produces = [self._request(attempts) for attempts in requests]
        try:
            if self._direct is None:
                exchanges = [self.transport.submit(request) for request in produces]
            else:
                exchanges = self._direct.submit_all(produces, sync=not is_transactional)
        except BaseException:
            self._interrupted(requests, now_ms)
            raise
        self._sent(requests, exchanges, now_ms, start_ns)

    # decisions/0015: without a network, EndTxn may share a commit with the last records.
    def flush_before(self, behind: Behind, now_ms: int, *, sync: bool) -> None:
        """Send all waiting batches and, in the same turn, the transaction's requests that require them to
        be stored. If a batch waits for a callback or a retry, anything was refused, or the transport is
        not direct, their exchanges stay open, and the caller must send them after a flush."""
        waiting = self.accumulator.waiting()
        direct = self._direct
        if (
            direct is None
            or direct.turns is None
            or self.manager.version == CLASSIC
            or self.is_running
            or self.coordinator
            or any(batch.attempts or batch.callbacks for batch in waiting)
        ):
            return
        self.is_running = self.is_flushing = True
        try:
            self._begin_step()
            requests = self._drain_all(now_ms)
            if requests and self.accumulator:
                self._send(requests, now_ms)
            elif requests or len(behind) > 1:
                turn = Turn(requests, behind, Fate(), now_ms, self.metrics.now_ns())
                self._carry_out(direct, direct.turns, turn, sync=sync)
            self._is_whole = True
        finally:
            self.is_running = self.is_flushing = False

    def _carry_out(
        self, direct: DirectTransport, turns: CarriesOutTurns, turn: Turn, *, sync: bool
    ) -> None:
        produces = [self._request(attempts) for attempts in turn.requests]
        together = [*produces, *(request for request, _ in turn.behind)]
        self._turn = turn
        try:
            answers = turns.turn(together, sync=sync, fate=turn.fate)
        except EosdbError as error:
            self._turn = None
            if isinstance(error, DatabaseLockedError):
                for _, exchange in turn.behind:
                    exchange.fail(error)  # The turn has already waited for the lock.
                self._take_back(turn.requests)
                return
            try:
                exchanges = direct.in_order(produces, error)
            except BaseException:
                self._interrupted(turn.requests, turn.sent_ms)
                raise
            self._sent(turn.requests, exchanges, turn.sent_ms, turn.sent_ns)
        else:
            self._answered(turn, answers)

    def _answered(self, turn: Turn, answers: list[Any]) -> None:
        """Handle the answers of all requests; again if a signal interrupts it."""
        count = len(turn.requests)
        for (_, exchange), answer in zip(turn.behind, answers[count:], strict=True):
            exchange.succeed(answer)
        self.metrics.count("request", count)
        for attempts, answer in zip(turn.requests, answers[:count], strict=True):
            self._complete_all(attempts, answer, turn.sent_ms, turn.sent_ns)
        self._turn = None

    def _take_back(self, requests: list[list[SentBatch]]) -> None:
        """Return batches to the unsent ones, because the locked file has refused them."""
        self.manager.sent -= len(requests)
        for batch, _, _ in reversed(list(itertools.chain.from_iterable(requests))):
            batch.attempts, batch.is_sent = 0, False
            self.manager.progress(batch.tp).take_back(batch)
            self.accumulator.put_back(batch)

    def _sent(
        self,
        requests: list[list[SentBatch]],
        exchanges: list[Exchange[ProduceAnswer]],
        now_ms: int,
        start_ns: int,
    ) -> None:
        """Handle the responses that are there, and keep the other requests as in flight."""
        self.metrics.count("request", len(requests))
        for exchange, attempts in zip(exchanges, requests, strict=True):
            request = ProduceRequest(exchange, attempts, now_ms, start_ns)
            if exchange.done:
                self._handle_response(request, now_ms)
            elif self._fire_and_forget:
                for attempt in attempts:
                    self._complete(attempt, ProduceResult(), now_ms)
            else:
                self._on_the_way.append(request)

    def _interrupted(self, requests: list[list[SentBatch]], now_ms: int) -> None:
        """Treat an interrupt, or an error of a bug, as a lost response: the batches may have arrived."""
        lost = NetworkExceptionError("produce: interrupted before there was an answer")
        for attempts in requests:
            for attempt in attempts:
                self._complete(attempt, lost, now_ms)

    def _request(self, attempts: list[SentBatch]) -> Produce:
        transactional_id = self.manager.transactional_id
        batches = {}
        for batch, _, _ in attempts:
            batch.attempts += 1
            batch.is_sent = True
            batches[batch.tp] = batch.request(transactional_id is not None)
            if batch.attempts > 1:
                self.metrics.count("record-retry", len(batch.records))
        self.manager.sent += 1
        acks, timeout_ms = self._acks, self.settings.request_timeout_ms
        version = None if transactional_id is None else self.manager.version
        return Produce(
            batches,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            transaction_version=version,
        )

    def _is_ready(self, queue: deque[ProducerBatch], now_ms: int) -> bool:
        return (
            self.is_flushing
            or len(queue) > 1
            or queue[0].size >= self.accumulator.batch_size
            or now_ms - queue[0].created_ms >= self.settings.linger_ms
        )

    def _is_added(self, tp: TopicPartition) -> bool:
        """Whether the partition may be written to. Version 1 requires that it is first added to the
        transaction."""
        manager = self.manager
        tid = manager.transactional_id
        if tid is None or manager.version > CLASSIC or tp in manager.partitions:
            return True
        if self.coordinator.pending(AddPartitionsToTxn) is None:
            assert manager.identity is not None
            identity = manager.identity
            fresh = {tp for tp, _ in self.accumulator.queues()} - manager.partitions
            self.coordinator.enqueue(
                AddPartitionsToTxn(tid, *identity, fresh),
                lambda _: manager.partitions.update(fresh),
            )
        return False

    def _current_identity(self, now_ms: int) -> ProducerIdAndEpoch | None:
        """Return the producer id and epoch; None while they are being requested. A producer without
        transactions requests them here."""
        manager = self.manager
        if manager.identity is None and manager.transactional_id is None:
            if manager.state is READY:
                manager.transition(UNINITIALIZED)  # No epoch is left; get a new producer id.
            if self._initialized is None:
                self._initialized = self.coordinator.initialize()
                self.coordinator.run(now_ms)
            if self._initialized.done:
                initialized, self._initialized = self._initialized, None
                if initialized.error is not None:
                    self.drop_waiting(initialized.error)
        return manager.identity

    # -- the time of the next run ---------------------------------------------------------------

    def _next_due(self, now_ms: int) -> int | None:
        settings = self.settings
        if not (self._on_the_way or self.accumulator or self.coordinator):
            return None
        due = [request.sent_ms + settings.request_timeout_ms for request in self._on_the_way]
        coordinator = self.coordinator.due_ms()
        if coordinator is not None:
            due.append(coordinator)
        for _, queue in self.accumulator.queues():
            batch = queue[0]
            due.append(batch.created_ms + settings.delivery_timeout_ms)
            if batch.retry_at_ms > now_ms:
                due.append(batch.retry_at_ms)
            elif batch.attempts == 0 and not self._is_ready(queue, now_ms):
                due.append(batch.created_ms + settings.linger_ms)
        if not due:
            return None
        wait = max(0, min(due) - now_ms)
        if self._on_the_way or coordinator is not None:
            delivery = self.transport.poll()
            # A response that arrived during this run is handled at once by the next.
            if self.coordinator.is_answered or any(r.exchange.done for r in self._on_the_way):
                return 0
            if delivery is not None:
                wait = min(wait, delivery)
        return wait
