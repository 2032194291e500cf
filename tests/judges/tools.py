"""Kafka's command-line tools, one after another on one file; what they print is compared with what they
print before a Kafka broker.

`expected/tools.txt` has that. `python -m tests.judges.tools HOST:PORT` writes it anew, from a broker with
an empty log and Kafka's StandardAuthorizer, whose super user is User:ANONYMOUS.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.judges.artifacts import KAFKA, QUIET, class_path, java
from tests.judges.case import Case, Judge
from tests.judges.tools_jars import JARS
from tests.judges.verdicts import FailedError

EXPECTED: Final = Path(__file__).parent / "expected/tools.txt"
TOOLS: Final = "org.apache.kafka.tools."
TOPICS: Final = TOOLS + "TopicCommand"
GROUPS: Final = TOOLS + "consumer.group.ConsumerGroupCommand"
TRANSACTIONS: Final = TOOLS + "TransactionsCommand"
ACLS: Final = TOOLS + "AclCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
PRODUCER: Final = TOOLS + "ConsoleProducer"
CONSUMER: Final = TOOLS + "consumer.ConsoleConsumer"
PERFORMANCE: Final = TOOLS + "ProducerPerformance"


@dataclass(frozen=True, slots=True)
class Step:
    """One command line. `{B}` in it stands for the broker's address, `{FOLDER}` for a folder of files."""

    program: str
    arguments: str
    given: str = ""
    is_sorted: bool = False
    """The tool's order of lines is that of a hash map."""
    is_silent: bool = False
    """What it prints are measurements."""


LINES: Final = "".join(f"k{it % 3}:line {it}\n" for it in range(10))
PRINTED: Final = (
    "--formatter-property print.key=true --formatter-property print.partition=true "
    "--formatter-property print.offset=true"
)
PAIRS: Final = "--reader-property parse.key=true --reader-property key.separator=:"
AT: Final = "--bootstrap-server {B}"

