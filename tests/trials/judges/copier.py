"""Kafka's own transactional copier, as its system tests use it: it aborts at random, the server is killed.

What it has copied must be what was there, record by record, in order.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import eosdb
from tests.trials.judges.artifacts import KAFKA, QUIET, class_path, java
from tests.trials.judges.case import LONG_S, Case, Judge, tail
from tests.trials.judges.serving import wait_until
from tests.trials.judges.tools_jars import JARS
from tests.trials.judges.verdicts import FailedError

PARTITIONS: Final = 2
EACH: Final = 10_000
MARKS: Final = (2_000, 5_000, 9_000, 13_000, 17_000)
PROGRAM: Final = "org.apache.kafka.tools.TransactionalMessageCopier"


def one_for_each_partition(case: Case) -> str:
    return _copy(case, [])


def in_one_group(case: Case) -> str:
    return _copy(case, ["--group-mode", "--use-group-metadata"])


def _copy(case: Case, options: list[str]) -> str:
    jars = class_path("tools", JARS)
    case.create_topics(PARTITIONS, "input", "output")
    _fill(case)
    command = [
        java(),
        "-Xmx256m",
        *QUIET,
        "-cp",
        jars,
        PROGRAM,
    ]
    command += ["--broker-list", case.server.bootstrap, "--input-topic", "input"]
    command += ["--output-topic", "output", "--enable-random-aborts", "--transaction-size", "100"]
    command += ["--consumer-group", "copiers", *options]
    with case.server.killed_at(case.watch("output"), MARKS), ExitStack() as copiers:
        for number in range(PARTITIONS):
            who = ["--input-partition", str(number), "--transactional-id", f"copier-{number}"]
            process = copiers.enter_context(case.running(f"copier-{number}", [*command, *who]))
            copiers.callback(_await_end, case, number, process.poll)
    return _compare(case)


def _await_end(case: Case, number: int, poll: object) -> None:
    assert callable(poll)
    wait_until(lambda: poll() is not None, f"copier {number} ends", LONG_S)
    if poll() != 0:
        raise FailedError(
            f"copier {number} ended with {poll()}: {tail(case.log(f'copier-{number}'))}"
        )


def _fill(case: Case) -> None:
    with eosdb.connect(case.server.file) as db:
        producer = db.producer(linger_ms=5)
        for partition in case.partitions("input"):
            for first in range(0, EACH, 1_000):
                for it in range(first, first + 1_000):
                    key, value = b"%d" % (it % 97), b"%d-%d" % (partition.partition, it)
                    producer.send("input", value, key=key, partition=partition.partition)
                producer.flush()


def _compare(case: Case) -> str:
    was = [(it.partition, it.key, it.value) for it in case.committed("input")]
    now = [(it.partition, it.key, it.value) for it in case.committed("output")]
    if was != now:
        at = next(
            (at for at, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), None
        )
        raise FailedError(
            f"{len(was)} records in, {len(now)} out; the first that differs is number {at}"
        )
    return (
        f"{len(was):,} records in, the same {len(now):,} out in the same order, with random aborts"
    )


JUDGES: Final = [
    Judge("copier", f"Kafka {KAFKA}", one_for_each_partition),
    Judge("copier in a group", f"Kafka {KAFKA}", in_one_group),
]
