"""Kafka's own Java clients: the round trip that `make test` runs in process, here before `eosdb serve`; and
each method of the admin client, called once.

`expected/admin.txt` has what the latter prints before an empty Kafka broker of 4.4.0 with its
StandardAuthorizer, on which share and streams groups are off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.tidy.tree import ROOT
from tests.trials.judges.artifacts import KAFKA, QUIET, class_path, java, kafka_jar, logging_jar
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.tools import ANONYMOUS_MAY
from tests.trials.judges.verdicts import FailedError

PROGRAM: Final = ROOT / "tests/wire/RoundTrip.java"
JARS: Final = [kafka_jar("kafka-clients"), logging_jar()]
NOT_SERVED: Final = ROOT / "tests/trials/judges/programs/NotServed.java"
NOT_SERVED_SAID: Final = """\
list: []
describe: UnsupportedVersionException
poll: UnsupportedVersionException
prepare: an ordinary transaction
"""
SAID: Final = (ROOT / "tests/wire/RoundTrip.txt").read_text
ADMIN: Final = Path(__file__).parent / "programs/EveryAdminCall.java"
BEFORE_KAFKA: Final = Path(__file__).parent / "expected/admin.txt"
_NOT_SERVED: Final = (
    "createDelegationToken", "renewDelegationToken", "expireDelegationToken", "describeDelegationToken",
    "unregisterBroker", "unregisterController",
)  # fmt: skip
OTHERWISE: Final = dict.fromkeys(_NOT_SERVED, "UnsupportedVersionException") | {
    "alterClientQuotas to 1000.0": "UnsupportedVersionException",
    "incrementalAlterConfigs of a broker": "InvalidRequestException",
    "listConfigResources": "[BROKER 1, GROUP g, TOPIC t]",
    "deleteConsumerGroups": "GroupIdNotFoundException",
    "deleteStreamsGroups": "GroupIdNotFoundException",
}
"""The calls that have another outcome before eosdb (docs/wire.md#administration-and-acls)."""


def round_trip(case: Case) -> str:
    command = [java(), *QUIET, "-cp", class_path("java", JARS), str(PROGRAM), case.server.bootstrap]
    if (said := case.run("round-trip", command)) != SAID():
        raise FailedError(f"it says {said!r}, before Kafka {SAID()!r}")
    return "admin, transactions, a group, fencing: it prints what it prints before Kafka"


def every_admin_call(case: Case) -> str:
    command = [java(), *QUIET, "-cp", class_path("java", JARS), str(ADMIN), case.server.bootstrap]
    found = _outcomes(case.run("admin", command))
    wanted = _outcomes(BEFORE_KAFKA.read_text()) | OTHERWISE
    if found != wanted:
        raise FailedError(f"differing: {sorted(set(found.items()) ^ set(wanted.items()))}")
    return (
        f"{len(found)} calls, all but {len(OTHERWISE)} with the outcome that they have before Kafka"
    )


def _outcomes(said: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in said.splitlines())


def what_is_not_served(case: Case) -> str:
    """decisions/0070, 0071: as before a Kafka on which share groups are off."""
    case.create_topics(1, "t")
    command = [java(), *QUIET, "-cp", class_path("java", JARS), str(NOT_SERVED)]
    said = case.run("not-served", [*command, case.server.bootstrap], timeout_s=120)
    if said != NOT_SERVED_SAID:
        raise FailedError(f"it says {said!r}, before Kafka {NOT_SERVED_SAID!r}")
    return "a share consumer ends with UnsupportedVersionException; no transaction is prepared"


JUDGES: Final = [
    Judge("java round trip", f"Kafka {KAFKA}", round_trip),
    Judge("java admin", f"Kafka {KAFKA}", every_admin_call, ANONYMOUS_MAY),
    Judge("java share consumer", f"Kafka {KAFKA}", what_is_not_served),
]
