"""Makes migrations/newest.sql: what the revisions make of an empty database.

    python -m scripts.make_newest_schema

Run with every new revision; tests/store/schema/test_new_file.py compares.
"""

from __future__ import annotations

import sqlite3

from eosdb.store.schema.migrate import apply_revisions
from eosdb.store.schema.newest import STATEMENT_END
from tests.tidy.tree import ROOT

SCRIPT = ROOT / "migrations/newest.sql"


def newest_schema() -> str:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    apply_revisions(connection)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql <> '' ORDER BY rowid")
    ((revision,),) = connection.execute("SELECT version_num FROM eosdb_alembic_version")
    stamp = f"INSERT INTO eosdb_alembic_version VALUES ('{revision}')"
    (baseline,) = connection.execute("SELECT * FROM eosdb_baseline")
    begin = f"INSERT INTO eosdb_baseline VALUES {baseline}"
    statements = [*(sql.strip() for (sql,) in rows), stamp, begin]
    connection.close()
    assert not any(STATEMENT_END in statement for statement in statements)
    return "".join(statement + STATEMENT_END for statement in statements)


if __name__ == "__main__":
    SCRIPT.write_text(newest_schema(), encoding="utf-8")
