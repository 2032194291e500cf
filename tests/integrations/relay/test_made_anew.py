"""A topic that is deleted and made anew between two steps of a relay, on either side: what was relayed of
one topic is not taken for the other's, and a relay that has caught up has brought everything."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb.errors import EosdbError, OffsetOutOfRangeError
from eosdb.integrations.relay import to_file
from tests.broker.made_anew import NEW, OLD, TPS, make, places
from tests.readers import committed_values

pytestmark = pytest.mark.slow


def relay(source: eosdb.Database, target: eosdb.Database) -> None:
    with to_file(source, target, topics=["t"], max_records=25, notify=lambda _: None) as made:
        made.run(until_caught_up=True)


def values(db: eosdb.Database) -> list[list[bytes | None]]:
    return [committed_values(db, tp) for tp in TPS]


def test_the_target_has_one_topic_of_the_source(tmp_path: Path) -> None:
    stopped, targets = 0, list[eosdb.Database]()

    def work(db: eosdb.Database) -> None:
        path = tmp_path / f"target-{len(targets)}.db"
        targets.append(eosdb.connect(path, durability="off"))
        relay(db, targets[-1])

    for place in places(tmp_path, lambda db: make(db, OLD), work):
        with targets[-1] as target:
            found = values(target) if "t" in target.admin.list_topics() else [[], []]
        for partition in found:
            assert partition in (NEW, OLD[: len(partition)]), place
        assert isinstance(place.outcome, OffsetOutOfRangeError | None), place
        stopped += place.outcome is not None
    targets[-1].close()
    assert stopped > 10


def begin_anew(target: eosdb.Database) -> None:
    if "t" in target.admin.list_topics():
        target.admin.delete_topic("t")
    target.admin.create_topic("t", 2)


def test_what_is_gone_from_the_target_is_told(tmp_path: Path) -> None:
    """By the run itself or, where the topic goes behind its last look, by the next one."""
    with eosdb.connect(tmp_path / "source.db", durability="off") as source:
        make(source, OLD)
        told, later = 0, 0
        for place in places(
            tmp_path, lambda _: None, lambda target: relay(source, target), begin_anew
        ):
            assert isinstance(place.outcome, OffsetOutOfRangeError | None), place
            if place.outcome is None and values(place.db) != [OLD, OLD]:
                later += 1
                with pytest.raises(OffsetOutOfRangeError, match="deleted and recreated"):
                    relay(source, place.db)
            told += isinstance(place.outcome, EosdbError)
        assert told > 5
        assert later < 8
