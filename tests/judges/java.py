"""Kafka's own Java clients: the round trip that `make test` runs in process, here before `eosdb serve`."""

from __future__ import annotations

from typing import Final

from tests.judges.artifacts import KAFKA, QUIET, class_path, java, kafka_jar, logging_jar
from tests.judges.case import Case, Judge
from tests.judges.verdicts import FailedError
from tests.tidy.tree import ROOT

PROGRAM: Final = ROOT / "tests/wire/RoundTrip.java"
JARS: Final = [kafka_jar("kafka-clients"), logging_jar()]
NOT_SERVED: Final = ROOT / "tests/judges/programs/NotServed.java"
NOT_SERVED_SAID: Final = """\
list: []
describe: UnsupportedVersionException
poll: UnsupportedVersionException
prepare: an ordinary transaction
"""
SAID: Final = (ROOT / "tests/wire/RoundTrip.txt").read_text


def round_trip(case: Case) -> str:
    command = [java(), *QUIET, "-cp", class_path("java", JARS), str(PROGRAM), case.server.bootstrap]
    if (said := case.run("round-trip", command)) != SAID():
        raise FailedError(f"it says {said!r}, before Kafka {SAID()!r}")
    return "admin, transactions, a group, fencing: it prints what it prints before Kafka"


def what_is_not_served(case: Case) -> str:
    """decisions/0070, 0071: as before Kafka 4.1.1 on which share groups are off."""
    case.create_topics(1, "t")
    command = [java(), *QUIET, "-cp", class_path("java", JARS), str(NOT_SERVED)]
    said = case.run("not-served", [*command, case.server.bootstrap], timeout_s=120)
    if said != NOT_SERVED_SAID:
        raise FailedError(f"it says {said!r}, before Kafka {NOT_SERVED_SAID!r}")
    return "a share consumer ends with UnsupportedVersionException; no transaction is prepared"


JUDGES: Final = [
    Judge("java round trip", f"Kafka {KAFKA}", round_trip),
    Judge("java share consumer", f"Kafka {KAFKA}", what_is_not_served),
]
