"""How the crash tests start the child and what must hold of the file it leaves, wherever it died."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import eosdb
from eosdb import Record, RecordBatch
from tests.crash.worker import CONFIG, START_MS, TPS
from tests.programs import ended
from tests.readers import committed_values, dump_state
from tests.tidy.tree import ROOT


def command(path: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.crash.worker", str(path), *map(str, arguments)]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


def everything(path: Path, *arguments: object, point: str | None = None) -> tuple[int, list[str]]:
    """Run the child; its exit status and the lines it could say."""
    extra = {} if point is None else {"EOSDB_FAILPOINT": point}
    done = ended(command(path, "everything", *arguments), cwd=ROOT, env=environment(**extra))
    assert done.returncode <= 0, done.stderr
    return done.returncode, done.stdout.splitlines()


def reopen(path: Path) -> eosdb.Database:
    return eosdb.connect(path, clock=eosdb.ManualClock(START_MS), durability="off", config=CONFIG)


def decided_turns(path: Path) -> int:
    """For how many of the child's transactions there was a Prepare…, as the dead process left it: the
    event may be gone, what it led to is not."""
    with eosdb.connect(path, read_only=True) as db:
        ((ended,),) = db.query(
            "SELECT count(*) FROM records r JOIN partitions p USING (partition_id) "
            "WHERE p.topic = 't' AND p.partition = 2 AND r.control IS NOT NULL"
        ).rows
        decided = "SELECT count(*) FROM transactional_ids WHERE state LIKE 'Prepare%'"
        ((open_,),) = db.query(decided).rows
        return int(ended) + int(open_)


def check_everything(path: Path, said: list[str]) -> None:
    """What was acknowledged is there, nothing is half there, what was decided is completed, and what
    was not acknowledged can be sent again without being there twice."""
    decided = decided_turns(path)
    with reopen(path) as db:
        if "t" in db.admin.list_topics():
            check_log(db, said, decided)
        else:
            assert "topics" not in said
        db.housekeeping()
        report = db.verify()
        assert report.ok, report.problems
        before = dump_state(path)
        db.rebuild()
        assert dump_state(path) == before
        if "topics" in said:
            check_log(db, said, decided)
            send_again(db, said)
            report = db.verify()
            assert report.ok, report.problems


def check_log(db: eosdb.Database, said: list[str], decided: int) -> None:
    values, others = committed_values(db, TPS[0]), committed_values(db, TPS[2])
    states = {t.transactional_id: t.state for t in db.broker.list_transactions()}
    assert states.get("a") not in ("PrepareCommit", "PrepareAbort"), "decided means completed"
    for turn in range(4):
        expected = [b"plain %d %d" % (turn, i) for i in range(2)]
        found = [value for value in values if value in expected]
        assert found in ([], expected), "a batch is there as a whole or not at all"
        assert found == expected or f"plain {turn}" not in said
        per_partition = [
            [v for v in stored if v and v.startswith(b"txn %d " % turn)]
            for stored in (values, others)
        ]
        whole = [b"txn %d %d" % (turn, i) for i in range(3)]
        committed = turn % 2 == 0 and turn < decided
        assert per_partition == ([whole, whole] if committed else [[], []])
        assert committed or f"txn {turn} committed" not in said
    last = max((turn for turn in range(0, decided, 2)), default=-1)
    offset = db.broker.offset_fetch("g").get(TPS[0])
    assert (0 if offset is None else offset.offset) == last + 1, "the offsets go with the records"


def send_again(db: eosdb.Database, said: list[str]) -> None:
    """As producers do that have not heard an answer; the transactional one first ends what is open."""
    with db.producer(transactional_id="a") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"txn again", partition=2)
    assert committed_values(db, TPS[2])[-1] == b"txn again", "nothing that is open is in the way"
    identity = [line for line in said if line.startswith("plain id")]
    if identity:
        producer_id = int(identity[0].split()[-1])
        for turn in range(4):
            records = [Record(value=b"plain %d %d" % (turn, i)) for i in range(2)]
            result = db.broker.append(TPS[0], RecordBatch(records, producer_id, 0, 2 * turn))
            assert result.duplicate or f"plain {turn}" not in said
        values = [v for v in committed_values(db, TPS[0]) if v and v.startswith(b"plain")]
        assert values == [b"plain %d %d" % (turn, i) for turn in range(4) for i in range(2)]
