"""`eosdb ingest`: each line exactly once, whatever is killed, repeated or started twice."""

from __future__ import annotations

import datetime
import gzip
import importlib
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import freezegun
import pytest
from click.testing import Result

import eosdb
from eosdb import TopicPartition

pytestmark = pytest.mark.slow

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _topic(run: Run) -> None:
    run("init")
    run("topics", "create", "t", "--partitions", "3")


def stored(db_path: Path) -> list[tuple[bytes | None, bytes]]:
    with eosdb.connect(db_path, read_only=True) as db:
        return list(db.query('SELECT key, value FROM committed_records ORDER BY partition, "offset"').rows)  # fmt: skip  # noqa: E501


def readable(db: eosdb.Database) -> int:
    return sum(db.broker.offsets(TopicPartition("t", i)).last_stable_offset for i in range(3))


KEYED = ("--key", "id")
LONG = b"x" * 200_000
BOM = "\ufeff".encode()


@pytest.mark.parametrize(
    ("files", "options", "found"),
    [
        pytest.param(
            {"in.ndjson": b'{"id": "a", "n": 1}\n{"id": 7}\n\n{"n": 2}\n{"id": null}'},
            KEYED,
            [
                (b"a", b'{"id": "a", "n": 1}'),
                (b"7", b'{"id": 7}'),
                (None, b'{"n": 2}'),
                (None, b'{"id": null}'),
            ],
            id="a key of NDJSON",
        ),
        pytest.param(
            {"in.csv": b'id,text\n1,"two\nlines"\n2,"a ""quote"""\n'},
            (*KEYED, "--transaction-size", "1"),
            [(b"1", rb'{"id": "1", "text": "two\nlines"}'), (b"2", rb'{"id": "2", "text": "a \"quote\""}')],
            id="rows of CSV",
        ),
        pytest.param(
            {"in.txt.gz": gzip.compress(b"one\n\ntwo")},
            (),
            [(None, b"one"), (None, b""), (None, b"two")],
            id="packed lines",
        ),
        pytest.param(
            {"in.csv": BOM + b"id,x\n1,a\n", "in.ndjson": BOM + b'{"id": "2"}\n'},
            KEYED,
            [(b"1", b'{"id": "1", "x": "a"}'), (b"2", b'{"id": "2"}')],
            id="byte order marks",
        ),
        pytest.param(
            {"in.csv": b"id,x\n1," + LONG + b"\n"},
            (),
            [(None, b'{"id": "1", "x": "%s"}' % LONG)],
            id="a long field",
        ),
    ],
)  # fmt: skip
def test_lines_become_records(
    run: Run, tmp_path: Path, db_path: Path, files: dict[str, bytes], options: tuple[str, ...],
    found: list[tuple[bytes | None, bytes]],
) -> None:  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    result = run("ingest", "t", *(str(tmp_path / name) for name in files), *options)
    assert result.exit_code == 0
    assert Counter(stored(db_path)) == Counter(found)


@pytest.mark.parametrize("bad", [2, 30])
def test_skipped_lines_are_counted_and_the_first_are_named(
    run: Run, tmp_path: Path, bad: int
) -> None:
    (tmp_path / "in.ndjson").write_text("{}\n" + "no json\n" * bad + "{}\n")
    told = run("ingest", "t", str(tmp_path / "in.ndjson"), "--on-error", "skip").stderr
    assert f"2 records appended to t, {bad + 2} lines done, {bad} lines skipped" in told
    named = [line for line in told.splitlines() if line.endswith(": skipped")]
    assert f"{tmp_path / 'in.ndjson'}, line 2: " in named[0]
    assert len(named) == min(bad, 20)
    assert ("10 more lines skipped" in told) == (bad == 30)


@pytest.mark.parametrize("suffix", ["txt", "csv", "txt.gz"])
def test_a_file_that_grew_goes_on_where_it_ended(
    run: Run, tmp_path: Path, db_path: Path, suffix: str
) -> None:
    path = tmp_path / f"in.{suffix}"

    def write(text: str) -> None:
        data = text.encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)

    write("n\n1\n2\n")
    run("ingest", "t", str(path))
    before = len(stored(db_path))
    assert run("ingest", "t", str(path)).exit_code == 0
    assert len(stored(db_path)) == before
    write("n\n1\n2\n3\n4\n")
    run("ingest", "t", str(path), "--transaction-size", "1")
    assert len(stored(db_path)) == before + 2


