"""A web server in a process of its own, started by a command of a page, and clients that order from it."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import eosdb
from tests.concurrency.worker import threads
from tests.waiting import eventually

PATIENCE_S = 120
CLIENTS = 50
LOST = 0
"""The status of a request that got no answer."""


def files_of(page: Path, folder: Path) -> None:
    """Writes each Python block of the page that begins with the name of a file into that file."""
    for name, text in re.findall(r"(?s)```python\n# (\w+\.py)\n(.*?)```", page.read_text()):
        (folder / name).write_text(text)


def commands_of(page: Path) -> list[str]:
    """The commands that the page shows."""
    return re.findall(r"(?m)^(?:\$|   ) ((?:uvicorn|gunicorn|pytest) .*)$", page.read_text())


@dataclass(slots=True)
class Server:
    """One that runs."""

    command: str
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    answers: dict[str, int] = field(default_factory=dict)
    """The status that each order was answered with."""
    early: list[str] = field(default_factory=list)
    """The orders, of one client in ten, whose record was not there when they were answered with 200."""

    def post(self, connection: http.client.HTTPConnection, path: str, what: str) -> None:
        try:
            # A connection that is kept may be closed by the server just as the next request is sent.
            connection.request("POST", f"{path}?what={what}", headers={"Connection": "close"})
            answer = connection.getresponse()
            answer.read()
            self.answers[what] = answer.status
        except (OSError, http.client.HTTPException):
            self.answers[what] = LOST
            connection.close()

    def is_stored(self, what: str) -> bool:
        query = "SELECT 1 FROM committed_records WHERE CAST(value AS TEXT) = ?"
        with eosdb.connect(self.folder / "shop.db", read_only=True) as db:
            return list(db.query(query, (what,)).rows) == [(1,)]

    def order(self, paths: tuple[str, ...], each: int, clients: int = CLIENTS) -> None:
        """Every client orders `each` times, in turn from these paths; each third order is bad."""
        before = len(self.answers)

        def work(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
            for i in range(each):
                quality = "bad" if i % 3 == 2 else "good"
                what = f"{quality}-{before}-{number}-{i}"
                self.post(connection, paths[i % len(paths)], what)
                if number % 10 == 0 and self.answers[what] == 200 and not self.is_stored(what):
                    self.early.append(what)
            connection.close()

        threads(clients, work)

    @contextmanager
    def ordering(self, paths: tuple[str, ...], each: int) -> Iterator[None]:
        """Orders come in during the block; some have been answered when it begins."""
        before = len(self.answers)
        thread = threading.Thread(target=self.order, args=(paths, each))
        thread.start()
        eventually(lambda: len(self.answers) > before + CLIENTS)
        try:
            yield
        finally:
            thread.join()

    def log(self) -> str:
        """What the server has printed."""
        return (self.folder / "server.log").read_text()

    def workers(self) -> list[int]:
        """The process ids of its children that run Python."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        found = [int(child) for child in children.split()]
        return [each for each in found if "resource_tracker" not in _command(each)]

    def check(self) -> None:
        """What was answered with 200 is stored once, at that time; and nothing that was refused is."""
        assert not self.early
        with eosdb.connect(self.folder / "shop.db") as db:
            query = "SELECT CAST(value AS TEXT) FROM committed_records ORDER BY 1"
            records = [what for (what,) in db.query(query).rows]
            if db.columns("orders"):
                rows = [what for (what,) in db.query("SELECT what FROM orders ORDER BY 1").rows]
                assert rows == records
            assert db.verify().ok
        assert len(set(records)) == len(records)
        answered = {what for what, status in self.answers.items() if status == 200}
        lost = {what for what, status in self.answers.items() if status == LOST}
        assert answered <= set(records)
        assert set(records) <= answered | lost
        assert not [what for what in records if what.startswith("bad")]


@contextmanager
def running(command: str, folder: Path, modules: Path | None = None) -> Iterator[Server]:
    """The server that the command starts in the folder, on another port, until the block ends; its modules
    are there, too, unless they are elsewhere."""
    port = free_port()
    words = shlex.split(command.replace("8000", str(port)))
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(modules or folder)},
        )
    server = Server(command, process, port, folder)
    try:
        eventually(lambda: process.poll() is not None or accepts(port))
        assert process.poll() is None, (folder / "server.log").read_text()
        yield server
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def accepts(port: int) -> bool:
    """Whether somebody answers there; any answer will do."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/nothing")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
