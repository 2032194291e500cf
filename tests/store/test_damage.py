"""Files that have suffered: whatever byte is wrong, the answer is a named error or a report, never a crash
and never an exception of sqlite3 or of Python."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import eosdb
from eosdb import TopicPartition
from eosdb.store.schema import newest
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.simulation, pytest.mark.both_roads]

SOURCE = ROOT / f"tests/data/schema_{newest.SCHEMA_VERSION:04}.db"
FILES_PER_SEED = 15
PAGE, HEADER = 4096, 100
"""Bytes, of SQLite's file format."""
TP = TopicPartition("orders", 0)


def flip_a_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def garble(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    count = min(rng.randint(1, 600), len(data) - at)
    data[at : at + count] = rng.randbytes(count)


def blank_a_sector(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) // 512) * 512
    data[at : at + 512] = bytes(512)


def mix_up_pages(data: bytearray, rng: random.Random) -> None:
    one, other = (rng.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    data[one : one + PAGE], data[other : other + PAGE] = (
        data[other : other + PAGE],
        data[one : one + PAGE],
    )


def damage_text(data: bytearray, rng: random.Random) -> None:
    """Letters of stored JSON and names, which SQLite cannot tell from others."""
    letters = [at for at, byte in enumerate(data) if byte in b'{[":,]}']
    for _ in range(20):
        data[rng.choice(letters)] = rng.randrange(256)


def cut_short(data: bytearray, rng: random.Random) -> None:
    """The last page is missing, and often more, but not a part of the header: that is no SQLite file."""
    del data[rng.randrange(HEADER, len(data) - PAGE + 1) :]


def cut_last_page(data: bytearray, rng: random.Random) -> None:
    """SQLite reads the missing bytes as zeros, and what they said may go without a trace."""
    del data[-rng.randrange(1, PAGE) :]


@pytest.mark.parametrize(
    "damage",
    [flip_a_bit, garble, blank_a_sector, mix_up_pages, damage_text, cut_short, cut_last_page],
)
def test_a_damaged_file_is_refused_or_reported(
    tmp_path: Path,
    seeds: list[int],
    damage: Callable[[bytearray, random.Random], None],
) -> None:
    answers = []
    for seed in (f"{seed} {number}" for seed in seeds for number in range(FILES_PER_SEED)):
        data = bytearray(SOURCE.read_bytes())
        damage(data, random.Random(seed))
        path = tmp_path / f"{seed}.db"
        path.write_bytes(data)
        if damage in (cut_short, cut_last_page):
            with pytest.raises(eosdb.CorruptDatabaseError):
                eosdb.connect(path)
        answers += [answer(path, read_only=True), answer(path, read_only=False)]
    assert any(word != "sound" for word in answers), "some of the damage is seen"
    if damage in (cut_short, cut_last_page):
        assert set(answers) == {"refused"}, "and be it only by its length"


def answer(path: Path, *, read_only: bool) -> str:
    clock = eosdb.ManualClock(1_700_000_100_000)
    try:
        with eosdb.connect(path, clock=clock, durability="off", read_only=read_only) as db:
            report = db.verify()
            if report.ok:
                use(db, read_only=read_only)
            else:
                assert report.problems
            return "sound" if report.ok else "reported"
    except (eosdb.CorruptDatabaseError, eosdb.NotAnEosdbFileError):
        return "refused"


def use(db: eosdb.Database, *, read_only: bool) -> None:
    """What `verify` finds nothing wrong with can be worked with."""
    assert len(committed_values(db, TP)) == 2
    assert len(db.broker.list_transactions()) == 3
    assert TP in db.broker.offset_fetch("billing")
    if not read_only:
        db.housekeeping()
        assert db.producer().send("orders", b"v").exception() is None
        db.rebuild()


def test_damage_that_is_there_when_the_file_is_open_is_reported(db_path: Path) -> None:
    with eosdb.connect(db_path) as db:
        db.admin.create_topic("t")
        for _ in range(50):
            db.broker.append(
                TopicPartition("t", 0), eosdb.RecordBatch([eosdb.Record(value=b"x" * 3_000)])
            )
        db._store.checkpoint()
    data = bytearray(db_path.read_bytes())
    with eosdb.connect(db_path) as db:
        for page in range(4, len(data) // 4096):
            data[page * 4096 : page * 4096 + 200] = bytes(200)
        with db_path.open("r+b") as file:
            file.write(data)
        with pytest.raises(eosdb.CorruptDatabaseError, match="restore a backup"):
            committed_values(db, TopicPartition("t", 0))
        with contextlib.suppress(eosdb.CorruptDatabaseError):
            assert not db.verify().ok
