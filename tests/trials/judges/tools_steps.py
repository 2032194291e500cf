"""The lines of Kafka's command-line tools that the judge `tools` runs: those of `programs/tools.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOOLS: Final = "org.apache.kafka.tools."
PRODUCER: Final = TOOLS + "ConsoleProducer"
CONSUMER: Final = TOOLS + "consumer.ConsoleConsumer"


@dataclass(frozen=True, slots=True)
class Step:
    """One command line. `{B}` in it stands for the broker's address, `{FOLDER}` for a folder of files."""

    program: str
    arguments: str
    given: str
    is_sorted: bool
    is_silent: bool


OLDER: Final = {
    CONSUMER: ("--formatter-property", "--property"),
    PRODUCER: ("--reader-property", "--property"),
    TOOLS + "ProducerPerformance": ("--bootstrap-server ", "--producer-props bootstrap.servers="),
    TOOLS + "ConsumerPerformance": ("--num-records", "--messages"),
}
"""Options by the names that tools before 4.2 have for them."""
MOVED: Final = {TOOLS + "ConfigCommand": "kafka.admin.ConfigCommand"}
"""Tools by the names that they had before 4.4."""
SHORT: Final = {
    "{AT}": "--bootstrap-server {B}",
    "{PRINTED}": "--formatter-property print.key=true --formatter-property print.partition=true "
    "--formatter-property print.offset=true",
    "{PAIRS}": "--reader-property parse.key=true --reader-property key.separator=:",
}
LINES: Final = "".join(f"k{it % 3}:line {it}\n" for it in range(10))
_STEP: Final = re.compile(r"(sorted )?(silent )?(\S+) (.+?)( < LINES)?")


def _steps() -> Iterator[Step]:
    for line in (Path(__file__).parent / "programs/tools.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        found = _STEP.fullmatch(line)
        assert found is not None, line
        is_sorted, is_silent, program, arguments, given = found.groups()
        if "{AT}" not in arguments:
            arguments = "{AT} " + arguments
        for short, words in SHORT.items():
            arguments = arguments.replace(short, words)
        yield Step(
            TOOLS + program, arguments, LINES if given else "", bool(is_sorted), bool(is_silent)
        )


STEPS: Final = tuple(_steps())

FILES: Final = {
    "delete.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 4}]}',
    "beyond.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 99999}]}',
    "election.json": '{"partitions": [{"topic": "lines", "partition": 0}]}',
    "topics.json": '{"version": 1, "topics": [{"topic": "lines"}]}',
    "stay.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "replicas": [1]}]}',
    "move.json": '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "replicas": [2]}]}',
    "nothing.properties": "",
}
"""In `{FOLDER}`."""
