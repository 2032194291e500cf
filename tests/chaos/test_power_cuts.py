"""Power is cut at any instant, on a disk that lies as much as it may and whose syncs fail.

Method: programs store and note what was acknowledged, on files that disk.c watches. From its log the disk's
content is computed for random instants (power.py), and each is opened: whatever was acknowledged before the
cut is there once, what was aborted is not, and every table is what the events give.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

import eosdb
from eosdb.store.file.file_system import LOCKS
from tests.chaos import power
from tests.chaos.disk_worker import TP
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

HOW_MANY, CUTS = 40, 4


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return power.library(str(tmp_path_factory.getbasetemp()))


@pytest.mark.parametrize("failing", [0, 8], ids=["sound", "failing"])
@pytest.mark.parametrize("programs", [1, 2], ids=["alone", "two programs"])
def test_what_was_acknowledged_survives_a_power_cut(
    tmp_path: Path, disk: Path, failing: int, programs: int, seeds: list[int]
) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    path, log = folder / "shop.db", tmp_path / "log"
    environment = power.environment(disk, folder, log, seed=seeds[0])
    make = f"import eosdb\nwith eosdb.connect({str(path)!r}) as db:\n"
    make += "    db.admin.create_topic('t')\n    db.admin.create_topic('large')"
    subprocess.run([sys.executable, "-c", make], env=environment, cwd=ROOT, check=True)
    begin = len(power.read_log(log))
    environment = power.environment(
        disk, folder, log, seed=seeds[-1], **({"fail_percent": failing} if failing else {})
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.disk_worker", path, f"w{i}", str(HOW_MANY), str(i)],
            cwd=ROOT,
            env=environment,
        )
        for i in range(programs)
    ]
    assert [child.wait() for child in children] == [0] * programs
    operations = power.read_log(log)
    for number, seed in product(range(CUTS), seeds):
        rng = random.Random(f"{seed} {number}")
        at = rng.randrange(begin, len(operations) + 1)
        found = tmp_path / f"cut-{seed}-{number}"
        found.mkdir()
        acknowledged = cut(operations[:at], found, rng)
        check(found / "shop.db", acknowledged)
        shutil.rmtree(found)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside eosdb's own writer"])
def test_what_was_published_on_a_connection_of_the_programs_survives_a_power_cut(
    tmp_path: Path, disk: Path, beside: bool, seeds: list[int]
) -> None:
    """The row, the record and the offset of a transaction are there together, or none of them."""
    folder = tmp_path / "watched"
    folder.mkdir()
    path, log = folder / "shop.db", tmp_path / "log"
    environment = power.environment(disk, folder, log, seed=seeds[0])
    make = (
        f"import eosdb\nwith eosdb.connect({str(path)!r}) as db:\n    db.admin.create_topic('t')\n"
    )
    make += "    db.admin.create_topic('large')\n    with db.begin() as tx:\n"
    make += "        tx.connection.exec_driver_sql('CREATE TABLE shop (what TEXT)')"
    subprocess.run([sys.executable, "-c", make], env=environment, cwd=ROOT, check=True)
    begin = len(power.read_log(log))
    workers = ["joining_worker", *(["disk_worker"] if beside else [])]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", f"tests.chaos.{worker}", path, f"w{i}", str(HOW_MANY), str(i)],
            cwd=ROOT,
            env=environment,
        )
        for i, worker in enumerate(workers)
    ]
    assert [child.wait() for child in children] == [0] * len(workers)
    operations = power.read_log(log)
    for number, seed in product(range(CUTS), seeds):
        rng = random.Random(f"{seed} {number}")
        at = rng.randrange(begin, len(operations) + 1)
        found = tmp_path / f"cut-{seed}-{number}"
        found.mkdir()
        check(found / "shop.db", cut(operations[:at], found, rng))
        with eosdb.connect(found / "shop.db") as db:
            rows = sorted(what for (what,) in db.query("SELECT what FROM shop").rows)
            records = [(value or b"").decode().strip() for value in committed_values(db, TP)]
            assert rows == sorted(value for value in records if value.startswith("w0-"))
            assert set(rows) == {name for name in db.broker.list_groups() if name.startswith("w0-")}
        shutil.rmtree(found)


def test_a_new_file_of_a_removed_name_leaves_the_former_file_alone(tmp_path: Path) -> None:
    """A removed name may still be on the disk; the file of that name that comes next is another one."""

    def written(name: str, data: bytes) -> list[power.Operation]:
        sync = [power.Operation(kind, 1, name, 0, b"") for kind in "SE"]
        return [power.Operation("W", 0, name, 0, data), *sync]

    operations = [
        *written("unfinished", b"first"),
        power.Operation("L", 0, "unfinished", 0, b"file"),
        power.Operation("U", 0, "unfinished", 0, b""),
        *written("unfinished", b"other"),
    ]
    for seed in range(20):
        cut(operations, tmp_path, random.Random(seed))
        assert (tmp_path / "file").read_bytes() == b"first"
        assert (tmp_path / "unfinished").read_bytes() == b"other"


def cut(operations: list[power.Operation], folder: Path, rng: random.Random) -> list[str]:
    """The disk as it may be after these operations; what had been acknowledged."""
    disk = power.Disk(rng, ignored=("-shm", *LOCKS, "acknowledged"))
    acknowledged = []
    for operation in operations:
        disk.take(operation)
        if operation.kind == "W" and operation.path.endswith("acknowledged"):
            acknowledged.append(operation.data.decode().strip())
    disk.cut(folder)
    return acknowledged


def check(path: Path, acknowledged: list[str]) -> None:
    with eosdb.connect(path, create=False) as db:
        # Not only what a reader may see: a transaction that was open when the power failed is before some.
        rows = db.query(
            "SELECT value FROM all_records WHERE topic = 't' AND control IS NULL "
            "AND status <> 'aborted'"
        )
        values = [value.decode().strip() for (value,) in rows.rows]
        groups = db.broker.list_groups()
        for line in acknowledged:
            how, _, value = line.partition(" ")
            assert (value in groups) if how == "offset" else (values.count(value) == 1), line
        assert not [
            value for value in committed_values(db, TP) if (value or b"").startswith(b"never")
        ]
        assert len(values) == len(set(values))
        report = db.verify()
        assert report.ok, report.problems
