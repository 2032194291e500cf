"""`eosdb serve` as a process of its own, which is killed and started again on the same port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.trials.judges.verdicts import FailedError, MissingError

READY_S: Final = 120.0
LOOK_S: Final = 0.05


class Server:
    """A file and the process that serves it. A context manager; its log is appended to `log`."""

    def __init__(
        self, file: Path, log: Path, options: Sequence[str] = (), port: int | None = None
    ) -> None:
        self.file = file
        self.port: Final = free_port() if port is None else port
        self.kills = 0
        self._log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it takes connections. Raises MissingError if its port is taken."""
        if _takes_connections(self.port):
            raise MissingError(f"another program listens at port {self.port}")
        command = [sys.executable, "-m", "eosdb.cli", "--db", str(self.file), "serve"]
        command += ["--port", str(self.port), "--create", *self._options]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._process = process
        wait_until(self._is_up, "the server takes connections", READY_S)

    def stop(self) -> None:
        """As a service manager does it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(READY_S)
            self._process = None

    def kill_and_restart(self) -> None:
        """As a crash does it."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.kills += 1
        self.start()

    @contextmanager
    def killed_at(self, progress: Callable[[], int], marks: Sequence[int]) -> Iterator[None]:
        """Killed and started again whenever `progress` has come to the next mark (`at_marks`)."""
        with at_marks(progress, marks, lambda _: self.kill_and_restart()):
            yield

    def _is_up(self) -> bool:
        assert self._process is not None
        if (status := self._process.poll()) is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise FailedError(f"the server ended with status {status}: {tail}")
        return _takes_connections(self.port)


def _takes_connections(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def at_marks(
    progress: Callable[[], int], marks: Sequence[int], kill: Callable[[int], None]
) -> Iterator[None]:
    """Call `kill` with its turn whenever `progress` has come to the next mark.

    Raises FailedError at the end when not every mark was reached: then there were fewer kills than the
    verdict would say.
    """
    ended = threading.Event()
    turns = list[int]()

    def run() -> None:
        for turn, mark in enumerate(marks):
            while progress() < mark:
                if ended.wait(LOOK_S):
                    return
            kill(turn)
            turns.append(turn)

    killer = threading.Thread(target=run, name="killer")
    killer.start()
    try:
        yield
    finally:
        ended.set()
        killer.join()
    if len(turns) != len(marks):
        raise FailedError(f"killed {len(turns)} times, {len(marks)} were meant")


def wait_until(is_so: Callable[[], bool], what: str, seconds: float) -> None:
    """Raises FailedError when it has not come to be after so long."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise FailedError(f"not within {seconds:.0f} s: {what}")
        time.sleep(LOOK_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port
