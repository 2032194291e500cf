"""What outlives a call is tied to a topic and not to a name: a reader in several snapshots, a note of what
has been ingested, a key that makes a message unique."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.admin.tools import Tools
from eosdb.cli.commands.data.ingest import Ingest
from eosdb.cli.commands.data.sources import Source
from eosdb.errors import OffsetOutOfRangeError, UnknownTopicIdError
from tests.readers import committed_values

TP = TopicPartition("t", 0)
READERS: dict[str, Callable[[eosdb.Database], Iterator[object]]] = {
    "scan": lambda db: db.admin.scan(TP, 0, 100, batch_size=10),
    "dump_log": lambda db: db.admin.dump_log(TP),
}


def fill(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    with db.producer() as producer:
        for part in range(10):
            producer.send_many("t", [f"{part}"] * 20)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_in_several_snapshots_does_not_go_on_in_another_topic(
    db: eosdb.Database, name: str
) -> None:
    fill(db)
    reader = READERS[name](db)
    next(reader)
    db.admin.delete_topic("t")
    fill(db)
    with pytest.raises(UnknownTopicIdError, match="t-0: the topic was deleted and recreated"):
        next(reader)


def test_a_key_is_used_in_a_topic_and_not_in_one_made_anew(db: eosdb.Database) -> None:
    for _ in range(2):
        db.admin.create_topic("t")
        for is_repeat in (False, True):
            with db.begin() as tx:
                done = tx.publish("t", b"once", idempotency_key="key")
            assert done.duplicate is is_repeat
        assert committed_values(db, TP) == [b"once"]
        db.admin.delete_topic("t")


def test_lines_that_went_into_a_topic_that_is_gone_do_not_count_in_the_new_one(
    db: eosdb.Database, tmp_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{i}\n" for i in range(40)))

    def ingest() -> Ingest:
        settings = Tools(db.admin).topic_config("t")
        return Ingest(db, "t", settings, Source(path, "lines", None), "in.txt")

    db.admin.create_topic("t")
    suspended = ingest()
    ingest().run(10, skip=False)
    with path.open("a") as file:
        file.write("more\n")
    db.admin.delete_topic("t")
    db.admin.create_topic("t")
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset .* belongs to a deleted topic"):
        suspended.run(10, skip=False)
    assert committed_values(db, TP) == []
    ingest().run(10, skip=False)
    assert len(committed_values(db, TP)) == 41
