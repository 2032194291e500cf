"""Changes a producer's state after a refused request, and logs once that the producer was fenced."""

from __future__ import annotations

from eosdb.client.answers import Kind
from eosdb.client.producer.state import TransactionManager
from eosdb.errors import (
    EosdbError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from eosdb.model.notices import catalog
from eosdb.model.requests import EndTxn


def note_failure(manager: TransactionManager, error: EosdbError, kind: Kind) -> None:
    """Handle an error from which the request cannot recover."""
    manager.failed(error, kind)
    is_fenced = isinstance(error, (InvalidProducerEpochError, ProducerFencedError))
    # The transaction was ended already, for example by its timeout.
    was_ended = kind is EndTxn and isinstance(error, InvalidTxnStateError)
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
