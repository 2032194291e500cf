"""A replay that asks for letters that are not there says whether it has sent others."""

from __future__ import annotations

import pytest

import eosdb
from eosdb.client.processor import dead_letters
from eosdb.errors import InvalidRequestError
from tests.client.processor import test_dead_letters
from tests.client.processor.test_dead_letters import replayed

pytestmark = pytest.mark.slow

_letters = test_dead_letters._letters


def places(letters: eosdb.DeadLetters) -> list[tuple[int, int]]:
    return [(letter.record.partition, letter.record.offset) for letter in letters.letters()]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_was_sent_before_a_missing_letter_is_in_doubt(db: eosdb.Database, count: int) -> None:
    letters = db.dead_letters("dlq")
    others = places(letters)[:count]
    with pytest.raises(InvalidRequestError, match=r"no dead letter at \[\(0, 99\)\]") as raised:
        letters.replay([*others, (0, 99)])
    assert raised.value.outcome == ("unknown" if others else "not written")
    assert sum(replayed(letters)) == count


def test_letters_beyond_the_next_are_remembered_each(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while all are replayed in several transactions."""
    monkeypatch.setattr(dead_letters, "_TRANSACTION_SIZE", 1)
    letters = db.dead_letters("dlq")
    parts = [[p for p in places(letters) if p[0] == number] for number in (0, 1)]
    first, _, third, *_ = max(parts, key=len)
    for chosen in (third, first):
        letters.replay([chosen])
    assert [places(letters)[at] for at, done in enumerate(replayed(letters)) if done] == [
        first, third,
    ]  # fmt: skip
    assert letters.replay() == eosdb.ReplayReport(replayed=4, skipped=2)
    assert all(replayed(letters))


def test_a_letter_right_behind_the_last_replayed_one_is_replayed(db: eosdb.Database) -> None:
    """No marker is between them: another program has sent them, outside of transactions."""
    db.admin.create_topic("plain")
    for number in range(3):
        with db.producer() as producer:
            producer.send("plain", b"%d" % number)
        report = db.dead_letters("plain").replay(to="in")
        assert report == eosdb.ReplayReport(replayed=1, skipped=number)