STEPS: Final = (
    Step(TOPICS, f"{AT} --create --topic orders --partitions 2 --replication-factor 1 "
                 "--config retention.ms=86400000"),
    Step(TOPICS, f"{AT} --create --topic orders"),
    Step(TOPICS, f"{AT} --create --topic orders --if-not-exists"),
    Step(TOPICS, f"{AT} --create --topic lines"),
    Step(TOPICS, f"{AT} --create --topic bad/name"),
    Step(TOPICS, f"{AT} --create --topic wide --replication-factor 3"),
    Step(TOPICS, f"{AT} --create --topic odd --config no.such=1"),
    Step(TOPICS, f"{AT} --list --exclude-internal"),
    Step(TOPICS, f"{AT} --describe --topic orders"),
    Step(TOPICS, f"{AT} --alter --topic orders --partitions 3"),
    Step(TOPICS, f"{AT} --alter --topic orders --partitions 1"),
    Step(TOPICS, f"{AT} --describe --topic orders"),
    Step(TOPICS, f"{AT} --describe --topic nothing"),
    Step(CONFIGS, f"{AT} --describe --entity-type topics --entity-name orders"),
    Step(CONFIGS, f"{AT} --alter --entity-type topics --entity-name orders "
                  "--add-config cleanup.policy=compact"),
    Step(CONFIGS, f"{AT} --describe --entity-type topics --entity-name orders"),
    Step(CONFIGS, f"{AT} --alter --entity-type topics --entity-name orders "
                  "--delete-config cleanup.policy,retention.ms"),
    Step(CONFIGS, f"{AT} --describe --entity-type topics --entity-name orders"),
    Step(PRODUCER, f"{AT} --topic lines {PAIRS}", LINES),
    Step(PRODUCER, f"{AT} --topic orders --compression-codec zstd {PAIRS}", LINES),
    Step(TOOLS + "GetOffsetShell", f"{AT} --topic lines"),
    Step(TOOLS + "GetOffsetShell", f"{AT} --topic-partitions lines:0 --time earliest"),
    Step(TOOLS + "GetOffsetShell", f"{AT} --topic-partitions orders --time latest"),
    Step(CONSUMER, f"{AT} --topic lines --from-beginning --max-messages 10 {PRINTED}"),
    Step(CONSUMER, f"{AT} --topic lines --partition 0 --offset 7 --max-messages 3 {PRINTED}"),
    Step(CONSUMER, f"{AT} --topic lines --group readers --from-beginning --max-messages 4 {PRINTED}"),
    Step(CONSUMER, f"{AT} --topic lines --group readers --max-messages 2 {PRINTED}"),
    Step(GROUPS, f"{AT} --list", is_sorted=True),
    Step(GROUPS, f"{AT} --list --state", is_sorted=True),
    Step(GROUPS, f"{AT} --describe --group readers"),
    Step(GROUPS, f"{AT} --describe --group readers --state"),
    Step(GROUPS, f"{AT} --describe --group readers --members"),
    Step(GROUPS, f"{AT} --describe --group nobody"),
    Step(GROUPS, f"{AT} --reset-offsets --group readers --topic lines --to-earliest --dry-run"),
    Step(GROUPS, f"{AT} --reset-offsets --group readers --topic lines --shift-by -2 --execute"),
    Step(GROUPS, f"{AT} --describe --group readers --offsets"),
    Step(GROUPS, f"{AT} --delete-offsets --group readers --topic lines"),
    Step(GROUPS, f"{AT} --delete --group readers"),
    Step(GROUPS, f"{AT} --delete --group readers"),
    Step(GROUPS, f"{AT} --list", is_sorted=True),
    Step(TOOLS + "DeleteRecordsCommand", f"{AT} --offset-json-file {{FOLDER}}/delete.json"),
    Step(TOOLS + "GetOffsetShell", f"{AT} --topic-partitions lines:0 --time earliest"),
    Step(CONSUMER, f"{AT} --topic lines --from-beginning --max-messages 6 {PRINTED}"),
    Step(PERFORMANCE, f"{AT} --topic lines --num-records 5000 --record-size 100 --throughput -1 "
                      "--transactional-id perf --transaction-duration-ms 200", is_silent=True),
    Step(CONSUMER, f"{AT} --topic lines --isolation-level read_committed --partition 0 --offset 5 "
                   "--max-messages 5"),
    Step(TOOLS + "ConsumerPerformance", f"{AT} --topic lines --num-records 5000", is_silent=True),
    Step(TRANSACTIONS, f"{AT} list"),
    Step(TRANSACTIONS, f"{AT} describe --transactional-id perf"),
    Step(TRANSACTIONS, f"{AT} forceTerminateTransaction --transactionalId perf"),
    Step(TRANSACTIONS, f"{AT} list"),
    Step(TRANSACTIONS, f"{AT} describe --transactional-id nobody"),
    Step(TRANSACTIONS, f"{AT} describe-producers --topic orders --partition 0"),
    Step(TRANSACTIONS, f"{AT} find-hanging --topic lines"),
    Step(ACLS, f"{AT} --list"),
    Step(ACLS, f"{AT} --add --allow-principal User:alice --producer --topic orders", is_sorted=True),
    Step(ACLS, f"{AT} --add --allow-principal User:bob --consumer --topic orders --group readers",
         is_sorted=True),
    Step(ACLS, f"{AT} --list --topic orders", is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --allow-principal User:alice --producer --topic orders",
         is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --topic orders", is_sorted=True),
    Step(ACLS, f"{AT} --remove --force --group readers", is_sorted=True),
    Step(ACLS, f"{AT} --list"),
    Step(TOOLS + "GroupsCommand", f"{AT} --list", is_sorted=True),
    Step(TOOLS + "BrokerApiVersionsCommand", AT, is_silent=True),
    Step(TOOLS + "ClusterTool", f"cluster-id {AT}"),
    Step(TOPICS, f"{AT} --delete --topic orders"),
    Step(TOPICS, f"{AT} --delete --topic orders"),
    Step(TOPICS, f"{AT} --list --exclude-internal"),
)  # fmt: skip

ANONYMOUS_MAY: Final = ("--config", "super.users=User:ANONYMOUS")
"""Or the first ACL would shut the tools themselves out."""
DELETE: Final = '{"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 4}]}'


def play(bootstrap: str, folder: Path, errors: Path) -> str:
    """Every step with what it printed, without what differs from run to run."""
    (folder / "delete.json").write_text(DELETE)
    command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += [*QUIET, "-cp", class_path("tools", JARS)]
    said = []
    for step in STEPS:
        arguments = step.arguments.replace("{B}", bootstrap).replace("{FOLDER}", str(folder))
        done = subprocess.run(
            [*command, step.program, *arguments.split()],
            input=step.given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        with errors.open("a") as log:
            log.write(f"$ {step.program} {arguments}\n{done.stdout}{done.stderr}\n")
        said.append(f"$ {step.program.rpartition('.')[2]} {step.arguments}\n")
        said.append(_shown(step, done.stdout))
        raised = sorted(set(EXCEPTION.findall(done.stdout + done.stderr)))
        said.append(f"status {done.returncode} {' '.join(raised)}".rstrip() + "\n\n")
    return "".join(said)


EXCEPTION: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")
SAME: Final = (
    (r"\[\d{4}-\d\d-\d\d [\d:,]+\]", "[TIME]"),
    (r"TopicId: \S{22}", "TopicId: ID"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"127\.0\.0\.1", "HOST"),
    (r"(console|perf)-consumer-\d+", r"\1-consumer-ID"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"\b\d{13}(\s+)\d+", r"TIME\1DURATION"),
    (r"\b\d{13}", "TIME"),
    (r"[ \t]+", " "),
    (r"(perf \d+) \d+ CompleteCommit (\d+)", r"\1 EPOCH CompleteCommit \2"),
    (r" +\n", "\n"),
    (r" Elr:.*", ""),
    (r"min\.insync\.replicas=1,?", ""),
    (r" synonyms=.*", ""),
    (r"(Error while executing topic command|GroupIdNotFoundException) ?: .*", r"\1: …"),
)
"""What differs from run to run, the width of columns, what is said of replicas that lag behind and of the
broker's own settings, and the words of an error: its name is compared."""


def _shown(step: Step, output: str) -> str:
    if step.is_silent:
        return "…\n"
    for pattern, one in SAME:
        output = re.sub(pattern, one, output)
    lines = [line for line in output.split("\n") if line.strip() and not line.startswith("\tat ")]
    return "".join(f"{line}\n" for line in (sorted(lines) if step.is_sorted else lines))


def compared(case: Case) -> str:
    found = play(case.server.bootstrap, case.folder, case.log("tools"))
    (case.folder / "found.txt").write_text(found)
    expected = EXPECTED.read_text()
    if found != expected:
        difference = difflib.unified_diff(
            expected.splitlines(), found.splitlines(), "Kafka", "eosdb", lineterm="", n=2
        )
        raise FailedError("they print otherwise:\n" + "\n".join(difference))
    return f"{len(STEPS)} command lines print what they print before Kafka"


def main(arguments: Sequence[str]) -> None:
    (bootstrap,) = arguments
    folder = Path.cwd() / ".judges"
    EXPECTED.parent.mkdir(exist_ok=True)
    EXPECTED.write_text(play(bootstrap, folder, folder / "expected.log"))


JUDGES: Final = [Judge("tools", f"Kafka {KAFKA}", compared, ANONYMOUS_MAY)]

if __name__ == "__main__":
    main(sys.argv[1:])
