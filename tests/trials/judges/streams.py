"""Kafka Streams' own smoke test, exactly once: windows, joins, suppression and repartitioning over 20,000
records, whose results it checks."""

from __future__ import annotations

from typing import Final

from tests.trials.judges.artifacts import (
    CONNECT,
    QUIET,
    Jar,
    class_path,
    java,
    kafka_jar,
    logging_jar,
)
from tests.trials.judges.case import Case, Judge, tail
from tests.trials.judges.verdicts import FailedError

TOPICS: Final = (
    "data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed",
    "cnt", "avg", "tagg", "fk",
)  # fmt: skip
JARS: Final = [
    kafka_jar("kafka-streams", "test", version=CONNECT),
    kafka_jar("kafka-clients", "test", version=CONNECT),
    Jar("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),
    logging_jar(),
]
MARKS: Final = (2_000, 5_000, 8_000, 11_000, 14_000)
SETTINGS: Final = """
bootstrap.servers={bootstrap}
processing.guarantee=exactly_once_v2
num.stream.threads=2
replication.factor=1
state.dir={folder}/state
"""
PROGRAM: Final = "org.apache.kafka.streams.tests.StreamsSmokeTest"


def smoke_test(case: Case) -> str:
    """The driver makes the records and judges; the client is the application."""
    jars = class_path("streams", JARS)
    settings = case.folder / "smoke.properties"
    settings.write_text(SETTINGS.format(bootstrap=case.server.bootstrap, folder=case.folder))
    case.create_topics(5, *TOPICS)
    command = [java(), "-Xmx512m", *QUIET, "-cp", jars]
    with case.running("client", [*command, PROGRAM, str(settings), "process"]):
        with case.server.killed_at(case.watch("echo"), MARKS):
            said = case.run("driver", [*command, PROGRAM, str(settings), "run"])
        missing = [it for it in ("ALL-RECORDS-DELIVERED", "\nSUCCESS") if it not in said]
        if missing:
            raise FailedError(f"the driver did not say {missing}: {tail(case.log('driver'))}")
    if "SMOKE-TEST-CLIENT-EXCEPTION" in case.log("client").read_text():
        raise FailedError(f"the client failed: {tail(case.log('client'))}")
    return "ALL-RECORDS-DELIVERED, SUCCESS: 20,000 records, every window, join and sum right"


JUDGES: Final = [Judge("streams smoke test", f"Kafka Streams {CONNECT}", smoke_test)]
