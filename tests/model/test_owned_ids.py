"""A transactional id says which lock its owner holds, or none."""

from __future__ import annotations

import pytest

from eosdb.model.protocol.owned_ids import MARK, owner_of, with_owner


@pytest.mark.parametrize("transactional_id", ["g-member", "", "a\nb", f"x{MARK}7"])
def test_the_number_is_read_as_it_was_written(transactional_id: str) -> None:
    for number in (1, 2**52 - 1):
        assert owner_of(with_owner(transactional_id, number)) == number


@pytest.mark.parametrize(
    "end", ["", "0", "-1", "07", "x", "7 ", "7\n", "٣", "99999999999999999"], ids=repr
)
def test_what_is_no_number_names_no_lock(end: str) -> None:
    assert owner_of(f"g{MARK}{end}") is None
    assert owner_of(f"g-{end}") is None