def test_a_line_that_is_no_json_stops_also_without_a_key(
    run: Run, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text('{"id": 1}\n{"id": 2\n[3]\n')
    result = run("ingest", "t", str(path))
    assert result.exit_code == 1
    assert "line 2: not JSON" in result.stderr
    assert stored(db_path) == [(None, b'{"id": 1}')]
    assert run("ingest", "t", str(path), "--on-error", "skip").exit_code == 0
    assert sorted(value for _, value in stored(db_path)) == [b"[3]", b'{"id": 1}']


@pytest.mark.parametrize(
    ("name", "half", "rest", "found"),
    [
        ("in.txt", b"one\nhal", b"f\nthree\n", [b"one", b"half", b"three"]),
        ("in.csv", b"n\n1\n2", b"3\n", [b'{"n": "1"}', b'{"n": "23"}']),
        ("in.csv", b'n\n1\n"2\n', b'3"\n', [b'{"n": "1"}', rb'{"n": "2\n3"}']),
        ("in.ndjson", b'[1]\n{"n": 2', b"3}\n", [b"[1]", b'{"n": 23}']),
        ("in.ndjson", b"[1]\n2", b"3\n", [b"[1]", b"23"]),
    ],
)
@pytest.mark.parametrize("options", [(), ("--on-error", "skip")])
def test_half_a_last_row_waits_for_its_other_half(
    run: Run, tmp_path: Path, db_path: Path, name: str, half: bytes, rest: bytes,
    found: list[bytes], options: tuple[str, ...],
) -> None:  # fmt: skip
    path = tmp_path / name
    path.write_bytes(half)
    for _ in range(2):
        result = run("ingest", "t", str(path), *options)
        assert result.exit_code == 1
        assert "the file ends inside of it" in result.stderr
        assert len(stored(db_path)) == 1
    path.write_bytes(half + rest)
    assert run("ingest", "t", str(path), *options).exit_code == 0
    assert Counter(value for _, value in stored(db_path)) == Counter(found)


@pytest.mark.parametrize(
    ("name", "rest", "found"),
    [
        ("in.txt.gz", b"\r\n[3]\n", [b"[1]", b"[2]", b"[3]"]),
        ("in.ndjson", b"\r\n[3]\n", [b"[1]", b"[2]", b"[3]"]),
        ("in.txt.gz", b"9\n[3]\n", [b"[1]", b"[2]", b"[3]"]),
    ],
)
def test_a_last_line_that_cannot_go_on_is_a_record_before_its_end_is_there(
    run: Run, tmp_path: Path, db_path: Path, name: str, rest: bytes, found: list[bytes]
) -> None:
    """A packed file that ends is complete, and so is a JSON array. Other growth is told."""
    path = tmp_path / name
    pack = gzip.compress if name.endswith("gz") else bytes
    path.write_bytes(pack(b"[1]\n[2]"))
    assert run("ingest", "t", str(path)).exit_code == 0
    path.write_bytes(pack(b"[1]\n[2]" + rest))
    result = run("ingest", "t", str(path))
    assert (result.exit_code == 1) == ("its end was not written yet" in result.stderr)
    assert (result.exit_code == 1) == rest.startswith(b"9")
    assert run("ingest", "t", str(path), "--on-error", "skip").exit_code == 0
    assert Counter(value for _, value in stored(db_path)) == Counter(found)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'2,"b\n3,c\n4,d\n', "lines 3 to 5, which are one row of CSV: the file ends inside"),
        (b'2,"b\n3,c\n4,"d\n', "lines 3 to 5, which are one row of CSV: not CSV"),
        (b'2,"b\n3,c\n4",d,e\n', "lines 3 to 5, which are one row of CSV: 4 fields"),
    ],
)
def test_a_missing_quote_skips_no_good_rows(
    run: Run, tmp_path: Path, db_path: Path, content: bytes, rows: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"id,x\n1,a\n" + content)
    result = run("ingest", "t", str(path), "--on-error", "skip")
    assert result.exit_code == 1
    assert rows in result.stderr
    assert "quote that may be missing in line 3" in result.stderr
    path.write_bytes(b"id,x\n1,a\n2,b\n3,c\n")
    assert run("ingest", "t", str(path)).exit_code == 0
    assert sorted(v[:9] for _, v in stored(db_path)) == [b'{"id": "%d' % i for i in (1, 2, 3)]


@pytest.mark.parametrize("module", ["bz2", "lzma"])
def test_a_file_that_is_packed_otherwise_is_refused_whatever_its_name(
    run: Run, tmp_path: Path, module: str
) -> None:
    path = tmp_path / "in.txt"
    for data in (b"one\n", b""):
        path.write_bytes(importlib.import_module(module).compress(data))
        result = run("ingest", "t", str(path))
        assert (result.exit_code, "decompress it first" in result.stderr) == (1, True)


