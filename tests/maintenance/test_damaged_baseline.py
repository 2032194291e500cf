"""What the history begins with is proved, also where later events have written over it."""

from __future__ import annotations

from pathlib import Path

import pytest

import eosdb
from eosdb import BrokerConfig, CorruptDatabaseError, ManualClock, OffsetAndMetadata, TopicPartition
from eosdb.store.schema.row_checksum import row_checksum
from tests.maintenance.everything import Raw, changing

pytestmark = pytest.mark.slow

TP = TopicPartition("t", 0)


def opened(path: Path, clock: ManualClock, *, trims: bool = True) -> eosdb.Database:
    config = BrokerConfig(
        history_retention_ms=0 if trims else -1, log_retention_check_interval_ms=10**12
    )
    return eosdb.connect(path, clock=clock, durability="off", config=config)


@pytest.fixture
def path(db_path: Path, clock: ManualClock) -> Path:
    """The baseline has the group at 40, and events behind it lead to 41, 42 and 43."""
    with opened(db_path, clock) as db:
        db.admin.create_topic("t")
        db.producer().send("t", b"v").result()
        for offset in (39, 40):
            db.broker.offset_commit("g", {TP: OffsetAndMetadata(offset)})
        db.broker.offset_commit("other", {TP: OffsetAndMetadata(1)})
        clock.advance(1)
        db.housekeeping()
    with opened(db_path, clock, trims=False) as db:
        for offset in (41, 42, 43):
            db.broker.offset_commit("g", {TP: OffsetAndMetadata(offset)})
        assert db.verify().ok
    return db_path


def problems(path: Path) -> tuple[str, ...]:
    with eosdb.connect(path, read_only=True) as db:
        return db.verify().problems


def set_checksum(connection: Raw, table: str) -> None:
    """As somebody who can count, and forgets the sum."""
    names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    others = ", ".join(name for name in names if name != "checksum")
    connection.create_function("row_checksum", -1, row_checksum)
    connection.execute(f"UPDATE {table} SET checksum = row_checksum({others})")


ALTERED = "UPDATE eosdb_baseline_group_offsets SET committed_offset = 80 WHERE group_id = 'g'"


@pytest.mark.parametrize("counted", [False, True])
def test_an_altered_row_that_an_event_has_written_over(
    path: Path, tmp_path: Path, clock: ManualClock, counted: bool
) -> None:
    with changing(path) as connection:
        connection.execute(ALTERED)
        if counted:
            set_checksum(connection, "eosdb_baseline_group_offsets")
    first = problems(path)[0]
    assert first.startswith(
        "eosdb_baseline: the rows of its tables have the sum"
        if counted
        else "eosdb_baseline_group_offsets: the row ('g', 't', 0, 80"
    )
    with opened(path, clock) as db:
        ((position,),) = db.query("SELECT position FROM eosdb_baseline").rows
        for make in (db.rebuild, lambda: db.restore_to(tmp_path / "earlier.db", position)):
            with pytest.raises(
                CorruptDatabaseError, match="the baseline is damaged, so it was not used"
            ):
                make()
        assert not (tmp_path / "earlier.db").exists()


def test_a_damaged_row_does_not_look_whole_when_the_history_goes_on(
    path: Path, clock: ManualClock
) -> None:
    with changing(path) as connection:
        connection.execute(ALTERED)
    with opened(path, clock) as db:
        clock.advance(1)
        assert db.housekeeping().trimmed_events
    (problem,) = problems(path)
    assert problem.startswith("eosdb_baseline: the rows of its tables have the sum")


def test_a_batch_that_does_not_begin_where_the_log_ended(path: Path, clock: ManualClock) -> None:
    """It says so itself, and its record as well."""
    with opened(path, clock, trims=False) as db:
        db.producer().send("t", b"next").result()
    with changing(path) as connection:
        connection.create_function("row_checksum", -1, row_checksum)
        connection.execute(
            "UPDATE eosdb_journal SET detail = json_replace(detail, '$[1]', 5) "
            "WHERE kind = 'BatchAppended' AND json_extract(detail, '$[1]') = 1"
        )
        connection.execute(
            "UPDATE eosdb_journal SET checksum = row_checksum(position, kind, timestamp, topic, partition, "
            "transactional_id, detail) WHERE kind = 'BatchAppended'"
        )
        connection.execute(
            'UPDATE records SET "offset" = 5, checksum = checksum + 4 WHERE "offset" = 1'
        )
    assert any(
        "begin at offset 5 of partition_id 1, expected 1, where its log ended" in problem
        for problem in problems(path)
    )


def test_a_journal_without_any_checksum(path: Path) -> None:
    with changing(path) as connection:
        events = connection.execute("UPDATE eosdb_journal SET checksum = 0").rowcount
    found = problems(path)
    assert len(found) == events > 3
    assert all("does not fit its checksum" in problem for problem in found)
