"""What is due but not carried out, because nobody has written since: each face shows it, and says that the
next write carries it out. A reader writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import (
    HangingReason,
    ManualClock,
    OffsetAndMetadata,
    Record,
    RecordBatch,
    TopicPartition,
)
from eosdb.cli.main import main
from eosdb.model.clock import SystemClock
from eosdb.model.protocol.consumer_protocol import with_owner
from eosdb.model.requests import ConsumerGroupHeartbeat

TP = TopicPartition("orders", 0)
HOURS_AGO = SystemClock().time_ms() - 2 * 3_600_000
MEMBER = "its session has ended; the next write to the file removes it"
OWNED = with_owner("app", "member-1")


@pytest.fixture
def clock() -> ManualClock:
    """Two hours slow, as a file that was left then looks to commands of today."""
    return ManualClock(start_ms=HOURS_AGO)


@pytest.fixture
def left(db_path: Path, clock: ManualClock) -> Iterator[eosdb.Database]:
    """A file whose writers are gone without a farewell: a static member of `demo`, and a transaction."""
    gone = eosdb.connect(db_path, clock=clock, durability="off")
    gone.admin.create_topic("orders")
    gone.broker.append(TP, RecordBatch([Record(value=b"v")] * 3))
    consumer = gone.consumer("demo", group_instance_id="desk", auto_offset_reset="earliest")
    consumer.subscribe("orders")
    consumer.poll()
    consumer.commit()
    begin(gone, "late")
    gone.abandon()
    clock.advance(2 * 3_600_000)
    with eosdb.connect(db_path, clock=clock, read_only=True) as reader:
        yield reader


def begin(db: eosdb.Database, transactional_id: str) -> None:
    producer = db.producer(transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"open")
    producer.flush()


def write(path: Path, clock: ManualClock) -> None:
    with eosdb.connect(path, clock=clock, durability="off") as db:
        db.broker.append(TP, RecordBatch([Record(value=b"v")]))


def test_a_group_is_shown_as_the_next_write_leaves_it(
    left: eosdb.Database, db_path: Path, clock: ManualClock
) -> None:
    def seen() -> list[tuple[str, int]]:
        report = left.admin.describe_group_offsets("demo")
        figures = left.admin.overview().groups[0]
        listed = [left.broker.describe_group("demo"), *left.broker.describe_groups()]
        described = [(group.state, len(group.members)) for group in listed]
        return [
            *described, (report.state, report.members), (figures.state, figures.members),
        ]  # fmt: skip

    before = seen()
    (due,) = left.admin.describe_group_offsets("demo").due
    assert MEMBER in due
    assert left.admin.overview().groups[0].due == (due,)
    assert left.admin.diagnose(TP, "demo").group_due == (due,)
    assert 'eosdb_group_members{group="demo",state="Empty"} 0' in left.metrics_text()
    write(db_path, clock)
    assert before == seen() == [("Empty", 0)] * 4
    assert left.admin.describe_group_offsets("demo").due == ()


def test_a_session_that_is_not_over_is_shown_as_it_is(
    left: eosdb.Database, db_path: Path, clock: ManualClock
) -> None:
    with (
        eosdb.connect(db_path, clock=clock, durability="off") as db,
        db.consumer("demo", group_instance_id="desk") as consumer,
    ):
        consumer.subscribe("orders")
        consumer.poll()
        report = left.admin.describe_group_offsets("demo")
    assert (report.state, report.members, report.due) == ("Stable", 1, ())


class ByHeartbeats:
    """A static member of the new protocol, with a consumer's methods."""

    def __init__(self, db: eosdb.Database, name: str) -> None:
        self._broker, self._name = db.broker, name
        self._id, self._epoch, self._owned = "", 0, dict[UUID, tuple[int, ...]]()

    def subscribe(self, topic: str) -> None:
        self._topic = topic

    def poll(self, _: int) -> None:
        beat = ConsumerGroupHeartbeat(
            "g",
            member_id=self._id,
            member_epoch=self._epoch,
            group_instance_id=self._name,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[self._topic],
            topic_partitions=self._owned,
        )
        answer = self._broker.ask(beat)
        self._id, self._epoch = answer.member_id, answer.member_epoch
        self._owned = {share.topic_id: share.partitions for share in answer.assignment or ()}

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._broker.offset_commit(
            "g",
            offsets,
            generation_id=self._epoch,
            member_id=self._id,
            group_instance_id=self._name,
        )


def by_joining(db: eosdb.Database, name: str) -> eosdb.Consumer:
    return db.consumer("g", group_instance_id=name)


