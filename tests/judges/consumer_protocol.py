"""The consumer group protocol (KIP-848): consume, process, produce with Java's client and librdkafka in one
group, the server and the programs killed meanwhile: every record once, and in order for each key."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Final

from tests.judges.artifacts import KAFKA, QUIET, class_path, java
from tests.judges.case import Case, Judge
from tests.judges.java import JARS
from tests.judges.python_clients import CONFLUENT, PROGRAMS, copied

DEATHS: Final = (2_500, 5_500, 8_500, 11_500)
"""Records in the output at which a program is killed, each in its turn."""
SHORT_SESSIONS: Final = (
    "--config", "group.consumer.min.heartbeat.interval.ms=500",
    "--config", "group.consumer.heartbeat.interval.ms=500",
    "--config", "group.consumer.min.session.timeout.ms=6000",
    "--config", "group.consumer.session.timeout.ms=6000",
)  # fmt: skip


def with_librdkafka(case: Case) -> str:
    return _copied(case, [_librdkafka()] * 2)


def with_java_and_librdkafka(case: Case) -> str:
    program = [java(), "-Xmx256m", *QUIET, "-cp", class_path("java", JARS)]
    program.append(str(PROGRAMS / "ConsumerEtl.java"))
    return _copied(case, [program, _librdkafka(), program])


def _librdkafka() -> list[str]:
    return [sys.executable, str(PROGRAMS / CONFLUENT)]


def _copied(case: Case, programs: list[list[str]]) -> str:
    return copied(case, programs, more=[["consumer"]] * len(programs), deaths=DEATHS)


JUDGES: Final = [
    Judge("librdkafka by KIP-848", version("confluent-kafka"), with_librdkafka, SHORT_SESSIONS),
    Judge("Java and librdkafka by KIP-848", KAFKA, with_java_and_librdkafka, SHORT_SESSIONS),
]
