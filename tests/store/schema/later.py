"""A later eosdb: a copy of the package with a revision 0002, run in a process of its own. An event gets a
member, which events of schema 1 lack; a materialized table and its copy in the baseline get its column; and
the revision changes rows of both."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import eosdb
from eosdb.store.schema.newest import SCHEMA_VERSION
from tests.readers import dump_state
from tests.store.schema.schema_files import schema_file
from tests.tidy.tree import ROOT

LATER: Final = SCHEMA_VERSION + 1
NAME: Final = f"migrations/versions/{LATER:04}_colours"
SCRIPT: Final = """
ALTER TABLE topics ADD COLUMN colour TEXT NOT NULL DEFAULT '';

ALTER TABLE eosdb_baseline_topics ADD COLUMN colour TEXT NOT NULL DEFAULT '';
"""
REVISION: Final = f'''
"""Topics have colours. Those that are there are red."""
from pathlib import Path
from zlib import crc32
from alembic import op
revision = "{LATER:04}"
down_revision = "{SCHEMA_VERSION:04}"
branch_labels = None
depends_on = None


def fits(execute, table):
    """Set the checksums of all rows, as every row of the baseline has one."""
    columns = execute(f"PRAGMA table_info({{table}})").fetchall()
    names = [f'"{{name}}"' for _, name, *_ in columns if name != "checksum"]
    keys = [f'"{{column[1]}}"' for column in columns if column[5]]
    where = " AND ".join(f"{{key}} = ?" for key in keys)
    for row in execute(f"SELECT {{', '.join(names)}} FROM {{table}}").fetchall():
        checksum = crc32("\\x1f".join(map(str, row)).encode())
        key = tuple(row[names.index(key)] for key in keys)
        execute(f"UPDATE {{table}} SET checksum = ? WHERE {{where}}", (checksum, *key))
    return [checksum for (checksum,) in execute(f"SELECT checksum FROM {{table}}")]


def upgrade():
    execute = op.get_bind().exec_driver_sql
    weight = crc32(b"eosdb_baseline_topics")
    before = sum(row[0] for row in execute("SELECT checksum FROM eosdb_baseline_topics"))
    for statement in Path(__file__).with_suffix(".sql").read_text().split(";\\n\\n"):
        execute(statement)
    execute("UPDATE topics SET colour = 'red'")
    execute("UPDATE eosdb_baseline_topics SET colour = 'red'")
    change = weight * (sum(fits(execute, "eosdb_baseline_topics")) - before)
    ((rows_sum,),) = execute("SELECT rows_sum FROM eosdb_baseline")
    signed = (rows_sum + change + 2**63) % 2**64 - 2**63
    execute("UPDATE eosdb_baseline SET rows_sum = ?", (signed,))
    fits(execute, "eosdb_baseline")
'''
PLANTED: Final = {
    "store/schema/newest.py": (
        f"SCHEMA_VERSION: Final = {SCHEMA_VERSION}",
        f"SCHEMA_VERSION: Final = {LATER}",
    ),
    "store/schema/file_id.py": (
        "NEWEST: Final = Needs(",
        "NEWEST: Final = (lambda *_: Needs(int(os.environ.get('READ_VERSION', 99)), '1.7'))(",
    ),
    "store/schema/migrate.py": (
        "_ALONE_WITHIN_MS: Final = 2_000",
        "_ALONE_WITHIN_MS: Final = int(os.environ.get('ALONE_WITHIN_MS', 2_000))",
    ),
    "events/kinds.py": (
        "    partitions: int\n    config: dict[str, str]\n",
        "    partitions: int\n    config: dict[str, str]\n    colour: str = 'red'\n",
    ),
    "log/topics.py": ("config created_time", "config created_time colour"),
    "log/projection.py": (
        '            event.timestamp,\n        ),\n    )\n    set_counter(unit, "topic_id"',
        '            event.timestamp, event.colour,\n        ),\n    )\n    set_counter(unit, "topic_id"',
    ),
}
"""What the next version's author would change beside the revision."""
UPGRADE: Final = """
import sys
import eosdb
clock = eosdb.ManualClock(1_700_000_100_000)
try:
    with eosdb.connect(sys.argv[1], clock=clock, **eval(sys.argv[2])) as db:
        rows = db.query("SELECT topic, colour FROM topics WHERE topic = 'orders'").all()
        print(db.info()["schema_version"], list(map(tuple, rows)), db.verify().problems)
        exec(sys.argv[3])
except eosdb.EosdbError as error:
    print(f"{type(error).__name__}: {error}")
"""
UPGRADED: Final = f"{LATER} [('orders', 'red')] ()"


def make_package(folder: Path) -> Path:
    """Copy the package to the folder, and plant the revision in it. Returns the folder."""
    ignored = shutil.ignore_patterns("__pycache__", "integrations", "wire", "testing")
    shutil.copytree(ROOT / "eosdb", folder / "eosdb", ignore=ignored)
    for name, (quoted, changed) in PLANTED.items():
        path = folder / "eosdb" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(quoted) == 1, name
        path.write_text(text.replace(quoted, changed), encoding="utf-8")
    (folder / f"eosdb/{NAME}.sql").write_text(SCRIPT.lstrip())
    (folder / f"eosdb/{NAME}.py").write_text(REVISION)
    return folder


class Old:
    """A file of today's schema, and a later eosdb that knows one more."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.path = folder / "old.db"
        self.package = package
        shutil.copy(schema_file(SCHEMA_VERSION), self.path)
        self.before = dump_state(self.path)

    def start(
        self, options: str = "{}", then: str = "", **environment: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", UPGRADE, str(self.path), options, then],
            env={**os.environ, "PYTHONPATH": str(self.package), **environment},
            cwd=self.package,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def upgrade(
        self, options: str = "{}", then: str = "", **environment: str
    ) -> tuple[int, Sequence[str], str]:
        child = self.start(options, then, **environment)
        output, errors = child.communicate(timeout=300)
        return child.returncode, output.splitlines(), errors

    def check_unchanged(self) -> None:
        assert dump_state(self.path) == self.before
        with eosdb.connect(self.path, read_only=True) as db:
            assert db.info()["schema_version"] == SCHEMA_VERSION
            assert db.verify().ok
