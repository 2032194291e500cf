"""Transactional ids whose owner holds a lock: those of large `append_once` calls, and of processors.

The lock's number is computed from the id and the epoch, so it is neither stored nor sent in requests. An
`append_once` holds the lock of its epoch, because the next attempt of its sink has the same id with a
higher epoch; a processor, whose id nobody else uses, holds the locks of all epochs.
"""

from __future__ import annotations

import hashlib
from typing import Final

SINK: Final = "__eosdb.sink:"
"""What the ids of `append_once` begin with."""
OWNED_BY: Final = "-owned-by-eosdb-"
"""Stands in a processor's id between the id that its user chose and the member's. Nobody chooses it by
accident: an open transaction with it and without its lock is aborted by the next write."""
EPOCHS: Final = 2**15
_IDS: Final = 2**46


def with_owner(transactional_id: str, member_id: str) -> str:
    """The id of a processor's transactions."""
    return f"{transactional_id}{OWNED_BY}{member_id}"


def has_owner(transactional_id: str) -> bool:
    """Whether the owner of an open transaction with this id holds a lock."""
    return transactional_id.startswith(SINK) or OWNED_BY in transactional_id


def owner_lock(transactional_id: str, producer_epoch: int) -> int:
    """The number of the lock for this id and epoch, below 2**61; the locks of an id are consecutive."""
    digest = hashlib.blake2b(
        transactional_id.encode(errors="surrogatepass"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") % _IDS * EPOCHS + producer_epoch
