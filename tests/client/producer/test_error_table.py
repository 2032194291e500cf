"""What each error means to a transactional producer: the table of docs/semantics.md, row by row.

Method: a transport that answers one request with the error and is honest otherwise; then the state, what
the next calls say, and what is visible in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import eosdb
from eosdb import ManualClock, OffsetAndMetadata, TopicPartition, errors
from eosdb.client.producer.accumulator import ProduceFuture
from eosdb.errors import EosdbError
from tests.client.producer.answers import Answers
from tests.readers import committed_values

TP = TopicPartition("t", 0)
ABORTABLE, FATAL, READY = "ABORTABLE_ERROR", "FATAL_ERROR", "READY"


class Scene:
    def __init__(self, path: Path, clock: ManualClock) -> None:
        self.db = eosdb.connect(path, clock=clock, durability="off")
        self.db.admin.create_topic("t", config={"retention.ms": "-1"})
        self.network = Answers(self.db)
        self.producer = self.db.producer(
            transactional_id="a",
            transport=self.network,
            delivery_timeout_ms=40_000,
            max_block_ms=5_000,
        )

    def begin(self) -> None:
        self.producer.init_transactions()
        self.producer.begin_transaction()

    def meet(self, request: str, error: EosdbError) -> EosdbError | None:
        """One transaction in which the request is answered so. Returns what its commit raised."""
        self.network.planned = [(request, error)]
        try:
            self.producer.send("t", "v")
            self.producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")
            self.producer.commit_transaction()
        except EosdbError as raised:
            return raised
        return None

    def check_the_producer_goes_on(self) -> None:
        """After an abort the next transaction is as good as any."""
        self.producer.abort_transaction()
        self.check_the_producer_goes_on_from_ready()

    def check_the_producer_goes_on_from_ready(self) -> None:
        assert self.producer.state == READY
        with self.producer.transaction():
            self.producer.send("t", "again")
        assert committed_values(self.db, TP) == [b"again"]

    def check_nothing_helps(self, cause: EosdbError) -> None:
        """Every call but close raises the cause again."""
        calls: list[Callable[[], object]] = [
            self.producer.begin_transaction,
            self.producer.commit_transaction,
            self.producer.abort_transaction,
            self.producer.init_transactions,
            lambda: self.producer.send("t", "more"),
            lambda: self.producer.send_offsets_to_transaction({TP: OffsetAndMetadata(2)}, "g"),
        ]
        for call in calls:
            with pytest.raises(type(cause)) as raised:
                call()
            assert raised.value is cause
        self.producer.close()
        assert committed_values(self.db, TP) == []


@pytest.fixture
def scene(db_path: Path, clock: ManualClock) -> Iterator[Scene]:
    made = Scene(db_path, clock)
    made.begin()
    yield made
    made.producer.close()
    made.db.close()


RETRIED = [
    ("produce", errors.NotEnoughReplicasError),
    ("produce", errors.UnknownTopicOrPartitionError),
    ("produce", errors.NetworkExceptionError),
    ("produce", errors.RequestTimedOutError),
    ("produce", errors.ConcurrentTransactionsError),
    ("txn_offset_commit", errors.UnknownTopicOrPartitionError),
    ("txn_offset_commit", errors.CoordinatorLoadInProgressError),
    ("end_txn", errors.ConcurrentTransactionsError),
    ("end_txn", errors.NetworkExceptionError),
    ("end_txn", errors.TransactionCoordinatorFencedError),
]
TO_ABORT = [
    ("produce", errors.InvalidProducerEpochError),
    ("produce", errors.OutOfOrderSequenceNumberError),
    ("produce", errors.UnknownProducerIdError),
    ("produce", errors.TransactionAbortableError),
    ("produce", errors.TopicAuthorizationFailedError),
    ("produce", errors.MessageTooLargeError),
    ("produce", errors.InvalidTxnStateError),
    ("produce", errors.DatabaseFullError),
    ("produce", errors.DatabaseLockedError),
    ("txn_offset_commit", errors.GroupAuthorizationFailedError),
    ("txn_offset_commit", errors.UnknownMemberIdError),
    ("txn_offset_commit", errors.IllegalGenerationError),
    ("txn_offset_commit", errors.FencedInstanceIdError),
    ("txn_offset_commit", errors.TransactionAbortableError),
    ("end_txn", errors.TransactionAbortableError),
]
FATALS = [
    ("produce", errors.InvalidProducerIdMappingError),
    ("txn_offset_commit", errors.InvalidProducerIdMappingError),
    ("end_txn", errors.InvalidProducerIdMappingError),
    ("produce", errors.ProducerFencedError),
    ("produce", errors.ClusterAuthorizationFailedError),
    ("produce", errors.TransactionalIdAuthorizationFailedError),
    ("txn_offset_commit", errors.ProducerFencedError),
    ("txn_offset_commit", errors.InvalidTxnStateError),
    ("txn_offset_commit", errors.TransactionalIdAuthorizationFailedError),
    ("end_txn", errors.ProducerFencedError),
    ("end_txn", errors.InvalidTxnStateError),
    ("end_txn", errors.TransactionalIdAuthorizationFailedError),
]


def cases(rows: Sequence[tuple[str, type[EosdbError]]]) -> list[object]:
    return [
        pytest.param(request, error, id=f"{request} {error.__name__}") for request, error in rows
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "error"), cases(RETRIED))
def test_it_is_repeated_and_nobody_notices(
    scene: Scene, request_: str, error: type[EosdbError]
) -> None:
    assert scene.meet(request_, error("this time")) is None
    assert scene.producer.state == READY
    assert scene.network.planned == [], "the request was made"
    assert committed_values(scene.db, TP) == [b"v"]
    assert scene.db.broker.offset_fetch("g")[TP].offset == 1


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "error"), cases(TO_ABORT))
def test_the_transaction_must_be_aborted_and_then_all_is_well(
    scene: Scene, request_: str, error: type[EosdbError]
) -> None:
    cause = error("no")
    raised = scene.meet(request_, cause)
    assert raised is cause
    assert scene.producer.state == ABORTABLE
    for call in (scene.producer.commit_transaction, scene.producer.begin_transaction):
        with pytest.raises(error) as again:
            call()
        assert again.value is cause
    scene.check_the_producer_goes_on()
    assert scene.db.broker.offset_fetch("g") == {}


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "error"), cases(FATALS))
def test_the_producer_is_done_for(scene: Scene, request_: str, error: type[EosdbError]) -> None:
    cause = error("never again")
    assert scene.meet(request_, cause) is cause
    assert scene.producer.state == FATAL
    scene.check_nothing_helps(cause)


def test_a_stale_epoch_at_the_coordinator_means_fenced(scene: Scene) -> None:
    raised = scene.meet("txn_offset_commit", errors.InvalidProducerEpochError("old"))
    assert isinstance(raised, errors.ProducerFencedError)
    assert scene.producer.state == FATAL


@pytest.mark.parametrize("way", ["send", "offsets", "empty", "refused", "abort"])
def test_a_fenced_zombie_does_not_come_back_when_its_id_has_expired(
    scene: Scene, clock: ManualClock, way: str
) -> None:
    """KAFKA-18019. It comes by any request, and also asks for a new epoch after an empty or aborted
    transaction: the coordinator gives an unknown id to anybody (KIP-360)."""
    zombie, offsets = scene.producer, {TP: OffsetAndMetadata(1)}
    if way == "abort":
        zombie.send("t", "v")
        zombie.flush()
    else:
        zombie.abort_transaction()
        zombie.begin_transaction()
    successor = scene.db.producer(transactional_id="a")
    successor.init_transactions()
    with successor.transaction():
        successor.send("t", "by the successor")
        successor.send_offsets_to_transaction({TP: OffsetAndMetadata(5)}, "g")
    for _ in range(2):
        clock.advance(8 * 86_400_000)
        assert scene.db.housekeeping()

    def works() -> None:
        if way == "send":
            zombie.send("t", "v")
        elif way == "offsets":
            zombie.send_offsets_to_transaction(offsets, "g")
        elif way == "refused":
            scene.network.planned = [("produce", errors.MessageTooLargeError("no"))]
            zombie.send("t", "v")
        if way in ("abort", "refused"):
            with contextlib.suppress(errors.MessageTooLargeError):
                zombie.flush()
            zombie.abort_transaction()
        else:
            zombie.commit_transaction()
        zombie.begin_transaction()
        zombie.send("t", "v")
        zombie.commit_transaction()

    with pytest.raises(errors.InvalidProducerIdMappingError, match="make a new producer") as raised:
        works()
    assert zombie.state == FATAL
    for call in (zombie.begin_transaction, zombie.abort_transaction, zombie.init_transactions):
        with pytest.raises(errors.InvalidProducerIdMappingError) as again:
            call()
        assert again.value is raised.value
    zombie.close()
    assert committed_values(scene.db, TP) == [b"by the successor"]


def test_an_abort_that_is_to_be_aborted_leads_nowhere(scene: Scene) -> None:
    scene.producer.send("t", "v")
    scene.producer.flush()
    cause = errors.TransactionAbortableError("no")
    scene.network.planned = [("end_txn", cause)]
    with pytest.raises(errors.TransactionAbortableError):
        scene.producer.abort_transaction()
    assert scene.producer.state == FATAL
    scene.check_nothing_helps(cause)


@pytest.mark.parametrize(
    "error",
    [errors.TransactionalIdAuthorizationFailedError, errors.ClusterAuthorizationFailedError],
)
def test_who_may_not_have_the_id_may_ask_again(
    db_path: Path, clock: ManualClock, error: type[EosdbError]
) -> None:
    scene = Scene(db_path, clock)
    scene.network.planned = [("init_producer_id", error("not yet"))]
    with pytest.raises(error):
        scene.producer.init_transactions()
    assert scene.producer.state == "UNINITIALIZED"
    scene.begin()
    assert scene.meet("nothing", error("never")) is None
    assert committed_values(scene.db, TP) == [b"v"]
    scene.db.close()


def test_rights_that_were_lost_while_the_epoch_is_renewed_may_come_back(
    scene: Scene,
) -> None:
    """The abort is done, and what it needs for the next transaction is asked for again."""
    denied = errors.TransactionalIdAuthorizationFailedError("not now")
    scene.network.planned = [("init_producer_id", denied)]
    with pytest.raises(errors.TransactionalIdAuthorizationFailedError):
        scene.producer.abort_transaction()
        scene.producer.begin_transaction()
    assert scene.producer.state == "UNINITIALIZED"
    scene.producer.init_transactions()
    with scene.producer.transaction():
        scene.producer.send("t", "again")
    assert committed_values(scene.db, TP) == [b"again"]


def test_a_commit_that_may_have_been_carried_out_is_repeated_and_in_doubt_until_then(
    scene: Scene,
) -> None:
    cause = errors.in_doubt(errors.StorageError("the sync failed"))
    assert scene.meet("end_txn", cause) is cause
    assert scene.producer.state == "COMMITTING_TRANSACTION"
    with pytest.raises(errors.IllegalStateError):
        scene.producer.abort_transaction()
    scene.network.planned = [("end_txn", errors.DatabaseFullError("no room"))]
    with pytest.raises(errors.DatabaseFullError) as raised:
        scene.producer.commit_transaction()
    assert raised.value.outcome == "unknown", "the first may be stored"
    scene.producer.commit_transaction()
    assert committed_values(scene.db, TP) == [b"v"]


@pytest.mark.slow
@pytest.mark.parametrize("error", [errors.DatabaseFullError, errors.DatabaseLockedError])
@pytest.mark.parametrize("then", ["commit", "abort", "close"])
def test_a_commit_that_the_file_refused_is_not_written_until_it_is_called_again(
    scene: Scene, error: type[EosdbError], then: str
) -> None:
    """A lock has been waited for already, and closing commits nothing."""
    cause = error("not now")
    scene.network.planned = [("end_txn", cause)] * 1_000
    scene.producer.send("t", "v")
    with pytest.raises(error) as raised:
        scene.producer.commit_transaction()
    assert (raised.value.outcome, scene.producer.state) == ("not written", "IN_TRANSACTION")
    scene.network.planned = []
    {
        "commit": scene.producer.commit_transaction,
        "abort": scene.producer.abort_transaction,
        "close": scene.producer.close,
    }[then]()
    assert committed_values(scene.db, TP) == ([b"v"] if then == "commit" else [])


@pytest.mark.parametrize(("lost", "outcome"), [(False, "not written"), (True, "unknown")])
def test_a_refusal_behind_a_lost_answer_says_nothing_of_what_was_lost(
    scene: Scene, lost: bool, outcome: str
) -> None:
    scene.network.planned = [("end_txn", errors.NetworkExceptionError("lost"))] * lost
    scene.network.planned.append(("end_txn", errors.ProducerFencedError("somebody else")))
    scene.producer.send("t", "v")
    with pytest.raises(errors.ProducerFencedError) as raised:
        scene.producer.commit_transaction()
    assert raised.value.outcome == outcome


def test_a_transaction_of_whose_offsets_nobody_heard_is_not_committed_without_them(
    scene: Scene,
) -> None:
    scene.producer.send("t", "v")
    scene.network.planned = [("txn_offset_commit", errors.NetworkExceptionError("lost"))] * 1_000
    with pytest.raises(EosdbError):
        scene.producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")
    scene.network.planned = []
    with pytest.raises(EosdbError):
        scene.producer.commit_transaction()
    scene.check_the_producer_goes_on()


@pytest.mark.parametrize(("lost", "outcome"), [(False, "not written"), (True, "unknown")])
def test_so_it_is_with_the_offsets_of_a_consumer(
    db: eosdb.Database, lost: bool, outcome: str
) -> None:
    db.admin.create_topic("t")
    network = Answers(db)
    consumer = db.consumer(group_id="g", transport=network, retry_backoff_ms=0)
    consumer.assign([TP])
    network.planned = [("offset_commit", errors.NetworkExceptionError("lost"))] * lost
    network.planned.append(("offset_commit", errors.GroupAuthorizationFailedError("no")))
    with pytest.raises(errors.GroupAuthorizationFailedError) as raised:
        consumer.commit({TP: OffsetAndMetadata(1)})
    assert raised.value.outcome == outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.NotEnoughReplicasError, "not written"),
        (errors.NetworkExceptionError, "unknown"),
    ],
)
def test_a_record_of_which_every_attempt_was_refused_is_not_written(
    db_path: Path, clock: ManualClock, error: type[EosdbError], outcome: str
) -> None:
    with eosdb.connect(db_path, clock=clock, durability="off") as db:
        db.admin.create_topic("t")
        network = Answers(db)
        producer = db.producer(transport=network, delivery_timeout_ms=40_000)
        network.planned = [("produce", error("not now"))] * 1_000
        with pytest.raises(errors.RequestTimedOutError) as raised:
            producer.send("t", "v").result()
        assert raised.value.outcome == outcome
        assert ("are not stored" in str(raised.value)) == (outcome == "not written")


def leave_one_to_be_repeated(scene: Scene) -> tuple[ProduceFuture, ProduceFuture]:
    """A record whose batch waits to be sent again, and one behind it that was never sent."""
    scene.network.planned = [("produce", errors.NotEnoughReplicasError("this time"))]
    first = scene.producer.send("t", "v")
    with pytest.raises(errors.RequestTimedOutError):
        scene.producer.flush(timeout_ms=50)
    return first, scene.producer.send("t", "w")


def test_what_waits_to_be_repeated_is_sent_in_a_transaction_that_must_be_aborted(
    scene: Scene,
) -> None:
    first, second = leave_one_to_be_repeated(scene)
    cause = errors.GroupAuthorizationFailedError("no")
    scene.network.planned = [("txn_offset_commit", cause)]
    with pytest.raises(errors.GroupAuthorizationFailedError):
        scene.producer.send_offsets_to_transaction({TP: OffsetAndMetadata(1)}, "g")
    assert scene.producer.state == ABORTABLE
    assert first.result().offset == 0
    assert getattr(second.exception(), "__cause__", None) is cause, "it was never sent"
    assert committed_values(scene.db, TP) == []
    scene.check_the_producer_goes_on()


def test_an_abort_waits_for_what_is_to_be_repeated(scene: Scene) -> None:
    """Kafka: TransactionManagerTest.testAbortResendsProduceRequestIfRetried."""
    first, second = leave_one_to_be_repeated(scene)
    scene.producer.abort_transaction()
    assert first.result().offset == 0
    assert isinstance(second.exception(), errors.TransactionAbortableError)
    scene.check_the_producer_goes_on_from_ready()


def test_an_abort_that_nobody_answers_may_be_called_again(scene: Scene) -> None:
    first, _ = leave_one_to_be_repeated(scene)
    lost = errors.NetworkExceptionError("lost")
    scene.network.planned = [("produce", lost)] * 60
    with pytest.raises(errors.RequestTimedOutError, match="abort_transaction"):
        scene.producer.abort_transaction()
    assert scene.producer.state == "ABORTING_TRANSACTION"
    scene.network.planned = []
    scene.producer.abort_transaction()
    assert first.result().offset == 0
    scene.check_the_producer_goes_on_from_ready()


def test_who_is_fenced_while_it_aborts_is_told(scene: Scene) -> None:
    first, _ = leave_one_to_be_repeated(scene)
    cause = errors.ProducerFencedError("somebody else")
    scene.network.planned = [("produce", cause)]
    with pytest.raises(errors.ProducerFencedError):
        scene.producer.abort_transaction()
    assert scene.producer.state == FATAL
    assert first.exception() is cause


def test_a_duplicate_is_success_at_an_offset_that_nobody_knows(scene: Scene) -> None:
    scene.network.planned = [("produce", errors.DuplicateSequenceNumberError("long ago"))]
    assert scene.producer.send("t", "v").result().offset == -1
    assert scene.producer.state == "IN_TRANSACTION"
