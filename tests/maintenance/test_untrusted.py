"""A file from elsewhere: what it is, is said before anything in it has run, and nothing of it does harm."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import eosdb
from eosdb.integrations.publishing.fetching import fetch
from eosdb.maintenance.untrusted import Verdict, check
from eosdb.model.progress import silent
from tests import zygote
from tests.cli.conftest import MAIN

pytestmark = pytest.mark.process
ENDLESS = "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x) SELECT i FROM x"
NAME = "evil\x1b[2J\nFORGED\u202e"


@pytest.fixture(autouse=True)
def _is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that looks at the file, unless the test is about its start."""
    monkeypatch.setattr(zygote, "_is_of_the_product", lambda: False)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as eosdb leaves it, at rest."""
    path = tmp_path_factory.mktemp("from-elsewhere") / "shop.db"
    with eosdb.connect(path, durability="off") as db:
        db.admin.create_topic("orders", partitions=2)
        db.admin.create_view("typed", "orders", {"a": "TEXT"})
        with db.producer() as producer:
            producer.send_many("orders", [(b"%d" % i, b'{"a": 1}') for i in range(20)], partition=0)
    return path


@pytest.fixture
def file(tmp_path: Path, original: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


def altered(path: Path, *statements: str, table: str | None = None) -> None:
    """Have another program run the statements: nothing of eosdb's stands in its way. With `table` it
    stores what that STRICT table refuses."""
    if table is None:
        _run(path, *statements)
        return
    with sqlite3.connect(path) as asked:
        ((strict,),) = asked.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,))
        triggers = asked.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    asked.close()
    loose = re.sub(r",?\s*STRICT\b", "", strict)
    edit = "UPDATE sqlite_master SET sql = '{}' WHERE type = 'table' AND name = '{}'"
    quoted = [text.replace("'", "''") for text in (loose, strict)]
    _run(path, edit.format(quoted[0], table), "DELETE FROM sqlite_master WHERE type = 'trigger'")
    _run(path, *statements)
    _run(path, edit.format(quoted[1], table))
    _run(path, *(text for (text,) in triggers))


def _run(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints=ON")
    connection.execute("PRAGMA writable_schema=ON")
    for statement in statements:
        connection.execute(statement)
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    connection.execute(f"PRAGMA schema_version={version + 1}")
    connection.close()


@pytest.mark.real_start
def test_a_file_of_eosdbs_is_sound_and_nothing_appears_beside_it(file: Path) -> None:
    before = {path.name: path.read_bytes() for path in file.parent.iterdir()}
    report = check(str(file))
    assert (report.verdict, report.problems, report.others) == (Verdict.SOUND, (), ())
    assert report.events > 0
    assert {path.name: path.read_bytes() for path in file.parent.iterdir()} == before


@pytest.mark.real_start
def test_nothing_of_the_folder_is_imported(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("eosdb", "json", "resource", "sqlite3", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert check(file.name).verdict is Verdict.SOUND
    assert not (tmp_path / "ran").exists()


def test_a_published_copy_is_too(file: Path, tmp_path: Path) -> None:
    with eosdb.connect(file) as db:
        db.publish_copy(f"file://{tmp_path}/published")
    fetched = tmp_path / "fetched.db"
    fetch(f"file://{tmp_path}/published", fetched)
    assert check(str(fetched)).verdict is Verdict.SOUND


def test_a_file_of_an_earlier_schema_is_not_looked_into_until_it_has_been_upgraded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.db"
    shutil.copy(Path(__file__).parent.parent / "data/schema_0001.db", path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=0")
    report = check(str(path))
    assert report.verdict is Verdict.NOT_OURS
    assert "it states schema 0" in report.problems[0]
    eosdb.connect(path).close()
    assert check(str(path)).verdict is Verdict.SOUND


CODE = {
    "a view of ours that never ends": (
        "DROP VIEW committed_records",
        f"CREATE VIEW committed_records AS {ENDLESS}",
    ),
    "a table of ours that is a view": (
        "ALTER TABLE eosdb_journal RENAME TO mine",
        f"CREATE VIEW eosdb_journal (position) AS {ENDLESS}",
    ),
    "a trigger on records": (
        "CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM group_offsets; END",
    ),
    "a trigger of ours that is another": (
        "DROP TRIGGER eosdb_journal_refuses_update",
        "CREATE TRIGGER eosdb_journal_refuses_update AFTER INSERT ON eosdb_journal BEGIN SELECT 1; END",
    ),
    "a column that is computed": (
        "ALTER TABLE eosdb_journal ADD COLUMN evil TEXT AS (hex(zeroblob(400000000)))",
    ),
    "an index over an expression": ("CREATE INDEX evil ON topics (length(hex(zeroblob(100000))))",),
    "a name of eosdb's": ("CREATE TABLE eosdb_evil (a)",),
}


@pytest.mark.parametrize("name", sorted(CODE))
def test_what_a_schema_brings_along_is_refused_and_never_runs(file: Path, name: str) -> None:
    altered(file, *CODE[name])
    report = check(str(file))
    assert report.verdict is Verdict.NOT_OURS
    assert report.problems


def test_tables_and_views_of_an_owner_are_listed_and_left_alone(file: Path) -> None:
    altered(
        file,
        "CREATE TABLE customers (name)",
        f"CREATE VIEW endless AS {ENDLESS}",
        "CREATE TRIGGER told AFTER INSERT ON customers BEGIN SELECT * FROM endless; END",
    )
    report = check(str(file))
    assert report.verdict is Verdict.SOUND
    assert set(report.others) == {"table customers", "view endless", "trigger told"}


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (
            "eosdb_journal",
            "UPDATE eosdb_journal SET detail = replace(hex(zeroblob(50000)), '0', '[')",
        ),
        (
            "eosdb_journal",
            "UPDATE eosdb_journal SET detail = json_replace(detail, '$[2]', 1234567890123) "
            "WHERE kind = 'TopicCreated'",
        ),
        ("eosdb_journal", "UPDATE eosdb_journal SET kind = 'No' || char(27) || '[2J'"),
        ("eosdb_journal", "UPDATE eosdb_journal SET timestamp = 'soon'"),
        ("records", "UPDATE records SET checksum = 'none'"),
        ("records", 'UPDATE records SET "offset" = -9223372036854775808 WHERE "offset" = 3'),
        ("partitions", "UPDATE partitions SET log_end_offset = 'many'"),
        ("partitions", "UPDATE partitions SET log_end_offset = 4611686018427387904"),
        ("counters", "UPDATE counters SET value = X'ff'"),
        ("eosdb_json_views", """UPDATE eosdb_json_views SET name = 'x" AS SELECT 1 --'"""),
    ],
)
def test_rows_that_lie_are_damage_to_every_reader(file: Path, table: str, statement: str) -> None:
    altered(file, statement, table=table)
    report = check(str(file))
    assert report.verdict is Verdict.DAMAGED, report
    assert report.problems
    with eosdb.connect(file, read_only=True) as db:
        for ask in (db.verify, db.admin.overview, db.admin.journal, db.info, db.admin.list_views):
            _raises_nothing_but_errors_of_eosdbs(ask)
    _raises_nothing_but_errors_of_eosdbs(lambda: eosdb.connect(file).close())


def _raises_nothing_but_errors_of_eosdbs(ask: Callable[[], object]) -> None:
    try:
        ask()
    except eosdb.EosdbError as error:
        assert str(error)


@pytest.mark.parametrize(
    "where", [b"[0,1000,1]", b'{"a": 1}', b"[1,1,2,{}]", b"CREATE TABLE records"]
)
def test_bytes_that_were_turned_are_damage(file: Path, where: bytes) -> None:
    content = bytearray(file.read_bytes())
    at = content.rindex(where)
    content[at : at + 4] = bytes(255 - byte for byte in content[at : at + 4])
    file.write_bytes(content)
    assert check(str(file)).verdict is Verdict.DAMAGED


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" * 100, b"SQLite format 3\0" + bytes(200)])
def test_what_is_no_database_is_not_ours(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert check(str(file)).verdict is Verdict.NOT_OURS


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_what_sqlite_would_replay_into_it_is_not_replayed(file: Path, suffix: str) -> None:
    file.with_name(file.name + suffix).write_bytes(b"anything")
    report = check(str(file))
    assert report.verdict is Verdict.NOT_OURS
    assert suffix in report.problems[0]


@pytest.mark.real_start
@pytest.mark.parametrize(
    ("table", "statement", "limits", "said"),
    [
        (
            "eosdb_journal",
            "UPDATE eosdb_journal SET detail = '[' || replace(hex(zeroblob(25000000)), '00', '0,') || '0]'",
            {"cpu_s": 1},
            "more CPU time than 1 s",
        ),
        (
            "records",
            'UPDATE records SET value = zeroblob(200000000) WHERE "offset" = 3',
            {"memory_bytes": 400 * 1024**2},
            "more memory than 400 MiB",
        ),
    ],
)
def test_time_and_memory_are_bounded(
    file: Path, table: str, statement: str, limits: dict[str, int], said: str
) -> None:
    altered(file, statement, table=table)
    report = check(str(file), silent, **limits)
    assert report.verdict is Verdict.DAMAGED
    assert said in report.problems[0]


def test_the_exit_status_and_a_sentence_say_which(file: Path, tmp_path: Path) -> None:
    damaged, foreign = (Path(shutil.copy(file, tmp_path / name)) for name in ("d.db", "f.db"))
    altered(damaged, "UPDATE partitions SET log_end_offset = 7 WHERE partition = 0")
    altered(foreign, f'CREATE TRIGGER "{NAME}" AFTER INSERT ON records BEGIN SELECT 1; END')
    for path, status, said in (
        (file, 0, "ours and sound: "),
        (damaged, 1, "is damaged"),
        (foreign, 4, "nothing in it was executed"),
        (tmp_path / "absent.db", 1, "is no file"),
        (tmp_path, 2, "is a directory"),
    ):
        result = CliRunner().invoke(MAIN, ["verify", "--untrusted", str(path)])
        assert result.exit_code == status, result.output
        assert said in result.output
        assert all(line.isprintable() for line in result.output.split("\n"))
        assert not os.path.exists(f"{path}-lock")
