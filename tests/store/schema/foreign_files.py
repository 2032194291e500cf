"""SQLite files of other applications, made as those make them, and what is theirs in them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from eosdb.store.schema import guard, newest

OURS = {found.name for found in newest.newest_schema()}


class Foreign(NamedTuple):
    make: Callable[[Path], None]
    write: str
    """A statement that adds a row to one of its tables."""


def write(path: Path, script: str, mode: str = "WAL", before: str = "") -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{before}; PRAGMA journal_mode={mode}; {script}")


_DJANGO = """
import sys, django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1],
                           "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL"}}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth.models import User
User.objects.create_user("alice", password="secret")
"""


def django(path: Path) -> None:
    import_module("django")  # Where it is missing, the test is skipped.
    subprocess.run([sys.executable, "-c", _DJANGO, str(path)], check=True)


def alembic(path: Path) -> None:
    """Managed by Alembic: its version table has Alembic's own name."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from sqlalchemy import Column, Integer, String, create_engine

    write(path, "")
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        context._ensure_version_table()
        operations = Operations(context)
        operations.create_table(
            "account", Column("id", Integer, primary_key=True), Column("name", String(40))
        )
        operations.create_index("ix_account_name", "account", ["name"])
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0009')")
    engine.dispose()


PLACES = """
PRAGMA user_version=77;
CREATE TABLE moz_origins (id INTEGER PRIMARY KEY, prefix TEXT, host TEXT, frecency INTEGER DEFAULT -1,
    UNIQUE (prefix, host));
CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR,
    visit_count INTEGER DEFAULT 0, guid TEXT, foreign_count INTEGER DEFAULT 0 NOT NULL,
    url_hash INTEGER DEFAULT 0 NOT NULL, origin_id INTEGER REFERENCES moz_origins (id));
CREATE INDEX moz_places_url_hashindex ON moz_places (url_hash);
CREATE UNIQUE INDEX moz_places_guid_uniqueindex ON moz_places (guid);
CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, from_visit INTEGER, place_id INTEGER,
    visit_date INTEGER, visit_type INTEGER);
CREATE TRIGGER moz_visits_afterinsert AFTER INSERT ON moz_historyvisits BEGIN
    UPDATE moz_places SET visit_count = visit_count + 1 WHERE id = NEW.place_id; END;
CREATE TABLE moz_meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO moz_origins (prefix, host) VALUES ('https://', 'example.org');
INSERT INTO moz_places (url, guid, origin_id) VALUES ('https://example.org/', 'abc', 1);
INSERT INTO moz_historyvisits (place_id, visit_type) VALUES (1, 1);
"""
FULL_TEXT = """
CREATE TABLE docs (id INTEGER PRIMARY KEY, title TEXT, body TEXT);
CREATE VIRTUAL TABLE docs_fts USING fts5 (title, body, content='docs', content_rowid='id');
CREATE TRIGGER docs_ai AFTER INSERT ON docs BEGIN
    INSERT INTO docs_fts (rowid, title, body) VALUES (new.id, new.title, new.body); END;
CREATE VIRTUAL TABLE places USING rtree (id, min_x, max_x, min_y, max_y);
INSERT INTO docs (title, body) VALUES ('Kafka', 'a log'), ('SQLite', 'a file');
INSERT INTO places VALUES (1, 0, 1, 0, 1);
CREATE VIEW titles AS SELECT title FROM docs;
"""
ODD = """
CREATE TABLE strict_one (id INTEGER PRIMARY KEY, a ANY, b BLOB) STRICT;
CREATE TABLE pairs (a TEXT, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE "a ""quoted"" table; --" (
    "col ""umn" TEXT, n INT, twice INT GENERATED ALWAYS AS (n * 2) STORED);
CREATE INDEX "odd index" ON pairs (length(a)) WHERE b IS NOT NULL;
INSERT INTO "a ""quoted"" table; --" ("col ""umn", n) VALUES ('ö', 21);
CREATE TABLE parent (id INTEGER PRIMARY KEY);
CREATE TABLE child (parent_id REFERENCES parent (id) ON DELETE CASCADE);
"""
BROKEN = """
CREATE TABLE features (fid INTEGER PRIMARY KEY, geom BLOB);
INSERT INTO features (geom) VALUES (x'4750');
CREATE VIEW over_nothing AS SELECT * FROM dropped_long_ago;
CREATE TRIGGER into_nothing AFTER DELETE ON features BEGIN DELETE FROM dropped_long_ago; END;
CREATE TABLE keeps (n);
INSERT INTO keeps VALUES (1);
PRAGMA writable_schema=ON;
INSERT INTO sqlite_master
VALUES ('table', 'layer', 'layer', 0, 'CREATE VIRTUAL TABLE layer USING VirtualSpatial(x)');
PRAGMA writable_schema=OFF;
"""
ACCEPTED = {
    "django": Foreign(
        django, "INSERT INTO django_session VALUES (hex(randomblob(9)), 'data', '2027-01-01')"
    ),
    "alembic": Foreign(alembic, "INSERT INTO account (name) VALUES ('alice')"),
    "places": Foreign(
        lambda path: write(path, PLACES), "INSERT INTO moz_historyvisits (place_id) VALUES (1)"
    ),
    "datasette": Foreign(
        lambda path: write(path, FULL_TEXT), "INSERT INTO docs (title, body) VALUES ('x', 'y')"
    ),
    "odd": Foreign(
        lambda path: write(path, ODD, before="PRAGMA page_size=1024; PRAGMA auto_vacuum=FULL"),
        'INSERT INTO "a ""quoted"" table; --" (n) VALUES (4)',
    ),
    "geopackage": Foreign(
        lambda path: write(
            path, f"PRAGMA application_id=0x47504B47; PRAGMA user_version=10300; {BROKEN}"
        ),
        "INSERT INTO keeps VALUES (2)",
    ),
    "large pages": Foreign(
        lambda path: write(path, "CREATE TABLE own (x)", before="PRAGMA page_size=65536"),
        "INSERT INTO own VALUES (1)",
    ),
}


