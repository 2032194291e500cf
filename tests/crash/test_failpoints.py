"""A process is killed at every named instant between two durable steps; the next one finds it whole.

Method: a child (`worker.everything`) does a fixed piece of work that visits every failpoint and says what
was acknowledged. It is killed at the first, second, … visit of each point, and at random instructions
inside SQLite's statements. The parent opens the file and looks at what a reader sees
(`children.check_everything`).
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint
from tests.crash.children import check_everything, command, environment, everything, reopen
from tests.crash.worker import TPS
from tests.programs import ended
from tests.readers import committed_values
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.crash

VISITS = {
    Failpoint.END_TXN_DECIDED: (0, 1, 3),
    Failpoint.RETENTION_MOVED: (0, 1, 3),
    Failpoint.HISTORY_FOLDED: (0, 1, 3),
    Failpoint.HISTORY_TRIMMED: (0, 1, 3),
    Failpoint.PAGES_GIVEN_BACK: (0,),
    Failpoint.COMPACT_WRITTEN: (0,),
    Failpoint.COMPACT_COPYING: (0,),
    Failpoint.COMPACT_COMMITTED: (0,),
    Failpoint.REBUILD_CLEARED: (0,),
    Failpoint.MIGRATION_APPLIED: (0,),
    Failpoint.COMPACTION_CLEANED: (0,),
    Failpoint.CHECKPOINT_DONE: (0,),
    Failpoint.COPY_WRITTEN: (),  # tests/maintenance/test_killed_copies.py
    # tests/maintenance/test_extract.py
    Failpoint.EXTRACT_WRITTEN: (),
    Failpoint.EXTRACT_LINKED: (),
    Failpoint.EXTRACT_DROPPED: (),
    Failpoint.USER_UNIT_UNCOMMITTED: (),  # examples/test_shop
    Failpoint.LIFE_BEGAN: (),  # tests/coordinator/test_new_life.py
    # tests/integrations/lakehouse/test_kills.py
    Failpoint.EXPORT_WRITTEN: (),
    Failpoint.EXPORT_HALF_VISIBLE: (),
    Failpoint.EXPORT_COMMITTED: (),
    # tests/integrations/publishing/test_kills
    Failpoint.CHUNK_SENT: (),
    Failpoint.CHUNKS_SENT: (),
    Failpoint.SNAPSHOT_SENT: (),
    Failpoint.SNAPSHOTS_REMOVED: (),
}
"""Which visits of a point are its last; four of the others."""
KILLS = [(point, visit) for point in Failpoint for visit in VISITS.get(point, (0, 1, 4, 9))]
RANDOM_KILLS_PER_SEED = 4


@pytest.mark.parametrize(("point", "visits"), KILLS, ids=lambda v: getattr(v, "value", str(v)))
def test_what_was_acknowledged_is_there_and_nothing_is_half(
    tmp_path: Path, point: Failpoint, visits: int
) -> None:
    path = tmp_path / "crash.db"
    status, said = everything(path, point=f"{point.value}:{visits}")
    assert status == -signal.SIGKILL, f"{point} is not visited {visits + 1} times"
    if point is Failpoint.MIGRATION_APPLIED:
        with pytest.raises(eosdb.DatabaseNotFoundError):
            eosdb.connect(path, read_only=True)
        with reopen(path) as db:
            assert db.verify().ok
        return
    check_everything(path, said)


@pytest.mark.both_roads
def test_killed_in_the_middle_of_a_statement(tmp_path: Path, seeds: list[int]) -> None:
    status, said = everything(tmp_path / "whole.db")
    assert status == 0
    word, instructions = said[-1].split()
    assert word == "rebuilt", "the work that is killed ends well when it is not"
    check_everything(tmp_path / "whole.db", said)
    rng = random.Random(seeds[0])
    for kill in range(RANDOM_KILLS_PER_SEED * len(seeds)):
        path = tmp_path / f"crash-{kill}.db"
        status, said = everything(path, rng.randrange(int(instructions)))
        assert status == -signal.SIGKILL
        check_everything(path, said)


@pytest.mark.parametrize(
    "point", [Failpoint.END_TXN_DECIDED, Failpoint.MARKER_WRITTEN], ids=lambda p: p.value
)
def test_whoever_opens_next_completes_what_was_decided(tmp_path: Path, point: Failpoint) -> None:
    path = tmp_path / "crash.db"
    everything(path, point=point.value)
    with eosdb.connect(path, read_only=True) as db:
        assert db.broker.describe_transactions(["a"])["a"].state == "PrepareCommit"
        assert committed_values(db, TPS[0]) == [b"plain 0 0", b"plain 0 1"]
        assert db.broker.find_coordinator("a").epoch == 1
    with reopen(path) as db:
        assert db.broker.describe_transactions(["a"])["a"].state == "CompleteCommit"
        assert committed_values(db, TPS[2]) == [b"txn 0 0", b"txn 0 1", b"txn 0 2"]
        assert db.broker.find_coordinator("a").epoch == 2
        again = db.broker.end_txn("a", 1, 0, True, transaction_version=1)
        assert again.producer_epoch == 0, "the retry is answered alike"


def test_a_backup_that_is_killed_leaves_no_copy(db: eosdb.Database, db_path: Path) -> None:
    db.admin.create_topic("t")
    target = db_path.with_name("copy.db")
    done = ended(command(db_path, "backup", target), cwd=ROOT, env=environment())
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not os.path.exists(target)
    db.backup(target)
    assert not list(target.parent.glob("*unfinished*")), "nor anything else, once there is one"
    with eosdb.connect(target) as copy:
        assert copy.admin.list_topics() == ["t"]
        assert copy.verify().ok
