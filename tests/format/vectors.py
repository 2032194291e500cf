"""Test vectors for readers: a file, what a reader lists of it, and how to break each invariant of the page.

`vectors.json` is made of this by `python -m scripts.make_format_vectors`: statements of SQL, which anybody
may run on a copy of the file, with what a reader then finds.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from eosdb.store.schema.row_checksum import row_checksum
from tests.maintenance.everything import Raw, changing
from tests.tidy.tree import ROOT

FILE: Final = "tests/data/schema_0001.db"
VECTORS: Final = ROOT / "tests/format/vectors.json"
ORDERS: Final = 4
"""The id of the partition orders-0, with six records behind the baseline."""
PAST: Final = 1
"""That of past-0, which compaction has passed."""


class Breaking:
    """Runs statements on a copy of the file, and keeps them."""

    def __init__(self, connection: Raw) -> None:
        self._connection = connection
        self.statements: Final[list[str]] = []

    def run(self, statement: str) -> None:
        assert self._connection.execute(statement).rowcount, statement
        self.statements.append(statement)

    def fit(self, table: str, where: str) -> None:
        """Give a row the checksum that it must have."""
        names = [name for _, name, *_ in self._connection.execute(f"PRAGMA table_info({table})")]
        others = ", ".join(name for name in names if name != "checksum")
        (row,) = self._connection.execute(f"SELECT {others} FROM {table} WHERE {where}")
        self.run(f"UPDATE {table} SET checksum = {row_checksum(*row)} WHERE {where}")


def _altered_row(breaking: Breaking) -> None:
    breaking.run("UPDATE eosdb_baseline_group_offsets SET committed_offset = committed_offset + 40")


def _altered_record(breaking: Breaking) -> None:
    breaking.run("UPDATE records SET value = X'6F70656E21' WHERE value = X'6F70656E'")


def _two_rows(breaking: Breaking) -> None:
    breaking.run("INSERT INTO eosdb_alembic_version VALUES ('0002')")


def _gap(breaking: Breaking) -> None:
    breaking.run("DELETE FROM eosdb_journal WHERE position = 77")


def _unknown(breaking: Breaking) -> None:
    breaking.run("UPDATE eosdb_journal SET kind = 'SnapshotLost' WHERE position = 77")
    breaking.fit("eosdb_journal", "position = 77")


def _out_of_place(breaking: Breaking) -> None:
    breaking.run(
        "UPDATE eosdb_journal SET detail = json_replace(detail, '$[1]', 6) WHERE position = 76"
    )
    breaking.fit("eosdb_journal", "position = 76")


def _no_event(breaking: Breaking) -> None:
    breaking.run("DELETE FROM eosdb_journal WHERE position = 10")


def _gone(breaking: Breaking) -> None:
    breaking.run(f'DELETE FROM records WHERE partition_id = {ORDERS} AND "offset" = 3')


def _size(breaking: Breaking) -> None:
    breaking.run(f"UPDATE partitions SET size_bytes = 54 WHERE partition_id = {ORDERS}")
    breaking.fit("partitions", f"partition_id = {ORDERS}")


def _cleaned(breaking: Breaking) -> None:
    breaking.run(f'DELETE FROM records WHERE partition_id = {PAST} AND "offset" = 11')


def _baseline_row(breaking: Breaking) -> None:
    breaking.run("DELETE FROM eosdb_baseline_sinks")


def _chain(breaking: Breaking) -> None:
    breaking.run("DELETE FROM transaction_index")


def _folded(breaking: Breaking) -> None:
    breaking.run(f"UPDATE partitions SET last_stable_offset = 6 WHERE partition_id = {ORDERS}")
    breaking.fit("partitions", f"partition_id = {ORDERS}")


def _schema(breaking: Breaking) -> None:
    breaking.run("DROP INDEX records_sequence")


BROKEN: Final[dict[str, Callable[[Breaking], None]]] = {
    "rows' checksums": _altered_row,
    "records' checksums": _altered_record,
    "one row": _two_rows,
    "positions": _gap,
    "kinds": _unknown,
    "places": _out_of_place,
    "events": _no_event,
    "rows": _gone,
    "size_bytes": _size,
    "cleaned_sum": _cleaned,
    "rows_sum": _baseline_row,
    "chain": _chain,
    "folded": _folded,
    "schema": _schema,
}
"""By invariant, as the page names them."""


def broken(folder: Path) -> dict[str, tuple[Path, list[str]]]:
    """By invariant: a copy of the file in which it does not hold, and the statements that did it."""
    files = {}
    for number, (name, break_) in enumerate(BROKEN.items()):
        shutil.copy(ROOT / FILE, path := folder / f"bad-{number:02}.db")
        with changing(path) as connection:
            break_(breaking := Breaking(connection))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        files[name] = (path, breaking.statements)
    return files


def made(
    folder: Path, lines_of: Callable[[list[Path]], dict[str, list[list[Any]]]]
) -> dict[str, Any]:
    """The vectors: `lines_of` is a reader."""
    good = folder / "good.db"
    shutil.copy(ROOT / FILE, good)
    files = broken(folder)
    lines = lines_of([good, *(path for path, _ in files.values())])
    bad = [
        {"invariant": name, "sql": statements, "found": found(lines[path.name])}
        for name, (path, statements) in files.items()
    ]
    listed = [[shortened(cell) for cell in line] for line in lines["good.db"][1:]]
    return {"file": FILE, "lines": listed, "bad": bad}


def shortened(cell: Any) -> Any:
    """A long value as its number of bytes and their CRC-32."""
    if not isinstance(cell, str) or len(cell) < 200:
        return cell
    content = base64.b64decode(cell)
    return [len(content), crc32(content)]


def found(lines: list[list[Any]]) -> list[list[Any]]:
    """What a reader has found to be wrong."""
    return [line for line in lines if line[0] in ("altered", "wrong")]
