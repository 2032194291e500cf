"""Another program deletes a topic and makes it anew between two units of some work: before its first unit,
before its second, and so on to the end."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import eosdb
from eosdb import TopicPartition
from eosdb.errors import EosdbError, UnknownTopicIdError, UnknownTopicOrPartitionError
from tests.readers import committed_values, copy_as_original

TPS: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
OLD: Final = [b"old-%d" % i for i in range(40)]
NEW: Final = [b"new-%d" % i for i in range(50)]
_DOORS: Final = ("write", "read", "alone")
Act = Callable[[eosdb.Database], None]


def make(db: eosdb.Database, values: list[bytes], **config: object) -> None:
    """The topic with these values in both of its partitions, each a batch."""
    db.admin.create_topic("t", 2, config)
    with db.producer(linger_ms=60_000) as producer:
        for part in (values[:10], values[10:20], values[20:30], values[30:]):
            for tp, value in itertools.product(TPS, part):
                producer.send("t", value, key=value[-1:], partition=tp.partition)
            producer.flush()


def make_anew(db: eosdb.Database) -> None:
    with contextlib.suppress(UnknownTopicOrPartitionError):  # The work may delete it, too.
        db.admin.delete_topic("t")
    make(db, NEW)


class Between:
    """Calls `act` before the unit or snapshot of this number, from 0 on, that the database begins in the
    block."""

    def __init__(self, db: eosdb.Database, act: Callable[[], None], number: int) -> None:
        self._store = db._store
        self._act = act
        self._left = number
        self.has_acted = False

    def __enter__(self) -> Between:
        for door in _DOORS:
            setattr(self._store, door, self._hooked(getattr(self._store, door)))
        return self

    def __exit__(self, *_: object) -> None:
        for door in _DOORS:
            delattr(self._store, door)

    def _hooked(self, door: Callable[..., Any]) -> Callable[..., Any]:
        def hooked(*arguments: Any, **options: Any) -> Any:
            is_leading: bool = self._store._group._lead._is_owned()  # type: ignore[attr-defined]
            if not (self.has_acted or is_leading):
                self._left -= 1
                if self._left < 0:
                    self.has_acted = True
                    self._act()
            return door(*arguments, **options)

        return hooked


@dataclass(frozen=True, slots=True)
class Place:
    """What came of the work when the other program acted at a place."""

    number: int
    db: eosdb.Database
    outcome: object
    """What the work returned, or its error."""

    def values(self) -> list[list[bytes | None]]:
        return [committed_values(self.db, tp) for tp in TPS]

    @property
    def was_stopped(self) -> bool:
        return isinstance(self.outcome, UnknownTopicIdError | UnknownTopicOrPartitionError)


def places(
    folder: Path, prepare: Act, work: Callable[[eosdb.Database], object], act: Act = make_anew
) -> Iterator[Place]:
    """Carry out the work in one file after the other, and have `act` done at the next place in each."""
    first = folder / "prepared.db"
    with eosdb.connect(first, durability="off") as db:
        prepare(db)
    for number in itertools.count():
        path = folder / f"{number}.db"
        copy_as_original(first, path)
        with (
            eosdb.connect(path, durability="off") as db,
            eosdb.connect(path, durability="off") as other,
        ):
            outcome: object
            with Between(db, lambda other=other: act(other), number) as between:  # type: ignore[misc]
                try:
                    outcome = work(db)
                except EosdbError as error:
                    outcome = error
            if not between.has_acted:
                return
            yield Place(number, db, outcome)
            assert db.verify().ok
