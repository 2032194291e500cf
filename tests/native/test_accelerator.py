"""The accelerator is used where it is tried and found right, and otherwise everything is done in Python."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import random
import shutil
import sqlite3
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import eosdb
from eosdb import Record, RecordBatch, TopicPartition
from eosdb.cli.main import main
from eosdb.errors import InvalidRequestError
from eosdb.native import accelerator
from tests.native.roads import road
from tests.programs import ended
from tests.tidy.tree import ROOT

TP = TopicPartition("t", 0)


@pytest.fixture
def rows() -> Iterator[ModuleType]:
    with road("1"):
        module = accelerator.rows()
        assert module is not None
        yield module


@pytest.mark.both_roads
def test_a_test_of_both_roads_runs_without_the_accelerator_too(
    request: pytest.FixtureRequest,
) -> None:
    assert (accelerator.rows() is None) == request.node.name.endswith("[python]")


def works(path: Path) -> bool:
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("t")
        db.broker.append(TP, RecordBatch([Record(value=b"v")] * 20))
        consumer = db.consumer(auto_offset_reset="earliest")
        consumer.assign([TP])
        return [record.value for record in consumer.poll()] == [b"v"] * 20


def told(path: Path) -> object:
    with eosdb.connect(path) as db:
        return db.info()["native"]


@pytest.mark.process
def test_it_is_told_which_road_is_taken(db_path: Path) -> None:
    with road("1"):
        assert works(db_path)
        assert told(db_path) is True
        assert ", with the accelerator" in CliRunner().invoke(main, ["--version"]).output
    with road("0"):
        assert told(db_path) == "EOSDB_NATIVE=0"
        version = CliRunner().invoke(main, ["--version"]).output
        assert ", without the accelerator: EOSDB_NATIVE=0" in version


def test_where_it_was_not_built_python_does_everything(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "eosdb.native._rows", None)
    accelerator.rows.cache_clear()
    try:
        assert works(db_path)
        assert str(told(db_path)).startswith("not built for this Python")
    finally:
        accelerator.rows.cache_clear()


def test_one_of_an_earlier_version_is_not_used(
    rows: ModuleType, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(rows, "examined")
    accelerator.rows.cache_clear()
    assert works(db_path)
    assert str(told(db_path)).startswith("built from an earlier version")


def libsqlite3() -> Path:
    """The library that this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in lines if "libsqlite3" in line))


