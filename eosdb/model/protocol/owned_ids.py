"""Transactional ids whose owner holds a lock: those of large `append_once` calls, and of processors.

The id and the epoch determine the lock's number, so it is neither stored nor sent in requests. An
`append_once` holds the lock of its epoch, because its sink's next attempt has the same id with a higher
epoch. A processor is the only user of its id, and holds the locks of all epochs.
"""

from __future__ import annotations

import hashlib
from typing import Final

SINK: Final = "__eosdb.sink:"
"""The prefix of the ids of `append_once`."""
OWNED_BY: Final = "-owned-by-eosdb-"
"""Separates the user's id from the member's in a processor's id. Nobody chooses it by accident: the next
write aborts an open transaction with it and without its lock."""
EPOCHS: Final = 2**15
_IDS: Final = 2**46


def with_owner(transactional_id: str, member_id: str) -> str:
    """The id of a processor's transactions."""
    return f"{transactional_id}{OWNED_BY}{member_id}"


def has_owner(transactional_id: str) -> bool:
    """Whether the owner of an open transaction with this id holds a lock."""
    return transactional_id.startswith(SINK) or OWNED_BY in transactional_id


def owner_lock(transactional_id: str, producer_epoch: int) -> int:
    """The lock number of this id and epoch, below 2**61; the locks of an id are consecutive."""
    digest = hashlib.blake2b(
        transactional_id.encode(errors="surrogatepass"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") % _IDS * EPOCHS + producer_epoch
