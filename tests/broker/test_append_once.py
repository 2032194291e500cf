"""`append_once`: a sink's batches are in the log once, wherever somebody dies in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import Record, TopicPartition
from eosdb.errors import InvalidRequestError, OutOfOrderSequenceNumberError
from eosdb.model.failpoints import Failpoint, watched
from tests.cases import each
from tests.readers import committed_values

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
MANY = 600
CHUNK = 50


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """`MANY` is more than one unit takes."""
    monkeypatch.setattr("eosdb.broker.sink._UNIT_RECORDS", 500)


@pytest.fixture
def shop(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("orders", partitions=2)
    return db


def test_a_batch_of_a_sink_is_appended_once(shop: eosdb.Database) -> None:
    shop.admin.create_topic("other", partitions=2)
    elsewhere = TopicPartition("other", 1)
    batches = {TP: [Record(value=b"%d" % i) for i in range(400)], elsewhere: [Record(value=b"z")]}
    done = shop.append_once("sink", 0, batches)
    assert (done.skipped, done.offsets) == (False, {TP: 0, elsewhere: 0})
    again = shop.append_once("sink", 0, batches)
    assert (again.skipped, again.offsets) == (True, {})
    assert not shop.append_once("sink", 5, {TP: [Record(value=b"a")]}).skipped
    assert shop.append_once("sink", 4, {TP: [Record(value=b"b")]}).skipped
    assert not shop.append_once("another", 4, {TP: (Record(value=b"c") for _ in range(1))}).skipped
    assert shop.broker.offsets(TP).log_end_offset == 402
    shop.rebuild()
    assert shop.append_once("sink", 5, {}).skipped
    assert shop.verify().ok


def once(db: eosdb.Database, batch_id: int, *held: str) -> bool:
    """Whether the batch has been appended."""
    return not db.append_once("sink", batch_id, {TP: [Record(value=b"v")]}, held=held).skipped


def test_a_sink_that_says_what_it_brings_is_only_skipped_when_that_is_there(
    shop: eosdb.Database,
) -> None:
    assert once(shop, 0, "offsets 0-5", "digest a")
    assert once(shop, 1, "offsets 5-9", "digest b")
    for _ in range(2):
        assert not once(shop, 0, "offsets 0-5", "digest of other words"), "one of them is enough"
        assert not once(shop, 1, "digest b")
        with pytest.raises(eosdb.BatchDiffersError, match="batch 0: the sink's newest batch is 1"):
            once(shop, 0, "offsets 9-12", "digest c")
        with pytest.raises(eosdb.BatchDiffersError, match="held something else"):
            once(shop, 1, "offsets 0-5", "digest a")
        assert not once(shop, 0), "who says nothing is taken at the number"
        assert shop.verify().ok
        shop.rebuild()
    assert shop.broker.offsets(TP).log_end_offset == 2


def test_what_batches_held_is_known_of_the_last_hundred(shop: eosdb.Database) -> None:
    for batch_id in range(0, 240, 2):
        assert once(shop, batch_id, f"digest {batch_id}")
    assert not once(shop, 40, "digest 40")
    with pytest.raises(eosdb.BatchDiffersError, match="not known"):
        once(shop, 38, "digest 38")
    assert shop.query("SELECT count(*) FROM eosdb_sink_batches").rows.__next__() == (100,)
    assert shop.verify().ok


@pytest.mark.parametrize("count", [1, MANY])
def test_a_sink_that_counts_without_gaps_is_told_of_one(shop: eosdb.Database, count: int) -> None:
    """As in a file that an older copy has replaced."""

    def bring(batch_id: int, sink: str = "sink") -> bool:
        records = {TP: [Record(value=b"v")] * count}
        return not shop.append_once(sink, batch_id, records, consecutive=True).skipped

    assert bring(3), "what is not remembered may begin with any number"
    assert bring(4)
    assert not bring(2)
    for _ in range(2):
        with pytest.raises(
            OutOfOrderSequenceNumberError, match=r"batch 7: .*newest batch is 4, .*2 .*5"
        ):
            bring(7)
    assert len(committed_values(shop, TP)) == 2 * count
    assert bring(5)
    assert bring(7, "another")
    assert once(shop, 9), "whoever does not say so may leave some out"


def test_a_large_batch_that_another_has_overtaken_is_compared_too(shop: eosdb.Database) -> None:
    def chunks() -> Iterator[tuple[TopicPartition, list[Record]]]:
        yield from pairs(MANY)
        assert once(shop, 0, "digest of the small one")

    with pytest.raises(eosdb.BatchDiffersError):
        shop.append_once("sink", 0, chunks(), held=["digest of the large one"])
    assert committed_values(shop, TP) == [b"v"]


@pytest.mark.parametrize("held", ["text", 5, [""], [b"x"], ["x" * 1_001]])
def test_what_a_batch_holds_is_said_in_short_texts(shop: eosdb.Database, held: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="held"):
        shop.append_once("sink", 0, {}, held=held)


def test_a_batch_that_cannot_be_appended_whole_is_not_appended(shop: eosdb.Database) -> None:
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        shop.append_once(
            "sink", 1, {TP: [Record(value=b"a")], TopicPartition("orders", 9): [Record(value=b"b")]}
        )
    assert shop.broker.offsets(TP).log_end_offset == 0
    assert not shop.append_once("sink", 1, {TP: [Record(value=b"a")]}).skipped


def test_large_parts_are_split_to_what_the_topic_takes(shop: eosdb.Database) -> None:
    shop.admin.alter_topic_config("orders", {"max.message.bytes": 1_000})
    shop.append_once("sink", 1, {TP: [Record(value=b"x" * 300) for _ in range(50)]})
    assert shop.broker.offsets(TP).log_end_offset == 50
    with pytest.raises(eosdb.MessageTooLargeError):
        shop.append_once("sink", 2, {TP: [Record(value=b"x"), Record(value=b"x" * 1_001)]})
    assert shop.broker.offsets(TP).log_end_offset == 50


@each(
    ("sink_id", "batch_id", "batches"),
    [("", 1, {}), (3, 1, {}), ("s", -1, {}), ("s", "1", {}), ("s", 1, [5]), ("s", 1, {TP: 5})],
)
def test_arguments_that_are_none_are_refused(
    shop: eosdb.Database, sink_id: str, batch_id: int, batches: dict[TopicPartition, list[Record]]
) -> None:
    with pytest.raises(InvalidRequestError):
        shop.append_once(sink_id, batch_id, batches)


def pairs(count: int) -> list[tuple[TopicPartition, list[Record]]]:
    """Chunks that change the partition each time."""
    return [
        ((TP, OTHER)[i % 2], [Record(value=b"%d" % n) for n in range(CHUNK * i, CHUNK * (i + 1))])
        for i in range(count // CHUNK)
    ]


def test_a_batch_too_large_for_one_unit_is_seen_all_at_once(shop: eosdb.Database) -> None:
    seen = []

    def watch() -> None:
        seen.append(len(committed_values(shop, TP)))

    def chunks() -> Iterator[tuple[TopicPartition, list[Record]]]:
        for pair in pairs(MANY):
            watch()
            yield pair

    done = shop.append_once("sink", 7, chunks())
    assert (done.skipped, done.offsets) == (False, {TP: 0, OTHER: 0})
    assert set(seen) == {0}
    values = committed_values(shop, TP) + committed_values(shop, OTHER)
    assert sorted(int(value or b"") for value in values) == list(range(MANY))
    assert shop.append_once("sink", 7, chunks()).skipped
    assert len(seen) == MANY // CHUNK, "a batch that is done is not even read"
    assert shop.verify().ok


def test_a_large_batch_that_fails_leaves_nothing_readable(shop: eosdb.Database) -> None:
    bad = [*pairs(MANY), (TopicPartition("orders", 9), [Record(value=b"x")])]
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        shop.append_once("sink", 1, bad)
    assert committed_values(shop, TP) == []
    assert shop.broker.offsets(TP).first_unstable_offset == -1
    assert not shop.append_once("sink", 1, pairs(MANY)).skipped


@pytest.mark.parametrize("version", [1, 2])
def test_whoever_comes_later_fences_a_large_batch(db_path: Path, version: int) -> None:
    config = eosdb.BrokerConfig(transaction_version=version)
    with eosdb.connect(db_path, durability="off", config=config) as shop:
        shop.admin.create_topic("orders", partitions=2)

        def chunks() -> Iterator[tuple[TopicPartition, list[Record]]]:
            *before, last = pairs(MANY)
            yield from before
            assert not shop.append_once("sink", 1, pairs(MANY)).skipped
            yield last

        with pytest.raises(eosdb.ApiError):
            shop.append_once("sink", 1, chunks())
        values = committed_values(shop, TP) + committed_values(shop, OTHER)
        assert len(values) == len(set(values)) == MANY


def test_a_batch_that_another_has_appended_meanwhile_is_skipped(shop: eosdb.Database) -> None:
    def chunks() -> Iterator[tuple[TopicPartition, list[Record]]]:
        *before, last = pairs(CHUNK)
        yield from before
        assert not shop.append_once("sink", 1, pairs(CHUNK)).skipped
        yield last

    assert shop.append_once("sink", 1, chunks()).skipped
    assert len(committed_values(shop, TP) + committed_values(shop, OTHER)) == CHUNK


class Killed(BaseException):
    """Ends the program here."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        Failpoint.APPEND_RECORDED, Failpoint.APPEND_UNCOMMITTED, Failpoint.UNIT_COMMITTED,
        Failpoint.END_TXN_DECIDED, Failpoint.MARKER_WRITTEN,
    ],
    ids=lambda point: point.value,
)  # fmt: skip
@pytest.mark.parametrize("visit", [0, 1, 6, 13])
@pytest.mark.parametrize("count", [300, MANY])
def test_killed_anywhere_and_tried_again_it_is_there_once(
    db_path: Path, point: Failpoint, visit: int, count: int
) -> None:
    with eosdb.connect(db_path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
    visits = 0

    def kill(reached: Failpoint) -> None:
        nonlocal visits
        visits += reached is point
        if visits == visit + 1 and reached is point:
            raise Killed

    dying = eosdb.connect(db_path, durability="off")
    try:
        with watched(kill):
            dying.append_once("sink", 3, pairs(count))
    except Killed:
        pass
    finally:
        dying.abandon()
    with eosdb.connect(db_path, durability="off") as db:
        readable = len(committed_values(db, TP)) + len(committed_values(db, OTHER))
        done = db.append_once("sink", 3, pairs(count))
        assert done.skipped == (readable == count)
        assert readable in (0, count)
        values = committed_values(db, TP) + committed_values(db, OTHER)
        assert len(values) == len(set(values)) == count
        assert db.verify().ok
