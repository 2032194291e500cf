"""Clients of several years: topics, records, a transaction with offsets and an aborted one, groups.

python -m tests.trials.judges.years prints the table of docs/wire.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import eosdb
from eosdb import TopicPartition
from tests.trials.judges.artifacts import (
    FRANZ_GO,
    QUICK,
    QUIET,
    class_path,
    go_program,
    java,
    kafka_jar,
    logging_jar,
    python_with,
)
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.other_clients import SARAMA
from tests.trials.judges.python_clients import PROGRAMS
from tests.trials.judges.verdicts import FailedError

HERE: Final = "the installed one"
"""The newest, in the project's own environment."""


class Client(NamedTuple):
    name: str
    versions: tuple[str, ...]
    note: str = ""


CLIENTS: Final = (
    Client(
        "kafka-clients", ("2.8.2", "3.3.2", "3.4.1", "3.6.2", "3.7.2", "3.9.2", "4.1.1", "4.4.0")
    ),
    Client(
        "confluent-kafka",
        ("2.0.2", "2.3.0", "2.6.1", HERE),
        "all, with librdkafka of these versions",
    ),
    Client("kafka-python", ("2.0.2", "2.2.15", HERE), "2.0 has no transactions"),
    Client("aiokafka", ("0.8.1", "0.10.0", HERE)),
    Client("sarama", ("v1.43.3", SARAMA)),
    Client("franz-go", ("v1.18.0", FRANZ_GO)),
)
PARTS: Final = ("create", "produce", "transaction", "groups")
VALUES: Final = [b"V%d" % it for it in range(10)]


def table() -> str:
    rows = [f"| {it.name} | {', '.join(it.versions)} | {it.note or 'all'} |" for it in CLIENTS]
    return "\n".join(["| client | versions | passes |", "| --- | --- | --- |", *rows])


def command(name: str, release: str) -> Sequence[str]:
    """The client's program, without its arguments."""
    if name == "kafka-clients":
        jars = class_path(f"java-{release}", [kafka_jar(name, version=release), logging_jar()])
        return [java(), *QUIET, *QUICK, "-cp", jars, str(PROGRAMS / "Years.java")]
    if name == "sarama":
        return [str(go_program("github.com/IBM/sarama", release, PROGRAMS / "sarama_years.go"))]
    if name == "franz-go":
        module = "github.com/twmb/franz-go"
        return [str(go_program(module, release, PROGRAMS / "franz_years.go", f"{module}/pkg/kgo"))]
    more = ("kafka-python==2.0.2",) if (name, release) == ("aiokafka", "0.8.1") else ()
    own = release == HERE
    python = (
        sys.executable if own else python_with(f"{name}-{release}", f"{name}=={release}", *more)
    )
    return [python, str(PROGRAMS / "years.py"), name]


def every_year(case: Case) -> str:
    failed, count = [], 0
    for client in CLIENTS:
        for release in client.versions:
            count += 1
            it = f"{client.name}-{release}".replace(" ", "-")
            names = [f"{it}-source", f"{it}-sink", it]
            program = [*command(client.name, release), case.server.bootstrap, *names]
            said = case.run(it, program, status=None, timeout_s=180).splitlines()
            wanted = {f"{part}: ok" for part in PARTS}
            if (client.name, release) == ("kafka-python", "2.0.2"):
                wanted = {it.replace("transaction", "consume") for it in wanted}
            failed += [f"{it} says {line}" for line in sorted(wanted - {*said})]
            if not wanted - {*said}:
                _check(case, *names)
    if failed:
        raise FailedError("; ".join(failed))
    return f"{count} versions of {len(CLIENTS)} clients pass"


def _check(case: Case, source: str, sink: str, group: str) -> None:
    values = [record.value for record in case.committed(sink)]
    with eosdb.connect(case.server.file) as db, db.consumer(group_id=group) as consumer:
        committed = consumer.committed([TopicPartition(source, 0)])
    offsets = [found and found.offset for found in committed.values()]
    if values != VALUES or offsets != [10]:
        raise FailedError(f"{group}: the sink has {values}, the group's offsets are {offsets}")


JUDGES: Final = [Judge("clients by year", "2021 to 2026", every_year)]

if __name__ == "__main__":
    print(table())
