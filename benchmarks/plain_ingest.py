"""The script that `eosdb ingest` is compared with: NDJSON into a table, and nothing that survives a kill.

It imports nothing of eosdb and is a process of its own, as a user's script would be. The table and the row
come in by the first argument, so that they are eosdb's.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from itertools import islice
from pathlib import Path


def main(arguments: list[str]) -> None:
    shape, path, source, key, size = arguments
    ddl, insert, expression = json.loads(shape)
    row = eval(f"lambda i, key, value: {expression}")
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("PRAGMA journal_mode=WAL")
    file.execute("PRAGMA synchronous=FULL")
    file.executescript(ddl)
    count = 0
    with Path(source).open("rb") as lines:
        while batch := list(islice(lines, int(size))):
            rows = []
            for line in batch:
                field = json.loads(line).get(key)
                name = None if field is None else str(field).encode()
                rows.append(row(count, name, line.rstrip(b"\r\n")))
                count += 1
            file.execute("BEGIN")
            file.executemany(insert, rows)
            file.execute("COMMIT")
    file.close()


if __name__ == "__main__":
    main(sys.argv[1:])