def test_a_gzip_file_is_known_by_its_first_bytes_and_an_edit_anywhere_in_what_was_read_is_seen(
    run: Run, tmp_path: Path, db_path: Path
) -> None:
    for path, pack in ((tmp_path / "in.GZ", gzip.compress), (tmp_path / "in.log", bytes)):
        path.write_bytes(pack(b"one\ntwo\n"))
        run("ingest", "t", str(path))
        path.write_bytes(pack(b"ONE\ntwo\nthree\n"))
        result = run("ingest", "t", str(path))
        assert result.exit_code == 1
        assert "differs from what was read up to byte 8" in result.stderr
        # A rotated log: the rest of the renamed file, under its old name.
        renamed = path.with_name("renamed")
        renamed.write_bytes(pack(b"one\ntwo\nlast\n"))
        assert run("ingest", "t", str(renamed), "--source-id", str(path)).exit_code == 0
    assert Counter(v for _, v in stored(db_path)) == Counter([b"one", b"two", b"last"] * 2)


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("in.txt", b"a longer one\nof other lines\n"),
        ("in.txt.gz", gzip.compress(b"a longer one\nof other lines\n")),
        ("in.txt", b"old 1\n"),
        ("in.txt", b"new 1\nold 2\n"),
    ],
    ids=["other lines", "other lines packed", "shorter", "an equal last line"],
)
def test_another_file_in_the_place_of_an_ingested_one_is_refused(
    run: Run, tmp_path: Path, db_path: Path, name: str, second: bytes
) -> None:
    path, first = tmp_path / name, b"old 1\nold 2\n"
    path.write_bytes(gzip.compress(first) if name.endswith("gz") else first)
    run("ingest", "t", str(path))
    path.write_bytes(second)
    result = run("ingest", "t", str(path))
    assert result.exit_code == 1
    assert "replaced or edited" in result.stderr
    assert "--source-id" in result.stderr
    assert len(stored(db_path)) == 2
    assert run("ingest", "t", str(path), "--source-id", "second").exit_code == 0


def test_a_position_that_an_operator_has_set_is_gone_on_from(
    run: Run, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\ntwo\n")
    run("ingest", "t", str(path), "--source-id", "s")
    with eosdb.connect(db_path) as db:
        position = {TopicPartition("t", 0): eosdb.OffsetAndMetadata(4)}
        db.broker.offset_commit("__eosdb.ingest:t:s", position)
    assert run("ingest", "t", str(path), "--source-id", "s").exit_code == 0
    assert sorted(value for _, value in stored(db_path)) == [b"one", b"two", b"two"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("in.csv", b"id,x\n1,\xff\n2,b\n", "line 2: not UTF-8"),
        ("in.csv", b'id,x\n1,"a"b\n2,b\n', "line 2: not CSV"),
        ("in.csv", b"id,x\n1\n2,b\n", "line 2: 1 fields, the header has 2"),
        ("in.ndjson", b"[" * 100_000 + b'\n{"id": "2"}\n', "line 1: not JSON"),
        ("in.ndjson", b'{"id": "\\ud800"}\n{"id": "2"}\n', "line 1: the key"),
        ("in.ndjson", b'{"n": NaN}\n{"id": "2"}\n', "line 1: not JSON: NaN"),
        ("in.ndjson", b'[-Infinity]\n{"id": "2"}\n', "line 1: not JSON: -Infinity"),
        ("in.ndjson", b"\xff\n" + b'{"id": "2"}\n', "line 1: not JSON"),
        ("in.ndjson", b'[3]\n{"id": "2"}\n', "line 1: "),
        ("in.ndjson", b'{"id": "%s"}\n{"id": "2"}\n' % (b"x" * 1_100_000), "line 1: 2200"),
        ("in.csv", b"id,id\n1,2\n", "'id' occurs twice"),
        ("in.csv", b"name,x\n1,2\n", "no field 'id'"),
        ("in.csv", b"id,\xff\n1,2\n", "not UTF-8"),
    ],
)
def test_whatever_is_wrong_with_a_line_is_said_and_can_be_skipped(
    run: Run, tmp_path: Path, db_path: Path, name: str, content: bytes, complaint: str
) -> None:
    """But for a header that cannot name fields."""
    (tmp_path / name).write_bytes(content)
    for options, exit_code in ((), 1), (("--on-error", "skip"), int("line" not in complaint)):
        result = run("ingest", "t", str(tmp_path / name), "--key", "id", *options)
        assert result.exit_code == exit_code
        if exit_code:
            assert result.stderr.startswith("error: INVALID_RECORD: ")
            assert complaint in result.stderr
        assert [key for key, _ in stored(db_path)] == [b"2"] * (not exit_code)


