"""`eosdb ingest`: each line exactly once, whatever is killed, repeated or started twice."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import eosdb
from eosdb import TopicPartition

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


def test_ndjson_with_a_key_field(run: Run, tmp_path: Path, db_path: Path) -> None:
    lines = ['{"id": "a", "n": 1}', '{"id": 7}', "", '{"n": 2}', '{"id": null}']
    (tmp_path / "in.ndjson").write_text("\n".join(lines))
    result = run("ingest", "t", str(tmp_path / "in.ndjson"), "--key", "id")
    assert result.exit_code == 0
    assert Counter(stored(db_path)) == Counter(
        [
            (b"a", b'{"id": "a", "n": 1}'),
            (b"7", b'{"id": 7}'),
            (None, b'{"n": 2}'),
            (None, b'{"id": null}'),
        ]
    )


def test_csv_rows_become_json_objects(run: Run, tmp_path: Path, db_path: Path) -> None:
    (tmp_path / "in.csv").write_text('id,text\n1,"two\nlines"\n2,"a ""quote"""\n')
    run("ingest", "t", str(tmp_path / "in.csv"), "--key", "id", "--transaction-size", "1")
    assert sorted((key, json.loads(value)) for key, value in stored(db_path)) == [
        (b"1", {"id": "1", "text": "two\nlines"}),
        (b"2", {"id": "2", "text": 'a "quote"'}),
    ]


def test_packed_files_and_plain_lines(run: Run, tmp_path: Path, db_path: Path) -> None:
    with gzip.open(tmp_path / "in.txt.gz", "wt") as file:
        file.write("one\n\ntwo")
    run("ingest", "t", str(tmp_path / "in.txt.gz"))
    assert Counter(value for _, value in stored(db_path)) == Counter([b"one", b"", b"two"])


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


def test_a_file_that_was_replaced_by_a_shorter_one_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    run("ingest", "t", str(tmp_path / "in.txt"))
    (tmp_path / "in.txt").write_text("one\n")
    result = run("ingest", "t", str(tmp_path / "in.txt"))
    assert result.exit_code == 1
    assert "--source-id" in result.stderr
    assert run("ingest", "t", str(tmp_path / "in.txt"), "--source-id", "second").exit_code == 0


def test_a_bad_line_stops_or_is_skipped(run: Run, tmp_path: Path, db_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"id": 1}\nnot json\n[3]\n{"id": 4}\n')
    result = run(
        "ingest", "t", str(tmp_path / "in.ndjson"), "--key", "id", "--transaction-size", "1"
    )
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    assert len(stored(db_path)) == 1
    result = run("ingest", "t", str(tmp_path / "in.ndjson"), "--key", "id", "--on-error", "skip")
    assert result.exit_code == 0
    assert sorted(key for key, _ in stored(db_path)) == [b"1", b"4"]


def test_an_unknown_topic_says_how_to_make_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x")
    result = run("ingest", "nope", str(tmp_path / "in.txt"))
    assert result.exit_code == 1
    assert "create it first" in result.stderr


def test_killed_and_started_again_each_line_is_there_once(
    start: Start, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "in.txt"
    lines = [b"%d" % i for i in range(30_000)]
    path.write_bytes(b"\n".join(lines))
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


def test_started_twice_at_once_the_first_is_fenced(
    start: Start, tmp_path: Path, db_path: Path
) -> None:
    path = tmp_path / "in.txt"
    lines = [b"%d" % i for i in range(60_000)]
    path.write_bytes(b"\n".join(lines))
    first = start("ingest", "t", str(path), "--transaction-size", "50")
    with eosdb.connect(db_path, read_only=True) as db:
        while first.poll() is None and readable(db) < 500:
            pass
    second = start("ingest", "t", str(path), "--transaction-size", "5000")
    _, complaint = first.communicate()
    _, second_complaint = second.communicate()
    assert first.returncode == 1
    assert complaint.splitlines()[-1].startswith("error: PRODUCER_FENCED:")
    assert second.returncode == 0, second_complaint
    assert sorted(value for _, value in stored(db_path)) == sorted(lines)