def test_a_second_sqlite_in_the_process_is_refused(
    rows: ModuleType, db_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its functions would not be those of Python's connections, and its locks not those of the process."""
    other = shutil.copy(libsqlite3(), tmp_path / "libother.so")
    ctypes.CDLL(str(other))
    monkeypatch.setattr(accelerator, "_sqlite_file", lambda: str(other))
    accelerator.rows.cache_clear()
    assert works(db_path)
    assert str(told(db_path)).startswith("found another SQLite than Python's")


def test_a_sqlite_whose_functions_cannot_be_looked_up_is_refused(
    rows: ModuleType, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(importlib.import_module("_ctypes").__file__)
    monkeypatch.setattr(accelerator, "_sqlite_file", lambda: file)
    accelerator.rows.cache_clear()
    assert works(db_path)
    assert told(db_path) == "Python's SQLite does not show sqlite3_auto_extension"


def test_a_trial_with_another_result_is_a_refusal(
    rows: ModuleType, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "columns", lambda _: ())
    accelerator.rows.cache_clear()
    assert works(db_path)
    assert told(db_path) == "a trial gave ()"


def has_functions(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'eosdb_batch'")
    return found.fetchone() is not None


def test_no_other_connection_of_the_process_gets_its_functions(rows: ModuleType) -> None:
    """Those that are opened before and afterwards, and by another thread in between."""
    others = [sqlite3.connect(":memory:")]

    def connect() -> sqlite3.Connection:
        def meanwhile() -> None:
            others.append(sqlite3.connect(":memory:", check_same_thread=False))

        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()
        return sqlite3.connect(":memory:")

    with closing(rows.opened(connect)) as ours:
        assert has_functions(ours)
    with pytest.raises(ZeroDivisionError):
        rows.opened(lambda: 1 // 0)
    others.append(sqlite3.connect(":memory:"))
    assert not any(map(has_functions, others))
    for connection in others:
        connection.close()


def test_a_users_own_sql_can_call_them_and_does_no_harm(rows: ModuleType, db_path: Path) -> None:
    assert works(db_path)
    with eosdb.connect(db_path) as db:
        assert list(db.query("SELECT * FROM eosdb_batch").rows) == []
        arguments = ", ".join(["x'00'"] * 14)
        with pytest.raises(InvalidRequestError, match="unusual row"):
            list(db.query(f"SELECT eosdb_rows({arguments})").rows)
        with pytest.raises(InvalidRequestError, match="wrong number of arguments"):
            list(db.query("SELECT eosdb_rows(1)").rows)
        for name in ("1", "'a'", "NULL", "-9223372036854775808", "1e300"):
            arguments = ", ".join([name] * 18)
            for function in ("eosdb_rows", "eosdb_batches"):
                with pytest.raises(InvalidRequestError, match="unusual row"):
                    list(db.query(f"SELECT {function}({arguments})").rows)


def test_no_bytes_lead_outside_of_themselves(rows: ModuleType, db_path: Path) -> None:
    assert works(db_path)
    with eosdb.connect(db_path) as db:
        cells = db.broker.fetch_data(TP, 0).cells
    assert cells is not None
    whole = cells.data
    rng = random.Random(5)
    for _ in range(3_000):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        for given in (bytes(damaged), bytes(damaged[: rng.randrange(len(damaged))])):
            with contextlib.suppress(ValueError):
                rows.columns(given)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (([b"k"], [], [1], [1]), ValueError),
        (([b"k", b"v"], ["h", "h"], [1], [1]), ValueError),
        (([b"k", b"v"], [], [1, 2], [1]), ValueError),
        (([b"k", b"v"], ["\ud800"], [1], [1]), ValueError),
        (([b"k", b"v"], [], [2**63], [1]), OverflowError),
        (([b"k", b"v"], [], [2**62], [1]), ValueError),
        (([b"k", b"v"], [], [1], [2**63 - 1]), ValueError),
        (([b"k", 1], [], [1], [1]), TypeError),
    ],
)
def test_what_is_no_batch_is_refused_before_a_statement_runs(
    rows: ModuleType, columns: tuple[list[Any], ...], error: type[Exception]
) -> None:
    def run() -> None:
        raise AssertionError

    *others, sums = columns
    with pytest.raises(error):
        rows.inserted(run, *others, array("q", sums), (1, 5, 7, 0, -1, 0, -1, -1, 0, 0))


@pytest.mark.parametrize(
    ("payload", "timestamps", "error"),
    [
        ([b"k"], [1], TypeError),
        ([b"k", "v"], [1], TypeError),
        ([b"k", bytearray(b"v")], [1], TypeError),
        ((b"k", b"v"), [1], TypeError),
        ([b"k", b"v"], [None], TypeError),
        ([b"k", b"v"], [True], TypeError),
        ([b"k", b"v"], [1.0], TypeError),
        ([b"k", b"v"], [-1], TypeError),
        ([b"k", b"v"], [2**63], OverflowError),
    ],
)
def test_what_is_no_batch_is_not_examined(
    rows: ModuleType, payload: object, timestamps: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        rows.examined(payload, timestamps)


@pytest.mark.process
@pytest.mark.parametrize(
    ("compiler", "wanted", "built"),
    [("cc", "1", ["_rows.abi3.so"]), ("/bin/false", "1", []), ("cc", "0", [])],
)
def test_it_is_built_where_there_is_a_compiler_and_it_is_wanted(
    tmp_path: Path, compiler: str, wanted: str, built: list[str]
) -> None:
    for name in ("setup.py", "eosdb/native/_rows.c", "eosdb/native/_batches.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = ended(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "CC": compiler, "EOSDB_NATIVE": wanted},
        check=True,
    )
    made = [path.name for path in (tmp_path / "eosdb/native").glob("*.so")]
    assert made == built, done.stderr