class Theirs(NamedTuple):
    """What the owner of a file has in it."""

    schema: list[tuple[Any, ...]]
    rows: dict[str, list[tuple[Any, ...]]]
    settings: dict[str, Any]


def theirs(path: Path) -> Theirs:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        typed = "SELECT name FROM eosdb_json_views"
        has_any = any(name == "eosdb_json_views" for _, name, *_ in found)
        ours = OURS | {name for (name,) in (connection.execute(typed) if has_any else ())}
        schema = [
            row
            for row in found
            if row[2] not in ours
            and not guard.is_own(row[2])
            and not row[1].startswith("sqlite_stat")
        ]
        rows = {}
        for type_, name, _, sql in schema:
            if type_ == "table" and "VirtualSpatial" not in sql:
                quoted = name.replace('"', '""')
                rows[name] = sorted(connection.execute(f'SELECT * FROM "{quoted}"'), key=repr)
        names = ("application_id", "user_version", "page_size", "auto_vacuum", "encoding")
        settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        return Theirs(sorted(schema, key=repr), rows, settings)


def folder_of(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file in its folder, byte for byte, and when it was changed; of SQLite's shared memory, which
    lasts no longer than who uses it, that it is there."""
    return {
        name: (b"", 0)
        if name.endswith("-shm")
        else ((path.parent / name).read_bytes(), (path.parent / name).stat().st_mtime_ns)
        for name in sorted(os.listdir(path.parent))
    }


_LIVING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.executescript(sys.argv[2])
print("ready", flush=True)
for line in sys.stdin:
    print(connection.execute(line).fetchall(), flush=True)
"""


class Owner:
    """A program of the owner's, which has the file open by plain sqlite3."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, statement: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextlib.contextmanager
def owner(path: Path, script: str) -> Iterator[Owner]:
    """It has run the script, and lives until the block ends."""
    command = [sys.executable, "-c", _LIVING, str(path), script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield Owner(process)
        finally:
            process.kill()
