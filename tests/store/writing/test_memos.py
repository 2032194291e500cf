"""What a unit remembers is forgotten when it may not be what the file says, or is too much."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

import eosdb
from eosdb.store.writing import writer
from eosdb.store.writing.unit import Memo, Unit


@dataclass(slots=True)
class Seen(Memo):
    numbers: set[int] = field(default_factory=set)
    last: int | None = None


def see(unit: Unit, *numbers: int) -> set[int]:
    """What was seen before."""
    seen = unit.memos[Seen]
    before = set(seen.numbers)
    seen.numbers.update(numbers)
    return before


def see_two(number: int, unit: Unit) -> set[int]:
    return see(unit, 2 * number, 2 * number + 1)


def test_it_outlives_the_unit(db: eosdb.Database) -> None:
    db._store.write(lambda unit: see(unit, 1))
    assert db._store.write(lambda unit: see(unit, 2)) == {1}
    assert db._store.write(see) == {1, 2}


def test_it_is_gone_when_somebody_else_has_written(db: eosdb.Database, db_path: Path) -> None:
    with eosdb.connect(db_path, clock=db.clock) as other:
        db._store.write(lambda unit: see(unit, 1))
        other.admin.create_topic("theirs")
        assert db._store.write(see) == set()


def test_it_is_gone_when_the_unit_is_undone(db: eosdb.Database) -> None:
    def fail(unit: Unit) -> None:
        see(unit, 1)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        db._store.write(fail)
    assert db._store.write(see) == set()


def test_it_is_gone_when_a_signal_has_ended_the_undoing(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(unit: Unit) -> None:
        see(unit, 1)
        raise ValueError("on purpose")

    def interrupted(_: Unit) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Unit, "discard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db._store.write(fail)
    monkeypatch.undo()
    assert db._store.write(see) == set()


def test_a_block_trusts_nothing_of_one_that_was_undone(db: eosdb.Database) -> None:
    """Meanwhile another has written as many events, so that the newest position is the same."""
    db.admin.create_topic("t")
    with db.producer() as producer:
        producer.send("t", "0").result()
        with pytest.raises(ZeroDivisionError), db.begin() as tx:
            assert tx.publish("t", "undone").offset == 1
            raise ZeroDivisionError
        assert producer.send("t", "1").result().offset == 1
        with db.begin() as tx:
            assert tx.publish("t", "2").offset == 2
    assert db.verify().ok


def test_too_much_is_not_remembered(db: eosdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_REMEMBERED_MAX", 40)
    most = 0
    for number in range(500):
        before = db._store.write(partial(see_two, number))
        most = max(most, len(before))
    assert 0 < most <= 40 + 2 * writer._UNITS_PER_LOOK
