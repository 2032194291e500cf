"""A process that exports, over and over, and may be killed at any instant.

Its arguments are FORMAT FOLDER DB TURNS.
"""

from __future__ import annotations

import sys
from pathlib import Path

import eosdb
from tests.integrations.lakehouse.tables import Table, append


def main(format: str, folder: str, path: str, turns: str) -> None:
    table = Table(format, Path(folder))
    with eosdb.connect(path, durability="off") as db:
        print("ready", flush=True)
        for _ in range(int(turns)):
            append(db, 5, 0)
            append(db, 5, 1)
            print(table.export(db).records, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
