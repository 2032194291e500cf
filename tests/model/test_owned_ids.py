"""A transactional id says whether its owner holds a lock, and with the epoch, which one."""

from __future__ import annotations

import pytest

from eosdb.model.protocol.consumer_protocol import EPOCHS, SINK, has_owner, owner_lock, with_owner


@pytest.mark.parametrize("transactional_id", ["g", "", "a\nb", "\ud800"], ids=repr)
def test_ids_of_processors_and_sinks_have_owners_and_their_users_own_ids_have_none(
    transactional_id: str,
) -> None:
    assert has_owner(with_owner(transactional_id, "member-1"))
    assert has_owner(SINK + transactional_id)
    assert not has_owner(transactional_id)
    assert not has_owner(f"{transactional_id}-member-1")
    assert not has_owner(f"{transactional_id}-owned-by-team-7"), "a name that a user may choose"
    assert not has_owner(f"{transactional_id}:__eosdb.owner:7"), "of a version before: times out"


def test_each_id_and_epoch_has_a_lock_of_its_own_below_those_of_members() -> None:
    ids = [f"{SINK}{i}" for i in range(1_000)]
    locks = {owner_lock(name, epoch) for name in ids for epoch in (0, 1, EPOCHS - 1)}
    assert len(locks) == 3_000
    assert all(0 <= lock < 2**61 for lock in locks)
    assert owner_lock("a", 7) == owner_lock("a", 0) + 7
