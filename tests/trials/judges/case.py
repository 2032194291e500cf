"""One judge at work: a fresh file, the server that serves it, the judge's programs, and their logs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import eosdb
from eosdb import ConsumerRecord, TopicPartition
from tests.trials.judges import artifacts
from tests.trials.judges.serving import Server, wait_until
from tests.trials.judges.verdicts import FailedError, MissingError, Outcome, Verdict

LONG_S: Final = 900.0
"""A program that takes so long hangs."""
_TAIL: Final = 1500


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge's name, its version, and how it is asked: `ask` returns what it said."""

    name: str
    version: str
    ask: Callable[[Case], str]
    options: tuple[str, ...] = ()
    """Of `eosdb serve`."""
    port: int | None = None
    """The one that its programs insist on."""


class Case:
    """What a judge works with."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server

    def run(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        given: str | None = None,
        status: int | None = 0,
        timeout_s: float = LONG_S,
        folder: Path | None = None,
    ) -> str:
        """What the program prints, its errors in the log NAME.log. Raises FailedError at another status."""
        log = self.log(name)
        with log.open("ab") as errors:
            try:
                done = subprocess.run(
                    command,
                    input=given,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, **(environment or {})},
                    cwd=folder or self.folder,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise FailedError(f"{name} did not end within {timeout_s:.0f} s") from error
        with log.open("a") as output:
            output.write(done.stdout)
        if status is not None and done.returncode != status:
            raise FailedError(f"{name} ended with status {done.returncode}: {tail(log)}")
        return done.stdout

    @contextmanager
    def running(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs meanwhile; ended by SIGTERM. Its output is in the log NAME.log."""
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder,
                env={**os.environ, **(environment or {})},
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def wait_for(self, name: str, text: str, seconds: float = 300.0) -> None:
        """Until the log of a running program has this text."""
        log = self.log(name)
        wait_until(lambda: text in log.read_text(errors="replace"), f"{name}: {text}", seconds)

    def verify(self, name: str) -> None:
        """Raises FailedError when `eosdb verify` finds something."""
        file = str(self.server.file)
        self.run(name, [sys.executable, "-m", "eosdb.cli", "--db", file, "verify"])

    def create_topics(self, partitions: int, *names: str) -> None:
        with eosdb.connect(self.server.file) as db:
            for name in names:
                db.admin.create_topic(name, partitions=partitions)

    def partitions(self, topic: str) -> list[TopicPartition]:
        with eosdb.connect(self.server.file) as db:
            return [TopicPartition(topic, it) for it in range(self._count(db, topic))]

    def watch(self, topic: str) -> Callable[[], int]:
        """How many offsets a topic's partitions have, control records too, asked again and again."""
        partitions = self.partitions(topic)
        db = eosdb.connect(self.server.file)

        def ends() -> int:
            return sum(db.broker.offsets(partition).high_watermark for partition in partitions)

        return ends

    def committed(self, topic: str) -> list[ConsumerRecord]:
        """What the library reads of a topic, partition by partition."""
        with eosdb.connect(self.server.file) as db:
            found: list[ConsumerRecord] = []
            for partition in range(self._count(db, topic)):
                consumer = db.consumer(
                    isolation_level="read_committed", auto_offset_reset="earliest"
                )
                consumer.assign([TopicPartition(topic, partition)])
                while records := consumer.poll(timeout_ms=0, max_records=10_000):
                    found += records
                consumer.close()
            return found

    @staticmethod
    def _count(db: eosdb.Database, topic: str) -> int:
        return len(db.admin.describe_topic(topic).partitions)


def ask(judge: Judge) -> Verdict:
    """Ask a judge, on a fresh file, and `eosdb verify` after it."""
    folder = artifacts.CACHE / "cases" / judge.name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = Server(folder / "judge.db", folder / "server.log", judge.options, judge.port)
    began = time.monotonic()
    outcome = Outcome.PASSED
    try:
        with server:
            case = Case(folder, server)
            text = judge.ask(case)
        case.verify("verify")
        _check_log(folder / "server.log")
    except MissingError as error:
        outcome, text = Outcome.MISSING, str(error)
    except FailedError as error:
        outcome, text = Outcome.FAILED, str(error)
    seconds = time.monotonic() - began
    return Verdict(judge.name, judge.version, outcome, server.kills, seconds, text)


def _check_log(log: Path) -> None:
    text = log.read_text(errors="replace")
    if "Traceback" in text:
        raise FailedError(f"the server's log has {text.count('Traceback')} tracebacks: {tail(log)}")


def tail(log: Path) -> str:
    """The end of a log, for a verdict."""
    return log.read_text(errors="replace")[-_TAIL:]
