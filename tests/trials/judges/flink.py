"""Flink's KafkaSource and KafkaSink, exactly once. The JVM with its job manager and its task managers is
killed and goes on from the newest checkpoint, and so is the server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.trials.judges.artifacts import QUIET, Jar, class_path, java, javac, logging_jar
from tests.trials.judges.case import LONG_S, Case, Judge
from tests.trials.judges.python_clients import GROUP, PARTITIONS, PROGRAMS, RECORDS, compare, fill
from tests.trials.judges.serving import wait_until

FLINK: Final = "2.0.1"
CONNECTOR: Final = "4.0.1-2.0"
JARS: Final = [
    Jar("org.apache.flink", "flink-clients", FLINK),
    Jar("org.apache.flink", "flink-connector-base", FLINK),
    Jar("org.apache.flink", "flink-connector-kafka", CONNECTOR),
    logging_jar(),
]
OPENS: Final = tuple(
    f"--add-opens=java.base/{it}=ALL-UNNAMED" for it in ("java.lang", "java.util", "java.net")
)
SERVER_MARKS: Final = (1_000, 7_000, 13_000)
JOB_MARKS: Final = (4_000, 10_000)


def copies_exactly_once(case: Case) -> str:
    jars = class_path("flink", JARS)
    classes, checkpoints = case.folder / "classes", case.folder / "checkpoints"
    checkpoints.mkdir()
    source = str(PROGRAMS / "FlinkEtl.java")
    case.run("compiler", [javac(), "-cp", jars, "-d", str(classes), source])
    case.create_topics(PARTITIONS, "input", "output")
    fill(case)
    command = [java(), "-Xmx768m", *QUIET, *OPENS, "-cp", f"{classes}:{jars}", "FlinkEtl"]
    command += [case.server.bootstrap, "input", "output", GROUP, "copy", str(checkpoints)]
    progress = case.watch("output")
    with case.server.killed_at(progress, SERVER_MARKS), ExitStack() as last:
        for mark in JOB_MARKS:
            with case.running("flink", command) as job:
                wait_until(lambda mark=mark: progress() >= mark, f"{mark} are copied", LONG_S)  # type: ignore[misc]
                job.kill()
        last.enter_context(case.running("flink", command))
        wait_until(lambda: len(case.committed("output")) >= RECORDS, "all is copied", LONG_S)
    said = compare(case.committed("input"), case.committed("output"))
    return f"{said}; the job killed {len(JOB_MARKS)} times"


JUDGES: Final = [Judge("flink", f"{FLINK}, connector {CONNECTOR}", copies_exactly_once)]
