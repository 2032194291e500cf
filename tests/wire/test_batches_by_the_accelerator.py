"""Record batches that the accelerator writes are those that Python makes of the same rows."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eosdb
from eosdb import ManualClock, Record, RecordBatch, TopicPartition
from eosdb.log.reading import block
from eosdb.model import requests
from eosdb.model.values import Header, IsolationLevel
from eosdb.wire import batches
from tests.maintenance import everything
from tests.native.roads import ROADS, road
from tests.native.test_both_roads import write

TP = TopicPartition("t", 0)
LEVELS: tuple[IsolationLevel, ...] = ("read_committed", "read_uncommitted")
ALL = 1 << 24
PLAIN: tuple[tuple[Header, ...], ...] = (
    *(tuple((f"h{i}", bytes(range(200, 200 + size))) for i in range(3)) for size in range(5)),
    (("", None), ("null", b""), ("a,b]", b"]")),
    (("long" * 50, b"\xff" * 300),) * 130,
)
"""Headers that the accelerator encodes itself."""
ESCAPED: tuple[tuple[Header, ...], ...] = ((("ü", b"v"),), (('"', b"v"),), (("\\", None),))
"""Headers whose text has escapes."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "empty.db"
    with eosdb.connect(path, clock=ManualClock(10**12), durability="off") as db:
        db.admin.create_topic("t", config={"retention.ms": -1})
    return path


def encoded(
    db: eosdb.Database,
    offset: int,
    level: IsolationLevel = "read_uncommitted",
    most: int = 2_000,
    room: int = ALL,
    *,
    at_least_one: bool = True,
    setting: str = "1",
) -> tuple[bytes, int]:
    db.broker.topics()  # The reader that both roads then take has the accelerator's functions.
    with road(setting):
        found = db.broker.ask(
            requests.FetchBatches(
                TP, offset, isolation_level=level, max_records=most, max_bytes=room
            )
        )
    whole, then = batches.encode(found, room, at_least_one=at_least_one)
    return bytes(whole), then


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), at_least_one=st.booleans())
def test_whatever_is_stored_the_bytes_are_the_same(
    empty: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, at_least_one: bool
) -> None:
    folder, rng = tmp_path_factory.mktemp("batches"), random.Random(seed)
    path = Path(shutil.copy(empty, folder / "x.db"))
    write(path, seed)
    with road("1"), eosdb.connect(path, read_only=True) as db:
        ends = db.broker.offsets(TP)
        for level in LEVELS:
            end = ends.last_stable_offset if level == "read_committed" else ends.high_watermark
            offset = 0
            while offset < end:
                most, room = rng.choice((3, 50, 2_000)), rng.choice((60, 200, 3_000, ALL))
                both = [
                    encoded(
                        db, offset, level, most, room,
                        at_least_one=at_least_one, setting=setting,
                    )
                    for setting in ROADS
                ]  # fmt: skip
                # The builder that Python uses leaves out what would fill the room exactly.
                assert both[0] == both[1] or len(both[0][0]) == room
                offset = max(both[0][1], offset + (not at_least_one))
    shutil.rmtree(folder)


@pytest.mark.parametrize("headers", [*PLAIN, *ESCAPED])
def test_headers_are_the_same_whatever_their_names_and_sizes(
    db: eosdb.Database, monkeypatch: pytest.MonkeyPatch, headers: tuple[Header, ...]
) -> None:
    db.admin.create_topic("t")
    records = [Record(value=b"v"), Record(b"k", b"v", headers), Record(b"k", None, headers)]
    db.broker.append(TP, RecordBatch(records))
    expected = encoded(db, 0, setting="0")
    assert encoded(db, 0) == expected
    monkeypatch.setattr(block, "_by_row", None)
    if headers in ESCAPED:
        with pytest.raises(TypeError):
            encoded(db, 0)
    else:
        assert encoded(db, 0) == expected


def test_a_damaged_row_is_left_to_python_which_reads_what_is_before_it(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"v" * 100)] * 20))
    raw = everything.raw(Path(db.path))
    raw.execute("UPDATE records SET value = x'00' WHERE \"offset\" = 7")
    raw.close()
    assert encoded(db, 0) == encoded(db, 0, setting="0")
    assert encoded(db, 0)[1] == 7
    # What does not fit is not looked at.
    assert db.broker.ask(requests.FetchBatches(TP, 0, max_bytes=500)).batches is not None


def test_a_record_larger_than_the_answer_comes_alone(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    db.broker.append(TP, RecordBatch([Record(value=b"v" * size) for size in (10, 5_000, 5_000)]))
    for offset, room in ((0, 1_000), (0, 5_050), (1, 1_000), (1, 6_000)):
        assert encoded(db, offset, room=room) == encoded(db, offset, room=room, setting="0")
        assert encoded(db, offset, room=room)[1] == offset + 1


def test_batches_may_fill_the_room_to_the_last_byte(db: eosdb.Database) -> None:
    db.admin.create_topic("t")
    for n in range(1, 6):
        db.broker.append(TP, RecordBatch([Record(value=b"v" * 100 * n)] * n))
    with road("1"):
        for end in range(1, 15):
            whole = len(encoded(db, 0, most=end)[0])
            for room, expected in ((whole, end), (whole - 1, end - 1)):
                found = db.broker.ask(requests.FetchBatches(TP, 0, max_bytes=room))
                assert found.batches is not None
                assert batches.encode(found, room, at_least_one=False)[1] == expected
