"""Typed views over JSON values: real SQL views, kept by backup, replay and upgrade alike."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from pathlib import Path

import pyarrow
import pytest

import eosdb
from eosdb.errors import InvalidRequestError
from tests.cases import each

FLIGHT = {"carrier": "UA", "dep_delay": -2, "distance": 1400.5, "late": True, "plane": {"seats": 3}}


@pytest.fixture
def flights(db: eosdb.Database) -> eosdb.Database:
    db.admin.create_topic("flights")
    columns = {
        "carrier": "text", "dep_delay": "INTEGER", "distance": "REAL", "late": "BOOLEAN",
        "plane": "JSON", "plane.seats": "INTEGER",
    }  # fmt: skip
    db.admin.create_view("typed", "flights", columns)
    return db


def send(db: eosdb.Database, *values: object) -> None:
    producer = db.producer()
    for value in values:
        producer.send("flights", value if isinstance(value, bytes) else json.dumps(value), key="k")
    producer.close()


def shown(db: eosdb.Database) -> list[tuple[object, ...]]:
    return list(db.query("SELECT * FROM typed ORDER BY _offset").rows)


def test_fields_become_columns_with_their_types(flights: eosdb.Database) -> None:
    send(flights, FLIGHT)
    answer = flights.query("SELECT * FROM typed")
    assert answer.columns == (
        "carrier", "dep_delay", "distance", "late", "plane", "plane_seats",
        "_partition", "_offset", "_timestamp", "_key",
    )  # fmt: skip
    (row,) = answer.rows
    assert row[:6] == ("UA", -2, 1400.5, 1, '{"seats":3}', 3)
    assert row[6:8] == (0, 0)
    assert row[9] == "k"


def test_booleans_and_times_arrive_as_such_in_data_frames(flights: eosdb.Database) -> None:
    send(flights, FLIGHT, {"carrier": "AA"}, {"carrier": "?", "late": False})
    by_name = "SELECT carrier, late AS l, _timestamp AS t FROM typed f WHERE carrier <> ? -- ?"
    joined = (
        "WITH x AS (SELECT late, _timestamp, _offset FROM TYPED) SELECT x.* FROM x JOIN all_records"
    )
    for sql, given, booleans, times in (
        ("SELECT * FROM typed", (), ["late"], ["_timestamp"]),
        (by_name, ("?",), ["l"], ["t"]),
        ("SELECT * FROM typed WHERE 0", (), ["late"], ["_timestamp"]),
        (joined, (), ["late"], ["_timestamp"]),
        ("SELECT sum(late) AS late, max(_timestamp) AS _timestamp FROM typed", (), [], []),
        ("SELECT late FROM typed UNION ALL SELECT 'typed'", (), [], []),
        ("SELECT * FROM committed_records", (), [], []),
    ):
        frame = flights.query(sql, given).df()
        table = flights.query(sql, given).arrow() if "'typed'" not in sql else None
        assert [n for n, t in frame.dtypes.items() if t == "boolean"] == booleans, sql
        assert [n for n, t in frame.dtypes.items() if t == "datetime64[ms, UTC]"] == times, sql
        if table is not None:
            assert [
                one.name for one in table.schema if pyarrow.types.is_boolean(one.type)
            ] == booleans
            utc = pyarrow.timestamp("ms", tz="UTC")
            assert [one.name for one in table.schema if one.type == utc] == times
    table = pyarrow.table(flights.query("SELECT late, _timestamp FROM typed ORDER BY _offset"))
    assert table["late"].to_pylist() == [True, None, False]
    (stored,) = flights.query("SELECT _timestamp FROM typed WHERE _offset = 0").one()
    assert table["_timestamp"][0].as_py().timestamp() * 1000 == stored
    assert flights.query("SELECT late FROM typed WHERE _offset = 0").one() == (1,)


def test_an_integer_beside_null_loses_no_digit_in_a_data_frame(flights: eosdb.Database) -> None:
    flights.admin.create_view("exact", "flights", {"number": "INTEGER"})
    send(flights, {"number": 2**62 + 1}, {})
    numbers = flights.query("SELECT number FROM exact ORDER BY _offset DESC LIMIT 2").df().number
    assert numbers.dtype == "Int64"
    assert numbers[1] == 2**62 + 1
    assert numbers.isna().tolist() == [True, False]


def test_what_does_not_fit_is_null_and_hides_nothing(flights: eosdb.Database) -> None:
    send(
        flights,
        {"carrier": 7, "dep_delay": "NA", "distance": "12", "late": None},
        b"no json",
        b"\xff\xfe",
        [1, 2],
        {"dep_delay": "-15"},
        FLIGHT,
    )
    rows = [row[:4] for row in shown(flights)]
    assert rows == [
        ("7", None, 12.0, None),
        (None, None, None, None),
        (None, None, None, None),
        (None, None, None, None),
        (None, -15, None, None),
        ("UA", -2, 1400.5, 1),
    ]


@pytest.mark.slow
@each(
    ("value", "integer", "real", "boolean", "text"),
    [
        (b"12", 12, 12.0, None, "12"),
        (b'"-012"', -12, -12.0, None, "-012"),
        (b'"1e3"', 1000, 1000.0, None, "1e3"),
        (b"1.0", 1, 1.0, 1, "1.0"),
        (b"1.9", None, 1.9, None, "1.9"),
        (b"-0.5", None, -0.5, None, "-0.5"),
        (b"true", 1, 1.0, 1, "1"),
        (b'"0"', 0, 0.0, 0, "0"),
        (b'"2026-11-28"', None, None, None, "2026-11-28"),
        (b'"12 h"', None, None, None, "12 h"),
        (b'""', None, None, None, ""),
        (b'"-"', None, None, None, "-"),
        (b'"0x10"', None, None, None, "0x10"),
        (b'"true"', None, None, None, "true"),
        (b"[1]", None, None, None, "[1]"),
        (b'{"n":1}', None, None, None, '{"n":1}'),
        (b"null", None, None, None, None),
        (b"9223372036854775807", 2**63 - 1, 2.0**63, None, "9223372036854775807"),
        (b"-9223372036854775808", -(2**63), -(2.0**63), None, "-9223372036854775808"),
        (b'"9223372036854775807"', 2**63 - 1, 2.0**63, None, "9223372036854775807"),
        (b"9223372036854775808", None, 2.0**63, None, ...),
        (b'"9223372036854775808"', None, 2.0**63, None, ...),
        (b"-9223372036854775809", None, -(2.0**63), None, ...),
        (b"1e300", None, 1e300, None, ...),
        (b'"\\ud83d"', None, None, None, None),
        (b'"a\\udc00 b"', None, None, None, None),
        (b'["\\ud83d"]', None, None, None, '["\\ud83d"]'),
        (b'"\\ud83d\\ude00"', None, None, None, "\U0001f600"),
        ('"\ufffd \x80 \xbf"'.encode(), None, None, None, "\ufffd \x80 \xbf"),
        (b'"M\xfcller"', None, None, None, None),
        (b'"\x93quoted\x94"', None, None, None, None),
        (b'"\xe4\xbd"', None, None, None, None),
        (b'"x\xf0\x9f\x8d"', None, None, None, None),
        (b'"\xc3\xa9\xa9"', None, None, None, None),
        (b'{"n":"\xe4\xbd"}', None, None, None, None),
        (('"' + "ö" * 15).encode() + b'\xe4\xbd"', None, None, None, None),
        (('"' + "ö" * 16).encode() + b'\xbd"', None, None, None, None),
        (('"' + "中🍵\x7f" * 20 + '"').encode(), None, None, None, "中🍵\x7f" * 20),
    ],
)
def test_a_value_that_would_be_changed_is_null(
    db: eosdb.Database, value: bytes, integer: object, real: object, boolean: object, text: object
) -> None:
    db.admin.create_topic("flights", exist_ok=True)
    if not db.admin.list_views():
        for kind in ("INTEGER", "REAL", "BOOLEAN", "TEXT"):
            db.admin.create_view(f"as_{kind}", "flights", {"v": kind})
    send(db, b'{"v":' + value + b"}")
    for kind, expected in (
        ("INTEGER", integer), ("REAL", real), ("BOOLEAN", boolean), ("TEXT", text),
    ):  # fmt: skip
        found = db.query(f"SELECT v FROM as_{kind} ORDER BY _offset DESC LIMIT 1").one()[0]
        assert expected is ... or (found, type(found)) == (expected, type(expected)), kind


def test_only_committed_records_are_shown(flights: eosdb.Database) -> None:
    producer = flights.producer(transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("flights", json.dumps(FLIGHT))
    producer.flush()
    assert shown(flights) == []
    producer.commit_transaction()
    assert len(shown(flights)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        b"", b"42", b"~ ~", b"tea\ttime\n", "ö€🍵 ö".encode(),
        "\ufffd\ufffc\U0010ffff\x7f\x80".encode(),
        b"\xff", b"\x80", b"tea\xe4", b"\xe4\xb8", b"\xe4\xb8x", b"\xe4\xb8\xad\xad", b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80", b"\xf0\x9f\x8d\xb5\xb5", "ö".encode() * 3 + b"\xc3",
        "ö".encode() * 15 + b"\xe4\xbd", "ö".encode() * 16 + b"\xbd", b"a\x00b", b"\x00",
        struct.pack(">q", 7), "ö".encode() * 5_000,
    ],
)  # fmt: skip
def test_a_key_is_text_and_what_is_no_text_is_a_literal(
    flights: eosdb.Database, key: bytes
) -> None:
    with flights.producer() as producer:
        producer.send("flights", b"{}", key=key)
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\x00"
    expected = f"X'{key.hex().upper()}'" if "\x00" in text else text
    assert [row[9] for row in shown(flights)] == [expected]
    (found,) = flights.query("SELECT _offset FROM typed WHERE _key = ?", (expected,)).rows
    assert tuple(found) == (0,)


def test_no_key_is_null(flights: eosdb.Database) -> None:
    with flights.producer() as producer:
        producer.send("flights", b"{}")
    assert [row[9] for row in shown(flights)] == [None]


def test_a_view_of_an_earlier_version_is_read_and_made_anew_by_rebuild(
    flights: eosdb.Database, db_path: Path
) -> None:
    send(flights, FLIGHT)
    with contextlib.closing(sqlite3.connect(db_path)) as connection:
        connection.execute("DROP VIEW typed")
        connection.execute("CREATE VIEW typed AS SELECT key AS _key FROM committed_records")
    assert flights.columns("typed") == {"_key": "BLOB"}
    assert flights.verify().ok
    flights.rebuild()
    assert flights.columns("typed")["_key"] == "TEXT"
    assert shown(flights)[0][9] == "k"


def test_a_range_of_offsets_is_an_index_range(flights: eosdb.Database) -> None:
    plan = flights.query(
        "EXPLAIN QUERY PLAN SELECT carrier FROM typed WHERE _partition = 0 AND _offset BETWEEN 5 AND 9"
    )
    assert any("partition_id=? AND offset>? AND offset<?" in str(row) for row in plan.rows)


def test_it_is_listed_and_dropped(flights: eosdb.Database) -> None:
    (view,) = flights.admin.list_views()
    assert (view.name, view.topic) == ("typed", "flights")
    assert view.columns == {
        "carrier": "TEXT", "dep_delay": "INTEGER", "distance": "REAL", "late": "BOOLEAN",
        "plane": "JSON", "plane_seats": "INTEGER",
    }  # fmt: skip
    flights.admin.drop_view("TYPED")
    assert flights.admin.list_views() == []
    with pytest.raises(InvalidRequestError, match="no such table"):
        shown(flights)
    with pytest.raises(InvalidRequestError, match="no typed view"):
        flights.admin.drop_view("typed")


def test_it_survives_replay_backup_and_a_new_topic_of_the_name(
    flights: eosdb.Database, tmp_path: Path
) -> None:
    send(flights, FLIGHT)
    before = shown(flights)
    position = flights.info()["journal_position"]
    flights.admin.create_view("later", "flights", {"carrier": "TEXT"})
    flights.rebuild()
    assert shown(flights) == before
    assert flights.verify().ok
    flights.backup(tmp_path / "copy.db")
    assert isinstance(position, int)
    flights.restore_to(tmp_path / "then.db", position=position)
    with eosdb.connect(tmp_path / "copy.db", read_only=True) as copy:
        assert shown(copy) == before
        assert [view.name for view in copy.admin.list_views()] == ["later", "typed"]
    with eosdb.connect(tmp_path / "then.db", read_only=True) as then:
        assert shown(then) == before
        assert [view.name for view in then.admin.list_views()] == ["typed"]
        names = then.query("SELECT name FROM sqlite_master WHERE name = 'later'")
        assert list(names.rows) == []


@each(
    ("name", "columns", "message"),
    [
        ("journal", {"a": "TEXT"}, "reserved for eosdb or SQLite"),
        ("eosdb_x", {"a": "TEXT"}, "reserved for eosdb or SQLite"),
        ("sqlite_x", {"a": "TEXT"}, "reserved for eosdb or SQLite"),
        ("typed", {"a": "TEXT"}, "already"),
        ("two words", {"a": "TEXT"}, "expected a name"),
        ('x"; DROP TABLE topics; --', {"a": "TEXT"}, "expected a name"),
        ("1x", {"a": "TEXT"}, "expected a name"),
        ("v", {}, "expected one or more"),
        ("v", {"a.b": "TEXT", "a_b": "TEXT"}, "different"),
        ("v", {"_offset": "TEXT"}, "none of them named"),
        ("v", {"a": "BLOB"}, "expected one of TEXT"),
        ("v", {"a' || x": "TEXT"}, "JSON field"),
        ("v", {"": "TEXT"}, "JSON field"),
    ],
)
def test_what_can_be_no_view_is_refused(
    flights: eosdb.Database, name: str, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        flights.admin.create_view(name, "flights", columns)
    assert len(flights.admin.list_views()) == 1


def test_a_view_needs_its_topic(flights: eosdb.Database) -> None:
    with pytest.raises(eosdb.UnknownTopicOrPartitionError):
        flights.admin.create_view("v", "nowhere", {"a": "TEXT"})


def test_keys_and_values_are_text_beside_the_bytes(db: eosdb.Database) -> None:
    """Also what is not UTF-8, which would end every query in Python."""
    db.admin.create_topic("t")
    given = [
        (b"ann", b'{"total": 7}'),
        ("Jürgen".encode(), b"\xff\xfe"),
        (None, None),
        (b"\0", b""),
    ]
    for key, value in given:
        db.producer().send("t", value, key=key, timestamp=1_700_000_000_123).result()
    found = db.query("SELECT * FROM committed_texts ORDER BY offset").all()
    assert [(row.key, row.value) for row in found] == given
    assert [(row.key_text, row.value_text) for row in found] == [
        ("ann", '{"total": 7}'), ("Jürgen", "X'FFFE'"), (None, None), ("X'00'", ""),
    ]  # fmt: skip
    assert found[0].time == "2023-11-14T22:13:20.123Z"
    of_ann = (
        "SELECT json_extract(value_text, '$.total') FROM committed_texts WHERE key_text = 'ann'"
    )
    assert db.query(of_ann).one() == (7,)
