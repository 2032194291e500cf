"""Kafka's command-line tools, one after another on one file; what they print is compared with what they
print before a Kafka broker.

`expected/tools.txt` has that, `expected/tools-before.txt` where it differs for the tools of the version
before, and `expected/tools-otherwise.txt` what they print before eosdb where that differs on purpose
(docs/wire.md). `python -m tests.trials.judges.tools VERSION HOST:PORT` writes it anew, in `.judges/tools`,
from a broker with an empty log, Kafka's StandardAuthorizer, whose super user is User:ANONYMOUS, and without
share and streams groups (`--feature share.version=0 --feature streams.version=0`).
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.trials.judges.artifacts import CACHE, KAFKA, KAFKA_BEFORE, QUIET, class_path, java
from tests.trials.judges.case import LONG_S, Case, Judge
from tests.trials.judges.tools_jars import jars
from tests.trials.judges.tools_steps import CONSUMER, FILES, MOVED, OLDER, STEPS, Step
from tests.trials.judges.verdicts import FailedError

HERE: Final = Path(__file__).parent
PROGRAM: Final = HERE / "programs/EveryTool.java"
BEFORE_KAFKA: Final = HERE / "expected/tools.txt"
BEFORE_KAFKA_41: Final = HERE / "expected/tools-before.txt"
OTHERWISE: Final = HERE / "expected/tools-otherwise.txt"
ANONYMOUS_MAY: Final = ("--config", "super.users=User:ANONYMOUS")
"""Or the first ACL would shut the tools themselves out."""


def play(version: str, bootstrap: str, folder: Path) -> str:
    """Every step with what it printed, without what differs from run to run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_text(content)
    for number, step in enumerate(STEPS):
        program = step.program
        arguments = step.arguments.replace("{B}", bootstrap).replace("{FOLDER}", str(folder))
        if version == KAFKA_BEFORE:
            arguments = arguments.replace(*OLDER.get(step.program, ("", "")))
            program = MOVED.get(program, program)
        if step.program == CONSUMER:
            arguments += " --timeout-ms 60000"  # Or it waits for ever for a record that is missing.
        (folder / f"{number}.line").write_text("\n".join([program, *arguments.split()]))
        (folder / f"{number}.given").write_text(step.given)
    jar_folder = class_path(f"tools-{version}", jars(version)).removesuffix("/*")
    command = [java(), "-Xmx512m", "-XX:+UseSerialGC", *QUIET, str(PROGRAM)]
    with (folder / "java.log").open("wb") as log:
        subprocess.run(
            [*command, jar_folder, str(folder)],
            stdout=log,
            stderr=log,
            timeout=LONG_S,
            check=False,
        )
    return "".join(_said(step, folder, number) for number, step in enumerate(STEPS))


EXCEPTION: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")
SAME: Final = (
    (r"\[\d{4}-\d\d-\d\d [\d:,]+\]", "[TIME]"),
    (r"TopicId: \S{22}", "TopicId: ID"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"127\.0\.0\.1", "HOST"),
    (r"(console|perf)-consumer-\d+", r"\1-consumer-ID"),
    (r"Cluster ID: \S+", "Cluster ID: ID"),
    (r"\b\d{13}(\s+)\d+", r"TIME\1DURATION"),
    (r"\b\d{13}\b", "TIME"),
    (r"[ \t]+", " "),
    (r"(perf \d+) \d+ CompleteCommit (\d+)", r"\1 EPOCH CompleteCommit \2"),
    (r"HOST \d+ ", "HOST PORT "),
    (r"\b(ClusterId|LeaderEpoch|HighWatermark|MaxFollowerLagTimeMs|Epoch): \S+", r"\1: …"),
    (r"(A{22}) \d+", r"\1 OFFSET"),
    (r'"size":\d+', '"size":SIZE'),
    (r'"logDir":"[^"]*"', '"logDir":"FOLDER"'),
    (r'"log_dirs":\["[^"]*"\]', '"log_dirs":["FOLDER"]'),
    (r" Elr:.*", ""),
    (r"\n (min\.insync\.replicas|eosdb\.\w+\.to)=.*", ""),
    (r"min\.insync\.replicas=1,?", ""),
    (r" synonyms=.*", ""),
    (r"(Error while executing topic command|\b\w+Exception) ?: .*", r"\1: …"),
    (r"((Could|Can) not \w+ \S+ to \d+\.) .*", r"\1 …"),
    (r"\n at .*", ""),
    (r" +\n", "\n"),
)
"""What differs from run to run, the width of columns, what is said of replicas that lag behind, eosdb's own
settings of a topic, and the words of an error: its name is compared."""


def _said(step: Step, folder: Path, number: int) -> str:
    out, err, status = (
        path.read_text() if (path := folder / f"{number}.{kind}").exists() else ""
        for kind in ("out", "err", "status")
    )
    raised = sorted(set(EXCEPTION.findall(out + err)))
    program = step.program.rpartition(".")[2]
    end = f"status {status} {' '.join(raised)}".rstrip()
    return f"$ {program} {step.arguments}\n{_shown(step, out)}{end}\n\n"


def _shown(step: Step, output: str) -> str:
    if step.is_silent:
        return "…\n"
    for pattern, one in SAME:
        output = re.sub(pattern, one, output)
    # A group that has no offsets is there until it is cleaned up, so none of the console's is shown.
    lines = [line for line in output.split("\n") if line.strip() and "consumer-ID" not in line]
    return "".join(f"{line}\n" for line in (sorted(lines) if step.is_sorted else lines))


def expected(version: str) -> str:
    """What the tools print before Kafka, and what they print before eosdb where that is another thing."""
    blocks = _blocks(BEFORE_KAFKA)
    for instead in (
        _blocks(BEFORE_KAFKA_41) if version == KAFKA_BEFORE else {},
        _blocks(OTHERWISE),
    ):
        assert set(instead) <= set(blocks)
        blocks |= instead
    return "".join(blocks.values())


def _blocks(path: Path) -> dict[str, str]:
    """What each command line printed; of a line that comes several times, each one."""
    blocks = dict[str, str]()
    for block in path.read_text().split("\n\n"):
        line = block.split("\n", 1)[0]
        while line in blocks:
            line += " again"
        blocks[line] = f"{block}\n\n"
    blocks.pop("", None)
    return blocks


def compared(version: str, case: Case) -> str:
    found = play(version, case.server.bootstrap, case.folder / "tools")
    (case.folder / "found.txt").write_text(found)
    if found != (wanted := expected(version)):
        difference = difflib.unified_diff(
            wanted.splitlines(), found.splitlines(), "Kafka", "eosdb", lineterm="", n=2
        )
        raise FailedError("they print otherwise:\n" + "\n".join(difference))
    others = len(_blocks(OTHERWISE))
    return f"of {len(STEPS)} command lines all but {others} print what they print before Kafka"


def main(arguments: Sequence[str]) -> None:
    version, bootstrap = arguments
    said = play(version, bootstrap, CACHE / "tools" / version)
    (CACHE / "tools" / f"{version}.txt").write_text(said)


JUDGES: Final = [
    Judge("tools", f"Kafka {KAFKA}", partial(compared, KAFKA), ANONYMOUS_MAY),
    Judge("tools before", f"Kafka {KAFKA_BEFORE}", partial(compared, KAFKA_BEFORE), ANONYMOUS_MAY),
]

if __name__ == "__main__":
    main(sys.argv[1:])
