"""Two readers made from docs/internals/format.md list of every file what eosdb lists: topics, committed
records, offsets of groups with their lag, open transactions; and they see altered rows."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import eosdb
from eosdb import ManualClock, TopicPartition
from eosdb.spark_io import jdbc
from tests.format import files, vectors
from tests.maintenance import everything
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

HERE = ROOT / "tests" / "format"
BARE = (sys.executable, "-I", "-S")
"""Python without what is installed: such a process cannot import eosdb."""
QUIET = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
LOGGING = "/usr/share/java/slf4j-api.jar"
"""Newer drivers want it."""
NAMES = [
    "schema_0001.db", "everything.db", "empty.db", "sides.db", "published.db", "baseline.db",
    "adopted.db", "decided.db",
    *(f"simulated-{seed}{end}.db" for seed in (2, 3, 10) for end in ("", "-end")),
]  # fmt: skip
Lines = list[list[Any]]
Read = Callable[[Sequence[Path]], subprocess.CompletedProcess[str]]


def in_python(paths: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    command = [*BARE, str(HERE / "reader.py"), *map(str, paths)]
    return ended(command)


def in_java(paths: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    driver = jdbc.find()
    if shutil.which("javac") is None or driver is None:
        pytest.skip(
            "NO JAVA COMPILER OR SQLITE DRIVER: the reader in Java is not tested here; apt-get install "
            f"default-jdk-headless {jdbc.INSTALL.removeprefix('apt-get install ')}"
        )
    class_path = f"{driver}:{LOGGING}"
    command = ["java", *QUIET, "-cp", class_path, str(HERE / "Reader.java"), *map(str, paths)]
    return ended(command)


READERS: dict[str, Read] = {"python": in_python, "java": in_java}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    return {path.name: path for path in (*files.golden(folder), *files.shapes(folder))}


@pytest.fixture(scope="module", params=READERS)
def answers(request: pytest.FixtureRequest, paths: dict[str, Path]) -> dict[str, Lines]:
    """What one of the readers lists of all files, in one process."""
    return answers_of(request.param, [*paths.values()])


def answers_of(reader: str, paths: Sequence[Path]) -> dict[str, Lines]:
    done = READERS[reader](paths)
    assert done.returncode == 0, done.stderr
    return by_file(done.stdout)


def by_file(text: str) -> dict[str, Lines]:
    of_file: dict[str, Lines] = {}
    for line in map(json.loads, text.splitlines()):
        if line[0] == "file":
            name = Path(line[1]).name
            of_file[name] = [[name, *line[2:]]]
        else:
            of_file[name].append(line)
    return of_file


@cache
def expected(path: Path) -> Lines:
    """What eosdb lists, by its public methods."""
    with eosdb.connect(path, read_only=True, clock=ManualClock(files.START_MS)) as db:
        info = db.info()
        lines: Lines = [[path.name, info["file_id"], info["schema_version"]]]
        topics = sorted(db.broker.topic_metadata(), key=lambda topic: topic.name)
        described = {topic.name: db.admin.describe_topic(topic.name) for topic in topics}
        for topic in topics:
            lines.append(["topic", topic.name, str(topic.topic_id), described[topic.name].config])
        for topic in topics:
            for i, at in enumerate(described[topic.name].partitions):
                ends = [at.log_start_offset, at.log_end_offset, at.last_stable_offset]
                lines.append(["partition", topic.name, i, *ends])
        for topic in topics:
            for i, at in enumerate(described[topic.name].partitions):
                lines += records(db, TopicPartition(topic.name, i), at)
        for group in db.broker.list_groups():
            for of in db.admin.describe_group_offsets(group).partitions:
                tp = TopicPartition(of.topic, of.partition)
                if of.committed_offset >= 0:
                    lag = db.broker.lag(tp, of.committed_offset)
                    place = [of.committed_offset, of.metadata, lag.readable, lag.held_back]
                    lines.append(["offset", group, *tp, *place])
        open_states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
        for listed in sorted(
            db.broker.list_transactions(open_states), key=lambda found: found.transactional_id
        ):
            (found,) = db.broker.describe_transactions([listed.transactional_id]).values()
            who = [found.transactional_id, found.producer_id, found.producer_epoch, found.state]
            joined = [list(tp) for tp in sorted(found.partitions)]
            lines.append(["open", *who, found.transaction_start_time_ms, joined])
    return lines


def records(db: eosdb.Database, tp: TopicPartition, at: eosdb.PartitionOffsets) -> Lines:
    """Every record that a consumer gets from the beginning on."""
    lines = []
    with db.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek(tp, at.log_start_offset)
        while consumer.position(tp) < at.last_stable_offset:
            for record in consumer.poll():
                place = [*tp, record.offset, record.timestamp, int(record.timestamp_type)]
                headers = [[name, encoded(value)] for name, value in record.headers] or None
                content = [encoded(record.key), encoded(record.value), headers]
                lines.append(["record", *place, *content])
    return lines


def encoded(part: bytes | None) -> str | None:
    return None if part is None else base64.b64encode(part).decode()


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_lists_what_eosdb_lists(
    answers: dict[str, Lines], paths: dict[str, Path], name: str
) -> None:
    assert answers[name] == expected(paths[name])


def test_every_file_was_read_and_the_files_show_something(
    answers: dict[str, Lines], paths: dict[str, Path]
) -> None:
    assert set(answers) == set(paths) == set(NAMES)
    states = {line[4] for line in answers["decided.db"] if line[0] == "open"}
    assert states == {"Ongoing", "PrepareCommit"}
    simulated = [lines for name, lines in answers.items() if name.startswith("simulated")]
    for kind in ("topic", "partition", "record", "offset", "open"):
        assert any(line[0] == kind for lines in simulated for line in lines), kind
    with sqlite3.connect(paths["adopted.db"]) as owner:
        assert owner.execute("SELECT note FROM notes").fetchall() == [("mine",)]
        assert owner.execute("PRAGMA user_version").fetchone() == (77,)


def test_the_reader_in_python_cannot_have_imported_eosdb() -> None:
    command = [*BARE, "-c", "import eosdb"]
    done = ended(command, cwd="/")
    assert "No module named 'eosdb'" in done.stderr


ALTERED = {
    "eosdb_journal": "UPDATE eosdb_journal SET timestamp = timestamp + 1 WHERE position = 9",
    "partitions": "UPDATE partitions SET last_stable_offset = 1 WHERE partition_id = 1",
    "transaction_index": "UPDATE transaction_index SET first_offset = first_offset + 1",
    "eosdb_file": "UPDATE eosdb_file SET file_id = "
    "CASE substr(file_id, 1, 1) WHEN 'A' THEN 'B' ELSE 'A' END || substr(file_id, 2)",
    "eosdb_baseline": "UPDATE eosdb_baseline SET timestamp = 1",
    "group_sessions": "UPDATE group_sessions SET expires = expires + 1",
    "records": 'UPDATE records SET sequence = sequence + 1 WHERE "offset" = 1 AND partition_id = 1',
}


@pytest.fixture(scope="module", params=READERS)
def of_damaged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Lines]:
    folder = tmp_path_factory.mktemp("damaged")
    everything.fill(folder / "sound.db", ManualClock(files.START_MS))
    with everything.changing(folder / "sound.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for table, statement in ALTERED.items():
        shutil.copy(folder / "sound.db", folder / f"{table}.db")
        with everything.changing(folder / f"{table}.db") as connection:
            connection.execute(statement)
    return answers_of(request.param, [folder / f"{table}.db" for table in ALTERED])


@pytest.mark.parametrize("table", ALTERED)
def test_a_reader_sees_an_altered_row(of_damaged: dict[str, Lines], table: str) -> None:
    altered = [line for line in of_damaged[f"{table}.db"] if line[0] == "altered"]
    assert {line[1] for line in altered} == {table}


OF_THE_FOLD = {"positions", "kinds", "places", "folded"}
"""What a reader that folds no event does not see."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    files_ = vectors.broken(tmp_path_factory.mktemp("broken"))
    return {name: path for name, (path, _) in files_.items()}