@pytest.mark.parametrize("damage", ["cut off", "changed", "not packed"])
def test_a_damaged_gzip_file_is_refused_and_goes_on_when_mended(
    run: Run, tmp_path: Path, db_path: Path, damage: str
) -> None:
    path = tmp_path / "in.txt.gz"
    lines = [b"%d" % i for i in range(20_000)]
    whole = gzip.compress(b"\n".join(lines))
    path.write_bytes({
        "cut off": whole[: len(whole) // 2],
        "changed": whole[:-8] + bytes(8),
        "not packed": b"\n".join(lines),
    }[damage])  # fmt: skip
    result = run("ingest", "t", str(path), "--transaction-size", "1000")
    assert result.exit_code == 1
    assert "incomplete or damaged gzip file" in result.stderr
    path.write_bytes(whole)
    assert run("ingest", "t", str(path)).exit_code == 0
    assert sorted(value for _, value in stored(db_path)) == sorted(lines)


def test_what_the_topic_refuses_is_known_before_it_spoils_a_transaction(
    run: Run, tmp_path: Path
) -> None:
    run("topics", "create", "keyed", "--config", "cleanup.policy=compact")
    run("topics", "create", "narrow", "--config", "max.message.bytes=8")
    (tmp_path / "in.txt").write_text("1234567\n" * 100 + "123456789\n")
    result = run("ingest", "narrow", str(tmp_path / "in.txt"))
    assert "line 101: 9 bytes" in result.stderr
    result = run("ingest", "keyed", str(tmp_path / "in.txt"))
    assert "line 1: no key" in result.stderr


def test_plain_lines_have_no_key_and_a_pipe_has_no_position(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x\n")
    assert run("ingest", "t", str(tmp_path / "in.txt"), "--key", "id").exit_code == 2
    os.mkfifo(tmp_path / "pipe")
    result = run("ingest", "t", str(tmp_path / "pipe"))
    assert result.exit_code == 2
    assert "eosdb produce" in result.stderr


def test_a_file_name_may_be_any_bytes(run: Run, tmp_path: Path, db_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")
    Path(path).write_text("x\n")
    for _ in range(2):
        assert run("ingest", "t", path).exit_code == 0
    assert len(stored(db_path)) == 1


def test_a_file_that_is_ingested_again_after_eight_days_is_not_doubled(
    run: Run, tmp_path: Path, db_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    with freezegun.freeze_time("2026-01-01") as time:
        run("ingest", "t", str(tmp_path / "in.txt"))
        time.tick(datetime.timedelta(days=8))
        run("ingest", "t", str(tmp_path / "in.txt"))
    assert len(stored(db_path)) == 2


def test_an_unknown_topic_says_how_to_make_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x")
    result = run("ingest", "nope", str(tmp_path / "in.txt"))
    assert result.exit_code == 1
    assert "eosdb topics create nope" in result.stderr


@pytest.mark.process
def test_killed_and_started_again_each_line_is_there_once(
    start: Start, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "in.txt"
    lines = [b"%d" % i for i in range(30_000)]
    path.write_bytes(b"\n".join([*lines, b""]))
    for threshold in (1_000, 9_000, 18_000):
        with eosdb.connect(db_path, read_only=True) as db:
            process = start("ingest", "t", str(path), "--transaction-size", "100")
            while process.poll() is None and readable(db) < threshold:
                pass
            process.send_signal(signal.SIGKILL)
            process.communicate()
    process = start("ingest", "t", str(path))
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    assert sorted(value for _, value in stored(db_path)) == sorted(lines)


@pytest.mark.process
def test_started_twice_at_once_the_first_is_fenced(
    start: Start, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "in.txt"
    lines = [b"%d" % i for i in range(60_000)]
    path.write_bytes(b"\n".join([*lines, b""]))
    first = start("ingest", "t", str(path), "--transaction-size", "50")
    with eosdb.connect(db_path, read_only=True) as db:
        while first.poll() is None and readable(db) < 500:
            pass
    second = start("ingest", "t", str(path), "--transaction-size", "5000")
    _, complaint = first.communicate()
    _, second_complaint = second.communicate()
    assert first.returncode == 1
    assert complaint.splitlines()[-1].startswith("error: PRODUCER_FENCED: another ingest of ")
    assert second.returncode == 0, second_complaint
    assert sorted(value for _, value in stored(db_path)) == sorted(lines)


def test_a_successor_that_has_only_aborted_what_was_open_fences_all_the_same(
    run: Run, tmp_path: Path, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\ntwo")
    commit = eosdb.Producer.commit_transaction

    def commit_while_another_one_starts(producer: eosdb.Producer) -> None:
        with (
            eosdb.connect(db_path) as db,
            pytest.raises(eosdb.ConcurrentTransactionsError, match="has been aborted"),
        ):
            ((transactional_id,),) = db.query("SELECT transactional_id FROM transactions").rows
            db.broker.init_producer_id(str(transactional_id))
        commit(producer)

    monkeypatch.setattr(eosdb.Producer, "commit_transaction", commit_while_another_one_starts)
    result = run("ingest", "t", str(path))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("error: PRODUCER_FENCED: another ingest of ")
    assert stored(db_path) == []
