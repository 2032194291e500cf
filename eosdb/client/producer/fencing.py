"""A refused request moves a producer's state; that it has been fenced is said, once."""

from __future__ import annotations

from eosdb.client.answers import RequestKind
from eosdb.client.producer.state import TransactionManager
from eosdb.errors import (
    EosdbError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from eosdb.model.notices import catalog


def note_failure(manager: TransactionManager, error: EosdbError, kind: RequestKind) -> None:
    """An answer that the request cannot recover from."""
    manager.failed(error, kind)
    is_fenced = isinstance(error, (InvalidProducerEpochError, ProducerFencedError))
    # The end of a transaction that somebody else has ended, such as its time-out.
    was_ended = kind is RequestKind.END and isinstance(error, InvalidTxnStateError)
    if not (is_fenced or was_ended) or manager.is_fencing_told or manager.transactional_id is None:
        return
    manager.is_fencing_told = True
    producer_id, epoch = (None, None) if manager.identity is None else manager.identity
    catalog.PRODUCER_FENCED.say(
        transactional_id=manager.transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        error=error,
    )