def test_the_test_vectors_are_what_the_reader_finds(tmp_path: Path) -> None:
    stored = json.loads(vectors.VECTORS.read_text(encoding="utf-8"))
    assert stored == vectors.made(tmp_path, lambda paths: answers_of("python", paths))


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_that_an_invariant_does_not_hold(
    broken: dict[str, Path], reader: str
) -> None:
    lines = answers_of(reader, [*broken.values()])
    for bad in json.loads(vectors.VECTORS.read_text(encoding="utf-8"))["bad"]:
        name = bad["invariant"]
        sees_none = reader == "java" and name in OF_THE_FOLD
        found = vectors.found(lines[broken[name].name])
        assert found == ([] if sees_none else bad["found"]), name
        assert bool(bad["found"]) == (name != "schema")


@pytest.mark.parametrize("name", vectors.BROKEN)
def test_verify_sees_that_an_invariant_does_not_hold(
    broken: dict[str, Path], name: str, tmp_path: Path
) -> None:
    shutil.copy(broken[name], tmp_path / "bad.db")
    with eosdb.connect(tmp_path / "bad.db", read_only=True) as db:
        try:
            assert not db.verify().ok
        except eosdb.CorruptDatabaseError as error:
            assert "this is not an event that this eosdb knows" in str(error)


@pytest.mark.parametrize(("reader", "number"), [("python", 2), ("java", 2)])
def test_a_reader_refuses_a_file_of_another_schema(
    reader: str, number: int, tmp_path: Path
) -> None:
    eosdb.connect(tmp_path / "x.db").close()
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute(f"PRAGMA user_version={number}")
        connection.execute("UPDATE eosdb_file SET read_version = ?", (number,))
    done = READERS[reader]([tmp_path / "x.db"])
    assert done.returncode != 0
    assert f"has schema {number}, expected {files.SCHEMA}" in done.stderr
