"""Copies of the file: one program makes them over and over, another reads each that it gets.

`python -m tests.trials.hunts.programs.copying FOLDER WAY ADDRESS SEED`: WAY is of MAKERS or of READERS.
A reader notes what it found as a line of JSON: for each partition how many records, and their digest.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import eosdb
from eosdb.integrations import publishing
from tests.trials.hunts.programs.working import FILE, TOPIC, Setting, Stopping

COPIES: Final = "collected"
"""The folder of what is made."""
NOTES: Final = f"{COPIES}/notes.jsonl"
_PAUSE_S: Final = 0.05
_ROWS: Final = (
    'SELECT partition, "offset", timestamp, key, value, headers FROM committed_records WHERE topic = ?'
    ' ORDER BY partition, "offset"'
)
_KEPT: Final = 20
"""Copies: a reader that verifies one is slower than who makes them."""
Rows = Mapping[int, list[tuple[object, ...]]]


def rows(path: Path) -> Rows:
    """The committed records of the topic by partition, all their columns."""
    found: defaultdict[int, list[tuple[object, ...]]] = defaultdict(list)
    with closing(sqlite3.connect(f"file:{path}?mode=rw", timeout=60, uri=True)) as connection:
        for partition, *columns in connection.execute(_ROWS, (TOPIC,)):
            found[partition].append(tuple(columns))
    return found


def digest(of: Iterable[tuple[object, ...]]) -> str:
    return hashlib.sha256(repr(list(of)).encode()).hexdigest()


# -- making ---------------------------------------------------------------------------------------


def _publish(folder: Path) -> None:
    with eosdb.connect(folder / FILE, read_only=True) as db:
        db.publish_copy(_url(folder), keep=_KEPT)


def _publish_file(folder: Path) -> None:
    with eosdb.connect(folder / FILE, read_only=True) as db:
        db.publish_copy(folder / COPIES / "published.db")


def _back_up(folder: Path) -> None:
    """Under the next number: one that was killed is begun again under the same name."""
    there = _backups(folder)
    number = int(there[-1].stem.rpartition("-")[2]) + 1 if there else 0
    with eosdb.connect(folder / FILE, read_only=True) as db:
        db.backup(folder / COPIES / f"backup-{number:05}.db")
    for old in there[: 1 - _KEPT]:
        for suffix in ("", "-wal", "-shm"):  # A reader that was killed leaves two of them.
            Path(f"{old}{suffix}").unlink(missing_ok=True)


def _url(folder: Path) -> str:
    return f"file://{folder}/{COPIES}/published"


def _backups(folder: Path) -> list[Path]:
    return sorted((folder / COPIES).glob("backup-?????.db"))


# -- reading --------------------------------------------------------------------------------------


def _fetch(folder: Path) -> Path:
    return Path(publishing.fetch(_url(folder), folder / COPIES / "fetched.db"))


def _open_file(folder: Path) -> Path:
    return folder / COPIES / "published.db"


def _newest_backup(folder: Path) -> Path:
    return max(_backups(folder), default=folder / COPIES / "backup-00000.db")


MAKERS: Final[Mapping[str, Callable[[Path], None]]] = {
    "publish": _publish, "publish-file": _publish_file, "backup": _back_up,
}  # fmt: skip
READERS: Final[Mapping[str, Callable[[Path], Path]]] = {
    "fetch": _fetch, "open-file": _open_file, "restore": _newest_backup,
}  # fmt: skip


def read(folder: Path, way: str) -> None:
    """Get a copy, verify it, and note what it has. Nothing is noted while there is none."""
    path = READERS[way](folder)
    with eosdb.connect(path, read_only=True) as db:
        problems = list(db.verify().problems)
    records = {partition: (len(of), digest(of)) for partition, of in rows(path).items()}
    with (folder / NOTES).open("a") as notes:
        notes.write(json.dumps([problems, records]) + "\n")


def main() -> None:
    setting, stopping = Setting.from_arguments(), Stopping()
    while not stopping.is_set:
        time.sleep(_PAUSE_S)
        try:
            if setting.name in MAKERS:
                MAKERS[setting.name](setting.folder)
            else:
                read(setting.folder, setting.name)
        except (eosdb.EosdbError, sqlite3.OperationalError, OSError) as error:
            # There is no copy yet, or it was just removed, or a write of this program failed.
            print(f"{type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
