"""The lives of a file. Each life has a number, which is the leader epoch of its records (KIP-320).

A new file is in life 0, and has no rows here. The first writer of a copied or restored file begins another
life, so that records, producer ids, transactions and marks which the copy never saw are recognised. The
rows are never trimmed. decisions/0094.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from eosdb.errors import InvalidRequestError
from eosdb.events.kinds import LifeBegan
from eosdb.model.damage import reads
from eosdb.model.fetched import LeaderEpochs
from eosdb.store.counters import counter, set_counter
from eosdb.store.schema.newest import Statement
from eosdb.store.writing.table import Table
from eosdb.store.writing.unit import Folding, Unit

_LIVES: Final = Table(
    "eosdb_lives", "life life_id position began_time ended_producer_id first_producer_id", "life"
)
_SAVE_EPOCHS: Final = Statement(
    "INSERT INTO {eosdb_leader_epochs} (partition_id, leader_epoch, start_offset) "
    "SELECT partition_id, ?, log_end_offset FROM {partitions}"
)
_LEADER_EPOCHS: Final = Table(
    "eosdb_leader_epochs", "leader_epoch start_offset partition_id", "partition_id leader_epoch"
)
_EPOCHS: Final = _LEADER_EPOCHS.where("partition_id = ? ORDER BY leader_epoch")
_CURRENT: Final = Statement("SELECT ifnull(max(life), 0) FROM {eosdb_lives}")
_BEHIND: Final = (
    "SELECT start_offset FROM eosdb_leader_epochs JOIN eosdb_lives ON life = leader_epoch "
    "WHERE partition_id = ? AND first_producer_id > ? ORDER BY leader_epoch DESC LIMIT 1"
)
_ENDED: Final = (
    "SELECT position, ended_producer_id, first_producer_id FROM eosdb_lives ORDER BY life"
)


def began(unit: Folding, event: LifeBegan, position: int) -> None:
    """Projection: the new life begins at the end of every partition. Ids of topics skip, too."""
    row = (event.life, event.life_id, position, event.timestamp, *event[-2:])
    unit.execute(_LIVES.insert, row)
    unit.execute(_SAVE_EPOCHS, (event.life,))
    set_counter(unit, "topic_id", max(counter(unit, "topic_id"), event.life))


def partition_made(unit: Folding, partition_id: int) -> None:
    """Projection: a partition that is made in a later life begins with its leader epoch."""
    if life := current(unit):
        unit.execute(_LEADER_EPOCHS.insert, (life, 0, partition_id))


@reads("eosdb_lives")
def current(source: Folding | sqlite3.Connection) -> int:
    """The number of the present life, which is the leader epoch of every partition."""
    row = source.execute(_CURRENT).fetchone()
    return int(row[0])


@reads("eosdb_leader_epochs")
def epochs(source: Folding | sqlite3.Connection, partition_id: int, end: int) -> LeaderEpochs:
    """The leader epochs of the partition, which ends at offset `end`."""
    rows = source.execute(_EPOCHS, (partition_id,))
    return LeaderEpochs(current(source), end, tuple((epoch, start) for epoch, start, _ in rows))


def began_at(unit: Unit, partition_id: int, producer_id: int) -> int:
    """Return the offset at which the present life began in the partition; -1 if the producer id is its own.
    An earlier producer may have sent sequences that this file never saw."""
    row = unit.execute(_BEHIND, (partition_id, producer_id)).fetchone()
    return -1 if row is None else int(row[0])


@reads("eosdb_lives")
def end_of(connection: sqlite3.Connection, producer_id: int) -> int | None:
    """Return the position at which the life of this producer id ended; None if it has not. Raises
    InvalidRequestError if this file never gave out the id: it belongs to an unknown life."""
    for position, ended, first in connection.execute(_ENDED):
        if producer_id < ended:
            return int(position)
        if producer_id < first:
            break
    else:
        if producer_id < counter(connection, "next_producer_id"):
            return None
    raise unknown(f"this file never gave out producer id {producer_id}")


def unknown(why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"unknown life: {why}. The file was restored or copied, and the transaction may have ended in the "
        "time that the copy does not contain; look for its records, or ask the file that was replaced"
    )
