"""kcat of Debian: metadata, writing with idempotence, reading, a group. It ends when its broker goes, so
the server is not killed."""

from __future__ import annotations

import json
from typing import Final

from tests.trials.judges.artifacts import debian
from tests.trials.judges.case import Case, Judge
from tests.trials.judges.verdicts import FailedError

RECORDS: Final = 20_000
LINES: Final = [f"k{it % 50}:{it}" for it in range(RECORDS)]


def round_trip(case: Case) -> str:
    command = [debian("kcat", "kcat"), "-b", case.server.bootstrap]
    case.create_topics(3, "lines")
    _check("-L", 'topic "lines" with 3 partitions' in case.run("list", [*command, "-L"]), True)
    write = ["-P", "-K:", "-X", "enable.idempotence=true", "-z", "lz4"]
    case.run("write", [*command, *write, "-t", "lines"], given="\n".join(LINES))
    read = [*command, "-C", "-t", "lines", "-o", "beginning", "-e", "-q", "-f", "%k:%s\\n"]
    _check("read", _by_key(case.run("read", read)), _by_key("\n".join(LINES)))
    group = [
        *command,
        "-G",
        "readers",
        "-e",
        "-q",
        "-X",
        "auto.offset.reset=earliest",
        "-f",
        "%k:%s\\n",
    ]
    _check("group", _by_key(case.run("group", [*group, "lines"])), _by_key("\n".join(LINES)))
    _check("the group goes on where it was", case.run("group", [*group, "lines"]), "")
    _check("-Q", case.run("query", [*command, "-Q", "-t", "lines:0:-2"]), "lines [0] offset 0\n")
    as_json = [*command, "-C", "-t", "lines", "-p", "0", "-o", "0", "-c", "1", "-q", "-J"]
    _check("-J", json.loads(case.run("json", as_json))["offset"], 0)
    return f"{RECORDS:,} lines written, each read once in its key's order; -L, -G, -Q, -J"


def _by_key(lines: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key, []).append(value)
    return found


def _check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise FailedError(f"kcat {what}: found {found!r:.300}, expected {expected!r:.300}")


JUDGES: Final = [Judge("kcat", "of Debian", round_trip)]
