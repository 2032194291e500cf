"""The coordinator's transactions: DescribeTransactions and ListTransactions (KIP-664)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from eosdb.coordinator.authorizer import Authorizer
from eosdb.coordinator.foresight import Foresight
from eosdb.coordinator.placement import partition_for
from eosdb.coordinator.transactions import rows as stored
from eosdb.errors import TransactionalIdNotFoundError
from eosdb.model.validation import check_transactional_id
from eosdb.model.values import GROUP_METADATA_TOPIC, TransactionDescription, TransactionListing


def describe(
    connection: sqlite3.Connection,
    transactional_ids: Iterable[str],
    authorizer: Authorizer,
    foresight: Foresight,
) -> dict[str, TransactionDescription]:
    """The transactions of these ids, without partitions of topics that the principal may not describe.
    Raises TransactionalIdNotFoundError for the first unknown id."""
    described: dict[str, TransactionDescription] = {}
    for transactional_id in transactional_ids:
        check_transactional_id(transactional_id)
        authorizer.check(connection, "describe", "transactional_id", transactional_id)
        metadata = stored.read(connection, transactional_id)
        if metadata is None:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
        described[transactional_id] = TransactionDescription(
            transactional_id,
            partition_for(transactional_id),
            metadata.state.label,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            metadata.start_time_ms,
            frozenset(
                tp
                for tp in metadata.partitions
                if tp.topic != GROUP_METADATA_TOPIC
                and authorizer.allows(connection, "describe", "topic", tp.topic)
            ),
            foresight.of_transaction(metadata),
        )
    return described


def transactions(
    connection: sqlite3.Connection,
    states: Sequence[str],
    producer_ids: Sequence[int],
    started_before: int | None,
    authorizer: Authorizer,
    foresight: Foresight,
) -> list[TransactionListing]:
    """Transactions that match every filter, by id; empty filters and None match all."""
    conditions, values = ["1"], list[object]()
    for column, wanted in (("state", states), ("producer_id", producer_ids)):
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values.extend(wanted)
    if started_before is not None:
        conditions.append("start_time < ?")
        values.append(started_before)
    return [
        TransactionListing(
            metadata.transactional_id,
            metadata.producer_id,
            metadata.state.label,
            foresight.of_transaction(metadata),
        )
        for metadata in stored.read_where(connection, " AND ".join(conditions), tuple(values))
        if authorizer.allows(connection, "describe", "transactional_id", metadata.transactional_id)
    ]
