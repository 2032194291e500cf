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
from tests.integrations.relay.contents import placed
from tests.trials.hunts import judge
from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.faults.fault import Fault
from tests.trials.hunts.faults.locks import LONGER_S
from tests.trials.hunts.programs.working import PARTITIONS, TOPIC
from tests.trials.hunts.world import HuntError, World

_NEXT_ID: Final = "SELECT value FROM counters WHERE name = 'next_producer_id'"


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
        "the programs end, the file states the schema before, an upgrade is killed and repeated"
    )
    ends = frozenset({"client", "server", "feeder", "other"})

    def strike(self, world: World, actor: Actor) -> bool:
        path = world.rng.choice(actor.files(world))
        for role in world.roles.values():
            role.kill()
        world.until(lambda: not _holders(world, path), "nobody has the file open")
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            old.execute("PRAGMA user_version=0")
        upgrade = world.run("migrate", path)
        time.sleep(world.rng.uniform(0.1, 1.5))
        upgrade.send_signal(signal.SIGKILL)
        upgrade.communicate()
        with world.looking:  # An upgrade is refused while anybody has the file open.
            world.finish("migrate", path)
        return True


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


class Restore(Fault):
    """What was told since the backup may be gone (`Ledgers.lose`). Its ids are not given out again."""

    name = "restore"
    summary = (
        "the server is killed, and an older `eosdb backup` takes the place of its file while the clients "
        "live on"
    )
    needs = frozenset({Need.SERVER, Need.LEDGER})
    ends = frozenset({"server"})

    def strike(self, world: World, actor: Actor) -> bool:
        path, copy = world.path, world.folder / "older.db"
        since = world.ledgers.line()
        world.finish("backup", path, copy)
        wanted = actor.progress(world) + 2
        world.until(lambda: actor.progress(world) >= wanted, "something is there to be lost")
        with world.looking:
            world.roles["server"].kill()
            given = _next_id(path)
            for end in ("", "-wal", "-shm"):
                Path(f"{path}{end}").unlink(missing_ok=True)
            world.rng.choice((shutil.copy, shutil.move))(copy, path)
            copy.unlink(missing_ok=True)
            world.ledgers.lose(since)
            world.roles["server"].start()
            world.until(lambda: _next_id(path) > given, "producer ids go on above the lost ones")
        return True


def _next_id(path: Path) -> int:
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        (found,) = connection.execute(_NEXT_ID).fetchone()
        return int(found)


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
    Restore(),
]
