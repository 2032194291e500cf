"""Staged files go when nobody needs them, and not before."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from eosdb.spark_io.writing import sink
from eosdb.spark_io.writing.outgoing import parse
from eosdb.spark_io.writing.sink import SinkWrite, Targets, stage

HOUR_MS = 3600 * 1000
NOW_MS = 1_700_000_000_000
BATCH = pa.RecordBatch.from_arrays([pa.array([b"v"])], ["value"])
DONE = SinkWrite.of("query", 5, "one")


def staged(folder: Path, write: SinkWrite, age_ms: int = 0) -> Path:
    with sink.new_file(str(folder), write, BATCH.schema, sync=True) as (path, file):
        file.write_batch(BATCH)
    assert [batch.num_rows for batch in sink.read(path)] == [1]
    return aged(Path(path), age_ms)


def aged(path: Path, age_ms: int) -> Path:
    os.utime(path, ((NOW_MS - age_ms) / 1000,) * 2)
    return path


@pytest.mark.parametrize(
    ("write", "age_ms", "stays"),
    [
        (DONE, 0, False),
        (SinkWrite.of("query", 5, "another"), 0, True),
        (SinkWrite.of("query", 4, "another"), 0, False),
        (SinkWrite.of("query", 6, "one"), 0, True),
        (SinkWrite.of("other", 4, "one"), HOUR_MS - 60_000, True),
        (SinkWrite.of("other", 5, "one"), HOUR_MS + 60_000, False),
    ],
)
def test_a_commit_removes_what_nobody_can_name_any_more(
    tmp_path: Path, write: SinkWrite, age_ms: int, stays: bool
) -> None:
    path = staged(tmp_path / "staging", write, age_ms)
    sink.sweep(str(tmp_path / "staging"), DONE, NOW_MS)
    assert path.exists() is stays
    assert (tmp_path / "staging").exists() is stays, "an empty folder goes, too"


def test_staged_files_go_by_age_and_other_files_stay(tmp_path: Path) -> None:
    old, new, foreign = (tmp_path / name for name in ("1f2e.arrow", "3d4c.arrow", "notes.txt"))
    for path, age_ms in ((old, 2 * HOUR_MS), (new, 0), (foreign, 9 * HOUR_MS)):
        path.write_bytes(b"")
        aged(path, age_ms)
    sink.sweep(str(tmp_path), DONE, NOW_MS)
    assert sorted(tmp_path.iterdir()) == [new, foreign]
    sink.sweep(str(tmp_path / "missing"), DONE, NOW_MS)


def test_a_living_task_keeps_all_files_of_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has ended leaves its file to those that go on, however long they take."""
    monkeypatch.setattr(sink, "_SIGN_S", 0.01)
    mine, other = (staged(tmp_path, write) for write in (DONE, SinkWrite.of("other", 5, "one")))
    before = mine.stat().st_mtime
    renewed = threading.Event()
    monkeypatch.setattr(os, "utime", _then(os.utime, renewed))
    with sink.alive(str(tmp_path), DONE):
        assert renewed.wait(60)
    assert mine.stat().st_mtime > before
    assert other.stat().st_mtime == before


def _then(function: object, event: threading.Event) -> object:
    def call(*arguments: object) -> None:
        function(*arguments)  # type: ignore[operator]
        event.set()

    return call


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    targets = Targets("", "t", None)
    options = parse({"path": str(tmp_path / "t.db"), "topic": "t"}, {"value": "binary"})

    def rows() -> Iterator[pa.RecordBatch]:
        yield BATCH
        assert len(list(Path(options.staging).iterdir())) == 1
        raise ValueError("the task fails")

    with pytest.raises(ValueError, match="fails"):
        stage(rows(), options, targets)
    assert not os.path.exists(options.staging)
    done = stage(iter([BATCH, BATCH]), options, targets)
    assert done.rows.size == 2
    assert [batch.num_rows for batch in sink.read(str(done.path))] == [1, 1]
    assert stage(iter([]), options, targets).path is None
