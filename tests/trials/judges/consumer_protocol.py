"""The consumer group protocol (KIP-848): consume, process, produce with Java's client and librdkafka in one
group, and with members of the classic protocol beside them.

The server and the programs are killed meanwhile: every record once, and in order for each key.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Final

from tests.trials.judges.artifacts import KAFKA, QUIET, class_path, java
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.java import JARS
from tests.trials.judges.python_clients import CONFLUENT, KAFKA_PYTHON, PROGRAMS, copied

DEATHS: Final = (2_500, 5_500, 8_500, 11_500)
"""Records in the output at which a program is killed, each in its turn."""
SHORT_SESSIONS: Final = (
    "--config", "group.consumer.min.heartbeat.interval.ms=500",
    "--config", "group.consumer.heartbeat.interval.ms=500",
    "--config", "group.consumer.min.session.timeout.ms=6000",
    "--config", "group.consumer.session.timeout.ms=6000",
)  # fmt: skip


def with_librdkafka(case: Case) -> str:
    return copied(case, [_python(CONFLUENT)] * 2, more=[["consumer"]] * 2, deaths=DEATHS)


def with_java_and_librdkafka(case: Case) -> str:
    programs = [_java(), _python(CONFLUENT), _java()]
    return copied(case, programs, more=[["consumer"]] * 3, deaths=DEATHS)


def with_both_protocols(case: Case) -> str:
    """At each death the group is of one protocol or of both for a while."""
    programs = [_python(CONFLUENT), _java(), _python(KAFKA_PYTHON)]
    return copied(case, programs, more=[["consumer"], ["classic"], []], deaths=DEATHS)


def _java() -> list[str]:
    program = str(PROGRAMS / "ConsumerEtl.java")
    return [java(), "-Xmx256m", *QUIET, "-cp", class_path("java", JARS), program]


def _python(name: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / name)]


JUDGES: Final = [
    Judge("librdkafka by KIP-848", version("confluent-kafka"), with_librdkafka, SHORT_SESSIONS),
    Judge("Java and librdkafka by KIP-848", KAFKA, with_java_and_librdkafka, SHORT_SESSIONS),
    Judge("both group protocols in a group", KAFKA, with_both_protocols, SHORT_SESSIONS),
]
