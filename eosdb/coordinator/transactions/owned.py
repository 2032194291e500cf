"""Transactions with an owner whose death is known at once: those of `append_once`.

Their owner holds a lock of its own in the lock file while it works, which the kernel releases when its
process dies. An open transaction whose lock nobody holds has nobody left who could end it.
"""

from __future__ import annotations

from typing import Final

from eosdb.model.values import ProducerIdAndEpoch

PREFIX: Final = "__eosdb.sink:"
"""What transactional ids with an owner begin with."""
_EPOCHS: Final = 2**15
_PRODUCERS: Final = 2**46


def has_owner(transactional_id: str) -> bool:
    """Whether the transactions of this id have one."""
    return transactional_id.startswith(PREFIX)


def place(producer: ProducerIdAndEpoch) -> int:
    """Where the owner's lock is: a number that no other open transaction has."""
    return producer.producer_id % _PRODUCERS * _EPOCHS + producer.producer_epoch
