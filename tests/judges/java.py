"""Kafka's own Java clients: the round trip that `make test` runs in process, here before `eosdb serve`."""

from __future__ import annotations

from typing import Final

from tests.judges.artifacts import KAFKA, QUIET, class_path, java, kafka_jar, logging_jar
from tests.judges.case import Case, Judge
from tests.judges.verdicts import FailedError
from tests.tidy.tree import ROOT

PROGRAM: Final = ROOT / "tests/wire/RoundTrip.java"
JARS: Final = [kafka_jar("kafka-clients"), logging_jar()]
SAID: Final = (ROOT / "tests/wire/RoundTrip.txt").read_text


def round_trip(case: Case) -> str:
    command = [java(), *QUIET, "-cp", class_path("java", JARS), str(PROGRAM), case.server.bootstrap]
    if (said := case.run("round-trip", command)) != SAID():
        raise FailedError(f"it says {said!r}, before Kafka {SAID()!r}")
    return "admin, transactions, a group, fencing: it prints what it prints before Kafka"


JUDGES: Final = [Judge("java round trip", f"Kafka {KAFKA}", round_trip)]
