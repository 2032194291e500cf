"""Spark's own Kafka connector: a batch read that leaves aborted records out, a batch write, and a stream
that goes on from its checkpoint after both it and the server were stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import eosdb
from tests.trials.judges.artifacts import SPARK, Jar, class_path, java, python_with
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.python_clients import compare
from tests.trials.judges.verdicts import FailedError

PROGRAM: Final = Path(__file__).parent / "programs/spark_job.py"
JARS: Final = [Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK)]
OWN: Final = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""Spark brings the others itself."""
EACH: Final = 3_000


def batches_and_a_stream(case: Case) -> str:
    java()
    folder = Path(class_path("spark", JARS)).parent
    jars = ",".join(str(jar) for jar in folder.glob("*.jar") if jar.name.startswith(OWN))
    python = python_with("spark", f"pyspark=={SPARK}")

    def spark(command: str) -> str:
        program = [python, str(PROGRAM), jars, case.server.bootstrap, command, str(case.folder)]
        return case.run(command, program)

    case.create_topics(3, "in", "out", "written")
    committed = _fill(case, 0)
    read = json.loads(spark("batch-read").splitlines()[-1])
    if sorted(read) != sorted(committed):
        raise FailedError(f"a batch of {len(read)} rows, {len(committed)} committed")
    spark("batch-write")
    written = [it.value for it in case.committed("written")]
    if sorted(written, key=repr) != sorted((b"%d" % it for it in range(1_000)), key=repr):
        raise FailedError(f"{len(written)} of 1000 rows written")
    spark("stream")
    case.server.kill_and_restart()
    _fill(case, EACH)
    spark("stream")
    compare(case.committed("in"), case.committed("out"))
    return f"batch of {len(read):,} committed rows, batch write, stream of {2 * EACH:,} rows with a restart"


def _fill(case: Case, first: int) -> list[str]:
    """Transactions of 100 records, committed and aborted in turn. Returns the committed values."""
    with eosdb.connect(case.server.file) as db:
        producer = db.producer(transactional_id="maker")
        producer.init_transactions()
        found = []
        for start in range(first, first + EACH, 100):
            for word in ("aborted", "committed"):
                producer.begin_transaction()
                values = [f"{word} {it}" for it in range(start, start + 100)]
                for number, value in enumerate(values):
                    producer.send("in", value.encode(), key=b"k%d" % (number % 11))
                if word == "committed":
                    producer.commit_transaction()
                    found += values
                else:
                    producer.abort_transaction()
    return found


JUDGES: Final = [Judge("spark connector", f"Spark {SPARK}", batches_and_a_stream)]
