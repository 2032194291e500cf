"""The sender: drains waiting batches, asks the broker, and completes the batches by its answers (Kafka:
Sender).

The sender has no thread and no loop: `run_once(now)` does due work and returns when more will be due. A
batch whose answer is lost is asked for again with its sequence, before those behind it, so losses never
change the order. `state.py` says how a batch moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

from eosdb.client.answers import as_coordinators, may_be_repeated
from eosdb.client.producer.accumulator import ProducerBatch, RecordAccumulator
from eosdb.client.producer.state import (
    ABORTABLE_ERROR,
    INITIALIZING,
    LAST_LOCAL_EPOCH,
    READY,
    UNINITIALIZED,
    Batches,
    TransactionManager,
)
from eosdb.client.transport import DirectTransport, Transport
from eosdb.errors import (
    DatabaseLockedError,
    EosdbError,
    InvalidProducerIdMappingError,
    of_what_was_not_sent,
)
from eosdb.model.metrics import Metrics
from eosdb.model.requests import EndTxn, InitProducerId, Produce, Request, TxnOffsetCommit
from eosdb.model.threads import Fate
from eosdb.model.values import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch

T = TypeVar("T")


class Turn(NamedTuple):
    """One call of the broker, kept until its answers are handled."""

    produces: list[list[ProducerBatch]]
    """The batches of each Produce request, at most one for each partition."""
    behind: Sequence[Request[Any]]
    """The transaction's requests that require these batches to be stored."""
    fate: Fate
    now_ms: int
    now_ns: int


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
        self.transport: Final = transport
        self.manager: Final = manager
        self.accumulator: Final = accumulator
        self.metrics: Final = metrics
        self._joins = (
            type(transport) is DirectTransport
            and transport.joins
            and self.settings.enable_idempotence
        )
        """Whether the requests of one call share a commit. Without idempotence nothing but the order of the
        calls keeps the records in order."""
        self._batches = Batches(manager, accumulator, metrics)
        self._acks = str(self.settings.acks).strip().lower()
        self._initialize_at_ms = 0
        """When a producer id may be asked for again, without transactions."""
        self.committed: ProducerIdAndEpoch | None = None
        """The answer to an EndTxn that went with the last records, until it is taken over."""
        self.is_running = False
        """Whether a step runs; a caller that sees it is inside a delivery callback."""
        self.is_flushing = False
        """Whether all batches are sent at once, full or not."""
        self._in_hand: list[ProducerBatch] = []
        self._turn: Turn | None = None
        self._is_whole = True
        """Whether no step was interrupted, for example by a signal (decisions/0018)."""

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
            if self._batches.call_back():
                due = self._work(now_ms)
            self._is_whole = True
            return due
        finally:
            self.is_running = False

    def _work(self, now_ms: int) -> int | None:
        self._batches.expire(now_ms)
        while produces := self._drain(now_ms):
            self._ask(produces, now_ms)
        return self._next_due(now_ms)

    # decisions/0015: without a network, EndTxn may share a commit with the last records.
    def ask_with_last(
        self, behind: Sequence[Request[Any]], now_ms: int, *, sync: bool
    ) -> list[Any]:
        """Send all waiting batches and, in the same turn, the transaction's requests that require them to
        be stored. Returns the answers of `behind`; none if the caller must send these after a flush: if
        the transport does not join requests, or a batch waits for a callback or a retry."""
        waiting = self.accumulator.waiting()
        if (
            not self._joins
            or self.is_running
            or any(batch.attempts or batch.callbacks for batch in waiting)
        ):
            return []
        self.is_running = self.is_flushing = True
        try:
            self._begin_step()
            produces, answers = self._drain(now_ms), []
            if not self.accumulator and (produces or len(behind) > 1):
                answers = self._ask(produces, now_ms, behind, sync=sync)
            elif produces:
                self._ask(produces, now_ms)
            self._is_whole = True
            return answers
        finally:
            self.is_running = self.is_flushing = False

    def _begin_step(self) -> None:
        """Repair the state that an interrupted step left behind."""
        if not self._is_whole:
            turn = self._turn
            if turn is not None and (answers := turn.fate.ask()) is not None:
                self._answered(turn, answers)
            self._turn = None
            self._batches.mend(self._in_hand)
        self._is_whole = False

    def settle(self) -> None:
        """Learn the outcome of an interrupted turn."""
        if self._turn is not None:
            self._begin_step()
            self._is_whole = True

    def has_unanswered(self) -> bool:
        """Whether a batch waits, or was being handled by an interrupted step."""
        return bool(self.accumulator) or not (self._is_whole or self.is_running)

    def drop_waiting(self, why: EosdbError, *, unsent_only: bool = False) -> None:
        """Fail the waiting batches. A batch with a sequence may be stored already; `unsent_only` keeps it
        until its outcome is known (Kafka: RecordAccumulator.abortUndrainedBatches)."""
        if not self.is_running:
            self._begin_step()
        for batch in self.accumulator.waiting():
            if not unsent_only:
                self._batches.give_up(batch, why)
            elif not batch.identity:
                self._batches.give_up(batch, of_what_was_not_sent(why))
        if not self.is_running:
            self._batches.call_back()
            self._is_whole = True

    # -- drain, ask, complete -------------------------------------------------------------------

    def _drain(self, now_ms: int) -> list[list[ProducerBatch]]:
        """Take the batches that may be sent now, as the Produce requests of one call."""
        self._in_hand = []
        if not self.accumulator:
            return []
        manager = self.manager
        if manager.is_in_error:
            assert manager.error is not None
            self.drop_waiting(manager.error, unsent_only=manager.state is ABORTABLE_ERROR)
        produces: list[list[ProducerBatch]] = []
        while self.accumulator and (taken := self._take(now_ms)):
            produces.append(taken)
            # Nothing goes behind a batch that is repeated: a partition that does not know the producer
            # takes any first sequence.
            if not self._joins or any(batch.attempts for batch in taken):
                break
        return produces

    def _take(self, now_ms: int) -> list[ProducerBatch]:
        """Take the first batch of each partition that may be sent now."""
        is_idempotent, taken = self.settings.enable_idempotence, list[ProducerBatch]()
        if is_idempotent and self._identity(now_ms) is None:
            return []
        for tp, queue in self.accumulator.queues():
            batch = queue[0]
            if batch.retry_at_ms > now_ms or not (batch.attempts or self._is_ready(queue, now_ms)):
                continue
            batch.is_filling = False
            if is_idempotent and batch.identity is None:
                identity = self.manager.identity
                if identity is None or not self._batches.assign(batch, identity):
                    continue
            self._in_hand.append(batch)
            self.accumulator.take_first(tp)
            taken.append(batch)
        return taken

    def _ask(
        self,
        produces: list[list[ProducerBatch]],
        now_ms: int,
        behind: Sequence[Request[Any]] = (),
        *,
        sync: bool = False,
    ) -> list[Any]:
        """Ask the broker, and complete the batches by its answers. Returns the answers of `behind`."""
        requests = [*map(self._request, produces), *behind]
        turn = self._turn = Turn(produces, behind, Fate(), now_ms, self.metrics.now_ns())
        sync = sync or self.manager.transactional_id is None
        return self._answered(turn, self.transport.ask(requests, sync=sync, fate=turn.fate))

    def _answered(self, turn: Turn, answers: list[Any]) -> list[Any]:
        """Complete the batches, as `_ask`; again if a signal interrupts it."""
        count = len(turn.produces)
        behind = answers[count:]
        if behind and type(turn.behind[-1]) is EndTxn and not isinstance(behind[-1], EosdbError):
            self.committed = behind[-1]
        self.metrics.count("request", count)
        if behind and isinstance(behind[-1], DatabaseLockedError) and answers[0] is behind[-1]:
            # The turn has already waited for the lock, and its caller is told.
            self.manager.sent -= count
            for batch in reversed([batch for batches in turn.produces for batch in batches]):
                self._batches.take_back(batch)
        else:
            elapsed_ms = (self.metrics.now_ns() - turn.now_ns) / 1_000_000
            asked = []
            for batches, answer in zip(turn.produces, answers, strict=False):
                self.metrics.observe("request-latency", elapsed_ms)
                if isinstance(answer, EosdbError):
                    self.metrics.error(answer)
                    self.manager.answered(answer)
                    asked += [(batch, answer) for batch in batches]
                else:
                    asked += [(batch, answer[batch.tp]) for batch in batches]
            self._batches.answered(asked, turn.now_ms)
        self._turn = None
        return behind

    def _request(self, batches: list[ProducerBatch]) -> Produce:
        transactional_id = self.manager.transactional_id
        is_transactional = transactional_id is not None
        records = {}
        for batch in batches:
            batch.attempts += 1
            records[batch.tp] = batch.request(is_transactional)
            if batch.attempts > 1:
                self.metrics.count("record-retry", len(batch.records))
        self.manager.sent += 1
        return Produce(
            records,
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=self.settings.request_timeout_ms,
            transaction_version=EPOCH_PER_TRANSACTION if is_transactional else None,
        )

    def _is_ready(self, queue: deque[ProducerBatch], now_ms: int) -> bool:
        return (
            self.is_flushing
            or len(queue) > 1
            or queue[0].size >= self.accumulator.batch_size
            or now_ms - queue[0].created_ms >= self.settings.linger_ms
        )

    # -- the coordinator ------------------------------------------------------------------------

    def ask_coordinator(self, request: Request[T]) -> T | EosdbError:
        """Ask once. Returns the answer or the error; one that repeating cannot help has changed the
        producer's state."""
        self.manager.sent += isinstance(request, TxnOffsetCommit)
        (answer,) = self.transport.ask((request,))
        return self.refused(request, answer) if isinstance(answer, EosdbError) else answer

    def refused(self, request: Request[Any], error: EosdbError) -> EosdbError:
        """Note the error of a request to the coordinator, and return it as the coordinator means it."""
        manager = self.manager
        if isinstance(request, TxnOffsetCommit):
            manager.answered(error)
        error = as_coordinators(error)
        self.metrics.error(error)
        if not may_be_repeated(error) or manager.is_fatal_state:
            manager.failed(error, type(request))
        return error

    def initialize(self) -> ProducerIdAndEpoch | EosdbError:
        """Ask once for a producer id and epoch, and take them over."""
        manager, settings = self.manager, self.settings
        # After an interrupt the state may be INITIALIZING although no request was sent.
        if manager.state is not INITIALIZING:
            manager.transition(INITIALIZING)
        expected = manager.identity if manager.needs_new_epoch else None
        transactional_id, timeout_ms = settings.transactional_id, settings.transaction_timeout_ms
        request = InitProducerId(transactional_id, timeout_ms, *(expected or (-1, -1)))
        answer = self.ask_coordinator(request)
        if isinstance(answer, EosdbError):
            return answer
        # Only after the last epoch does the coordinator replace the id of a producer that it knows.
        if (
            expected is not None
            and answer.producer_id != expected.producer_id
            and expected.producer_epoch < LAST_LOCAL_EPOCH - 1
        ):
            error = InvalidProducerIdMappingError(
                f"{transactional_id!r}: producer {expected.producer_id} has expired "
                "(transactional.id.expiration.ms), and a newer one may have taken over meanwhile; "
                "make a new producer"
            )
            manager.failed(error, InitProducerId)
            return error
        manager.ended(answer)
        return answer

    def _identity(self, now_ms: int) -> ProducerIdAndEpoch | None:
        """Return the producer id and epoch. Without transactions they are asked for here; None until they
        may be asked for again."""
        manager = self.manager
        if manager.identity is None and manager.transactional_id is None:
            if now_ms < self._initialize_at_ms or manager.error is not None:
                return None
            if manager.state is READY:
                manager.transition(UNINITIALIZED)  # No epoch is left; get a new producer id.
            answer = self.initialize()
            if isinstance(answer, EosdbError) and may_be_repeated(answer):
                self._initialize_at_ms = now_ms + self.settings.retry_backoff_ms
            elif isinstance(answer, EosdbError):
                self.drop_waiting(answer)
        return manager.identity

    # -- the time of the next run ---------------------------------------------------------------

    def _next_due(self, now_ms: int) -> int | None:
        settings, due = self.settings, list[int]()
        for _, queue in self.accumulator.queues():
            batch = queue[0]
            due.append(batch.created_ms + settings.delivery_timeout_ms)
            if batch.retry_at_ms > now_ms:
                due.append(batch.retry_at_ms)
            elif batch.attempts == 0 and not self._is_ready(queue, now_ms):
                due.append(batch.created_ms + settings.linger_ms)
            elif self.manager.identity is None:
                due.append(self._initialize_at_ms)
        return max(0, min(due) - now_ms) if due else None
