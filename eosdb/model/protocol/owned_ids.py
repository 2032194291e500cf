"""Transactional ids that say which lock their owner holds: those of processors.

The number is part of the id, so it is in every event and row of the transaction, and in every request.
"""

from __future__ import annotations

import re
from typing import Final

MARK: Final = ":__eosdb.owner:"
"""What stands between the id as its user knows it and the number."""
_OWNED: Final = re.compile(rf".*{re.escape(MARK)}([1-9][0-9]{{0,15}})", re.DOTALL)


def with_owner(transactional_id: str, number: int) -> str:
    """The id of the transactions whose owner holds the lock of this number."""
    return f"{transactional_id}{MARK}{number}"


def owner_of(transactional_id: str) -> int | None:
    """The number of the owner's lock; None if the id names none."""
    found = _OWNED.fullmatch(transactional_id)
    return None if found is None else int(found[1])