@pytest.mark.parametrize("later_ms", [20_000, 30_000, 400_000])
@pytest.mark.parametrize(
    "makers", [(by_joining,) * 2, (ByHeartbeats,) * 2, (ByHeartbeats, by_joining)]
)
def test_members_that_stay_are_shown_as_the_next_write_leaves_them(
    db: eosdb.Database,
    clock: ManualClock,
    makers: tuple[Callable[[eosdb.Database, str], ByHeartbeats | eosdb.Consumer], ...],
    later_ms: int,
) -> None:
    db.admin.create_topic("orders", partitions=2)
    stays, ends = (make(db, name) for make, name in zip(makers, "ab", strict=True))
    for consumer in (stays, ends) * 4:
        consumer.subscribe("orders")
        consumer.poll(0)
    db.broker.append(TP, RecordBatch([Record(value=b"v")]))
    stays.poll(0)
    stays.commit({TP: OffsetAndMetadata(1)})
    clock.advance(30_000)
    stays.poll(0)
    clock.advance(later_ms)
    seen = db.broker.describe_group("g")
    due = db.admin.describe_group_offsets("g").due
    db.broker.append(TP, RecordBatch([Record(value=b"v")]))
    assert seen == db.broker.describe_group("g")
    assert len(seen.members) + len(due) == 2
    assert db.admin.describe_group_offsets("g").due == ()


def test_a_transaction_past_its_time_out_says_that_the_next_write_aborts_it(
    left: eosdb.Database, db_path: Path, clock: ManualClock
) -> None:
    (listed,) = left.broker.list_transactions()
    described = left.broker.describe_transactions(["late"])["late"]
    assert listed.due == described.due
    assert described.due == "it is older than its timeout; the next write to the file aborts it"
    (opened,) = left.admin.open_transactions()
    assert opened.hanging is HangingReason.OVERDUE
    write(db_path, clock)
    assert [(one.state, one.due) for one in left.broker.list_transactions()] == [
        ("CompleteAbort", "")
    ]
    assert left.admin.open_transactions() == []


def test_a_reader_sees_that_an_owner_and_a_member_have_died(
    db_path: Path, clock: ManualClock
) -> None:
    """Time stands still: their locks alone tell."""
    dies = eosdb.connect(db_path, clock=clock, durability="off")
    dies.admin.create_topic("orders")
    presence = dies.broker.presence(OWNED)
    begin(dies, OWNED)
    consumer = dies.consumer("g")
    consumer.subscribe("orders")
    consumer.poll()
    with eosdb.connect(db_path, clock=clock, read_only=True) as reader:
        assert reader.admin.describe_group_offsets("g").state == "Stable"
        assert reader.broker.list_transactions()[0].due == ""
        assert reader.admin.find_hanging_transactions() == []
        dies.abandon()
        report = reader.admin.describe_group_offsets("g")
        assert (report.state, report.members) == ("Empty", 0)
        assert "its process has died; the next write" in report.due[0]
        assert "its owner has died; the next write" in reader.broker.list_transactions()[0].due
        (hanging,) = reader.admin.find_hanging_transactions()
        assert hanging.hanging is HangingReason.OWNER_DIED
    write(db_path, clock)
    with eosdb.connect(db_path, clock=clock, read_only=True) as reader:
        assert reader.admin.open_transactions() == []
        assert [group.due for group in reader.admin.overview().groups] == [()]
    assert presence is not None


def test_a_copy_has_no_lock_file_and_its_members_have_their_sessions(
    db: eosdb.Database, tmp_path: Path, clock: ManualClock
) -> None:
    db.admin.create_topic("orders")
    with db.consumer("g") as consumer:
        consumer.subscribe("orders")
        consumer.poll()
        db.publish_copy(tmp_path / "copy.db")
        with eosdb.connect(tmp_path / "copy.db", clock=clock, read_only=True) as copy:
            assert copy.admin.describe_group_offsets("g").state == "Stable"
            clock.advance(3_600_000)
            assert copy.admin.describe_group_offsets("g").state == "Empty"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("groups describe demo", MEMBER),
        ("groups describe demo --members", MEMBER),
        ("groups describe demo --state", MEMBER),
        ("groups describe demo --format json", MEMBER),
        ("groups list --state", "Empty"),
        ("top -b -n 1", MEMBER),
        ("why orders/0 --group demo", MEMBER),
        ("why orders/0", "older than its timeout; the next write to the file aborts it"),
        ("transactions list", "the next write to the file aborts it"),
        ("transactions describe late", "the next write to the file aborts it"),
        ("transactions find-hanging", "nobody has written since"),
    ],
)
def test_each_command_shows_it(
    left: eosdb.Database, db_path: Path, command: str, told: str
) -> None:
    result = CliRunner().invoke(main, ["--db", str(db_path), *command.split()])
    assert result.exit_code == 0
    assert told in result.output
    assert "Stable" not in result.stdout
