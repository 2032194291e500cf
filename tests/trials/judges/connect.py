"""A Kafka Connect worker, exactly once: its REST interface comes up, a source task copies a file into a
topic and a sink task the topic into a file, the server is killed meanwhile."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.trials.judges.artifacts import CONNECT, Jar, class_path, java, kafka_jar
from tests.trials.judges.case import Case, Judge, tail
from tests.trials.judges.serving import free_port, wait_until
from tests.trials.judges.verdicts import FailedError

LOGGING: Final = [
    Jar("org.apache.logging.log4j", "log4j-core", "2.24.3"),
    Jar("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
]
"""Connect's own, which sets the levels of its loggers."""
JARS: Final = [
    *(kafka_jar(it, version=CONNECT) for it in ("connect-runtime", "connect-json", "connect-file")),
    *LOGGING,
]
TRANSACTIONS: Final = {"batch.size": "50", "transaction.boundary": "poll"}
RECORDS: Final = 5_000
MARKS: Final = (500, 2_000)
MORE: Final = "more"
UP_S: Final = 300.0
SETTINGS: Final = """
bootstrap.servers={bootstrap}
group.id=connect
listeners=http://127.0.0.1:{port}
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
offset.flush.interval.ms=1000
consumer.isolation.level=read_committed
plugin.discovery=service_load
"""


def file_to_file(case: Case) -> str:
    jars = class_path("connect", JARS)
    port = free_port()
    settings = case.folder / "worker.properties"
    settings.write_text(SETTINGS.format(bootstrap=case.server.bootstrap, port=port))
    case.create_topics(1, "lines")
    source, sink = case.folder / "source.txt", case.folder / "sink.txt"
    lines = [f"line {it}" for it in range(RECORDS)]
    source.write_text("")
    program = "org.apache.kafka.connect.cli.ConnectDistributed"
    with case.running(
        "worker", [java(), "-Xmx512m", "-cp", jars, program, str(settings)]
    ) as worker:
        rest = _Rest(port)
        wait_until(lambda: worker.poll() is not None or rest.get("/") is not None, "REST", UP_S)
        if worker.poll() is not None:
            raise FailedError(f"the worker ended: {tail(case.log('worker'))}")
        version = rest.get("/")["version"]
        rest.put("source", "FileStreamSource", file=str(source), topic="lines", **TRANSACTIONS)
        rest.put("sink", "FileStreamSink", file=str(sink), topics="lines")
        for name in ("source", "sink"):
            wait_until(lambda name=name: rest.runs(name), f"{name} runs", UP_S)  # type: ignore[misc]
        with case.server.killed_at(case.watch("lines"), MARKS):
            source.write_text("".join(f"{line}\n" for line in lines))
            wait_until(lambda: _all_arrived(source, sink), "all lines in the sink's file", UP_S)
    values = [it.value for it in case.committed("lines") if isinstance(it.value, bytes)]
    in_topic = [line for value in values if (line := str(value, "utf-8")) != MORE]
    if in_topic != lines:
        raise FailedError(f"{RECORDS} lines, {len(in_topic)} in the topic, or in another order")
    return (
        f"{version}: {RECORDS:,} lines, each once and in order in the topic, all in the sink's file"
    )


def _all_arrived(source: Path, sink: Path) -> bool:
    """The source task keeps the last lines of a file to itself until the file grows."""
    with source.open("a") as file:
        file.write(f"{MORE}\n")
    return len(set(_lines(sink)) - {MORE}) == RECORDS


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


class _Rest:
    """The worker's REST interface."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """None when it does not answer, or not with success."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=30) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError):
            return None

    def put(self, name: str, kind: str, **config: str) -> None:
        """Again until it is taken: the worker may be joining its group."""
        plugin = f"org.apache.kafka.connect.file.{kind}Connector"
        body = json.dumps({"connector.class": plugin, "tasks.max": "1", **config}).encode()
        url = f"{self._url}/connectors/{name}/config"
        wait_until(lambda: self._put(url, body), f"the connector {name} is taken", UP_S)

    def _put(self, url: str, body: bytes) -> bool:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers, method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=90):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def runs(self, name: str) -> bool:
        status = self.get(f"/connectors/{name}/status")
        return bool(status) and [it["state"] for it in status["tasks"]] == ["RUNNING"]


JUDGES: Final = [Judge("connect worker", f"Kafka Connect {CONNECT}", file_to_file)]
