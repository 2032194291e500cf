"""Which rows, writes and copies of files are the same, without Spark."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import eosdb
from eosdb import AppendOnceResult, Record, RecordBatch, TopicPartition
from eosdb.errors import BatchDiffersError
from eosdb.spark_io.planning import files
from eosdb.spark_io.planning.cut import Lens
from eosdb.spark_io.planning.errors import SparkOptionError
from eosdb.spark_io.planning.options import parse
from eosdb.spark_io.reading.stream import Histories
from eosdb.spark_io.writing.micro_batch import Call, Calls, MicroBatch
from eosdb.spark_io.writing.writes import StagedRows, total

TP = TopicPartition("t", 0)


def test_writes_of_a_run_are_numbered_and_a_new_run_begins_anew() -> None:
    calls, one, other = Calls(), Call("file", "one", 0), Call("file", "other", 1)
    for call in (one, other):
        calls.add("p", "run 1", call)
    assert calls.of("p", "run 1") == (one, other)
    assert calls.of("elsewhere", "run 1") == ()
    assert calls.of("p", "run 2") == ()
    calls.add("p", "run 2", other)
    assert calls.of("p", "run 2") == (other,)


def test_rows_are_their_number_and_their_hashes() -> None:
    assert total([StagedRows(1, 5), StagedRows(2, 7)]) == StagedRows(3, 12)
    assert total([StagedRows(1, 2**128 - 1), StagedRows(1, 2)]) == StagedRows(2, 1)
    assert total([]) == StagedRows(0, 0)


@pytest.mark.parametrize("newest", [7, 6, 8])
def test_the_next_number_is_tried_only_if_another_write_of_the_same_batch_has_this_one(
    newest: int,
) -> None:
    tried: list[int] = []
    done = AppendOnceResult(skipped=False, offsets={})

    def bring(order: int) -> AppendOnceResult:
        tried.append(order)
        if order < 2:
            raise BatchDiffersError("another", newest, frozenset({"run 1 12ab"}))
        return done

    this = MicroBatch("query", 7, "1")
    if newest == 7:
        result, call = this.bring(bring, "file", "rows", lambda _: False)
        assert result is done
        assert call == ("file", "rows", 2)
        assert tried == [0, 1, 2]
        return
    with pytest.raises(BatchDiffersError):
        this.bring(bring, "file", "rows", lambda _: True)
    assert tried == [0]


def test_a_loss_that_is_allowed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    allowed = Histories(parse({"failOnDataLoss": "false"}, streaming=True))
    with caplog.at_level(logging.WARNING, "eosdb"):
        for loss in ("one", "other", "one"):
            allowed.lost(loss)
    assert [message.count("one") + message.count("other") for message in caplog.messages] == [1, 1]
    with pytest.raises(SparkOptionError, match="one"):
        Histories(parse({}, streaming=True)).lost("one")


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_several_copies_the_newest_is_read(tmp_path: Path, newest_first: bool) -> None:
    names = [tmp_path / name for name in ("a.db", "b.db")]
    newest, older = names if newest_first else names[::-1]
    with eosdb.connect(newest, durability="off") as db:
        db.admin.create_topic("t")
        db.backup(older)
        db.broker.append(TP, RecordBatch([Record(value=b"v")]))
    request = files.given({"path": str(tmp_path / "*.db")})
    cut = Lens(request, parse({}, streaming=False)).cut()
    (found,) = cut.files.values()
    assert found.path == str(newest)
    assert [one.path for one in cut.skipped] == [str(older)]
