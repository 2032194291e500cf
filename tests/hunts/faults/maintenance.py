"""Maintenance of the file by other processes while the actor works."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import eosdb
from eosdb import TopicPartition
from eosdb.store.schema.row_checksum import row_checksum
from tests.hunts import judge
from tests.hunts.actors.actor import Actor
from tests.hunts.faults.fault import Fault
from tests.hunts.faults.locks import LONGER_S
from tests.hunts.programs.working import PARTITIONS, TOPIC
from tests.hunts.world import HuntError, World
from tests.integrations.relay.contents import placed


class Command(Fault):
    """A command that reads or rewrites the file."""

    def __init__(self, name: str) -> None:
        self.name, self.summary = name, f"`eosdb {name}` of the file"

    def strike(self, world: World, actor: Actor) -> bool:
        world.finish(self.name, world.rng.choice(actor.files(world)))
        return True


class Copy(Fault):
    """A copy that is made meanwhile has nothing torn, and is whole."""

    def __init__(self, name: str, summary: str, make: Callable[[World, Path], None]) -> None:
        self.name, self.summary, self._make = name, summary, make

    def strike(self, world: World, actor: Actor) -> bool:
        folder = world.folder / "copies"
        folder.mkdir()
        try:
            copy = folder / "copy.db"
            self._make(world, copy)
            if problems := judge.torn(copy, world.removed):
                raise HuntError(f"{self.name}: {problems[:3]}")
            world.finish("verify", copy)
        finally:
            shutil.rmtree(folder)
        return True


def _backup(world: World, copy: Path) -> None:
    world.finish("backup", world.path, copy)


def _publish(world: World, copy: Path) -> None:
    with eosdb.connect(world.path, read_only=True) as db:
        done = db.publish_copy(f"file://{copy.parent}/published")
    assert done is not None
    world.finish("fetch", done.url, copy)


class Housekeeping(Fault):
    name = "housekeeping"
    summary = "housekeeping with a history of one second"

    def strike(self, world: World, actor: Actor) -> bool:
        config = eosdb.BrokerConfig(history_retention_ms=1_000)
        with eosdb.connect(world.rng.choice(actor.files(world)), config=config) as db:
            db.housekeeping()
        return True


class Removal(Fault):
    name = "remove-oldest"
    summary = "`delete_records` of the oldest records, by another process"

    def strike(self, world: World, actor: Actor) -> bool:
        before = len(world.removed)
        config = eosdb.BrokerConfig(lock_timeout_ms=60_000)
        with eosdb.connect(world.path, config=config) as db:
            there = placed(db, TOPIC)
            for partition in range(PARTITIONS):
                offsets = [offset for number, offset in there if number == partition]
                gone = offsets[: int(len(offsets) * world.rng.choice((0.3, 0.7, 1)))]
                if gone:
                    # Noted before it is done: who looks on finds each record here, or there.
                    world.removed |= {(partition, at): there[partition, at] for at in gone}
                    db.broker.delete_records(TopicPartition(TOPIC, partition), gone[-1] + 1)
        return len(world.removed) > before


class Upgrade(Fault):
    name = "upgrade"
    summary = (
        "the programs end, the file gets the schema of before, an upgrade is killed and repeated"
    )
    ends = frozenset({"client", "server", "feeder", "other"})

    def strike(self, world: World, actor: Actor) -> bool:
        path = world.rng.choice(actor.files(world))
        for role in world.roles.values():
            role.kill()
        world.until(lambda: not _holders(world, path), "nobody has the file open")
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            old.executescript(back_to_8(old))
        upgrade = world.run("migrate", path)
        time.sleep(world.rng.uniform(0.1, 1.5))
        upgrade.send_signal(signal.SIGKILL)
        upgrade.communicate()
        with world.looking:  # An upgrade is refused while anybody has the file open.
            world.finish("migrate", path)
        return True


_NEWER: Final = {
    "groups": ("group_type", "assignment_epoch", "metadata_hash"),
    "eosdb_baseline_groups": ("group_type", "assignment_epoch", "metadata_hash"),
    "eosdb_file": ("read_version", "first_release"),
    "partitions": ("cleaned_sum",),
    "eosdb_baseline_partitions": ("cleaned_sum",),
    "eosdb_baseline": ("checked_from", "rows_sum"),
}
_NEWER_TABLES: Final = ("scheduled", "group_configs", "scram_credentials")
_CHECKED_BEFORE: Final = {"eosdb_baseline_partitions", "eosdb_baseline_transaction_index"}
"""Copies that had checksums in schema 8."""

_WITHOUT_SUMS: Final = """
    UPDATE journal SET detail = json_remove(detail, '$.passed_sum', '$.removed_sum', '$.cleaned_sum')
    WHERE kind IN ('LogCleaned', 'LogStartOffsetMoved');
    UPDATE journal SET checksum =
    row_checksum(position, kind, timestamp, topic, partition, transactional_id, detail)
    WHERE kind IN ('LogCleaned', 'LogStartOffsetMoved')"""


def back_to_8(connection: sqlite3.Connection) -> str:
    """The statements that undo all revisions since schema 8."""
    connection.create_function("row_checksum", -1, row_checksum)
    trigger = "SELECT sql FROM sqlite_master WHERE name = 'journal_refuses_update'"
    (refusal,) = connection.execute(trigger).fetchone()
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    newer = {f"{prefix}_{it}" for prefix in ("eosdb", "eosdb_baseline") for it in _NEWER_TABLES}
    copies = {it for it in tables - newer if it.startswith("eosdb_baseline_")} - _CHECKED_BEFORE
    drops = [
        f"ALTER TABLE {table} DROP COLUMN {it}" for table, names in _NEWER.items() for it in names
    ]
    drops += [f"ALTER TABLE {table} DROP COLUMN checksum" for table in sorted(copies)]
    return ";\n".join(
        [
            "BEGIN IMMEDIATE",
            "DROP TRIGGER journal_refuses_update",
            _WITHOUT_SUMS,
            refusal,
            "DROP VIEW scheduled_records",
            *(f"DROP TABLE {it}" for it in sorted(newer)),
            *drops,
            "UPDATE eosdb_alembic_version SET version_num = '0008'",
            "PRAGMA user_version = 8",
            "COMMIT",
        ]
    )


def _holders(world: World, path: Path) -> list[int]:
    """Processes of the session that have the file open: workers that outlive a driver for a moment."""
    holders = []
    for pid, _ in world.processes():
        try:
            files = {entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
        if path in files:
            holders.append(pid)
    return holders


class LongMaintenance(Fault):
    name = "lock-compact"
    summary = f"a compaction of a file so large that it holds the write lock for {LONGER_S:g} s"

    def strike(self, world: World, actor: Actor) -> bool:
        end = 0.0

        def slow(done: int, total: int | None) -> None:
            nonlocal end
            end = end or time.monotonic() + LONGER_S
            if done == total:
                time.sleep(max(end - time.monotonic(), 0))

        with eosdb.connect(world.rng.choice(actor.files(world))) as db:
            db.compact(on_progress=slow)
        return end > 0


FAULTS: Final[list[Fault]] = [
    Command("compact"),
    Command("verify"),
    Command("rebuild"),
    Copy("backup", "`eosdb backup` of the file", _backup),
    Copy("publish", "the file is published to a folder and fetched", _publish),
    Housekeeping(),
    Removal(),
    Upgrade(),
    LongMaintenance(),
]
