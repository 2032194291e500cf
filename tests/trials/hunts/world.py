"""The world of a session: a folder, the file under test, its processes by role, and how to reach them.

Roles: "client" is the actor's own program, "server" is `eosdb serve` for an actor that speaks over the
wire, "feeder" writes what an actor carries on and is under no fault. Every process has disk.c preloaded and
is the first of a group of processes, so that what is left over can be found and ended.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Final

import eosdb
from tests.chaos.orders import Orders
from tests.chaos.power import library
from tests.integrations.relay.contents import Content
from tests.tidy.tree import ROOT
from tests.trials.hunts.ledger import Ledgers
from tests.trials.hunts.programs.working import CONFIG, FILE, OF_SERVER, PARTITIONS, TOPIC
from tests.trials.hunts.proxy import Proxy

PATIENCE_S: Final = 90.0
"""After this time without progress something waits for ever."""
ROLES: Final = ("client", "server", "feeder", "other")
_LOOK_S: Final = 0.02
MARK: Final = "EOSDB_HUNT"
"""Names the folder of the session in the environment of each of its processes."""


class HuntError(Exception):
    """A promise is broken: what was expected, and what there is."""


class Role:
    """A process that is started again when it was killed."""

    def __init__(self, world: World, role: str, command: Sequence[str], name: str) -> None:
        self.role, self.name = role, name
        self.log = world.folder / f"{name}.log"
        self.lives = 0
        self.command = list(command)
        self._starting = threading.Lock()
        self._world = world
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start another life of it, if it has none."""
        with self._starting, self.log.open("ab") as log:
            if not self.is_up:
                self.lives += 1
                self._process = self._world.start(self.role, self.command, log)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, once it has ended."""
        return None if self._process is None else self._process.poll()

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, to it and to every process it has started."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM. Raises HuntError when it does not end by that."""
        if not self.is_up:
            return
        assert self._process is not None
        os.kill(self.pid, signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)  # faulthandler says where it hangs.
            time.sleep(0.5)
            self.kill()
            raise HuntError(f"{self.name} does not end by SIGTERM: {self.tail()}") from None

    def tail(self) -> str:
        """The end of what it said."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


class World:
    """Everything of one session. A context manager: nothing outlives it."""

    def __init__(self, folder: Path, seed: int, *, is_adopted: bool = False) -> None:
        self.folder = folder
        self.seed = seed
        self.rng = random.Random(seed)
        self.path = folder / FILE
        self.orders = Orders(folder / "orders", ROLES)
        self.ledgers = Ledgers(folder)
        self.roles: dict[str, Role] = {}
        self.others: list[subprocess.Popen[bytes]] = []
        """Programs that a fault has started."""
        self.copies: list[Role] = []
        self.removed: dict[tuple[int, int], Content] = {}
        """What a fault has removed from the beginning of the topic, by partition and offset."""
        self.looking = threading.Lock()
        """Held while the onlooker has the file open."""
        self.proxy: Proxy | None = None
        self.names: frozenset[str] = frozenset()
        """Of the files that were there when everything worked."""
        self._preloaded = library(str(folder))
        if is_adopted:
            with closing(sqlite3.connect(self.path)) as connection:
                connection.execute("CREATE TABLE stock (item TEXT PRIMARY KEY)")
        with eosdb.connect(self.path, adopt="wal" if is_adopted else False) as db:
            db.admin.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for role in (*self.roles.values(), *self.copies):
            role.kill()
        for process in self.others:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self.proxy is not None:
            self.proxy.close()

    # -- processes ------------------------------------------------------------------------------

    def environment(self, role: str) -> dict[str, str]:
        """For a process of this role."""
        base = {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
        base |= {"PYTHONPATH": str(ROOT), MARK: str(self.folder)}
        return self.orders.environment(role, self._preloaded, self.folder, base)

    def start(
        self, role: str, command: Sequence[str], output: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a process of this role, the first of a session of its own."""
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment(role),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def add(self, role: str, command: Sequence[str], name: str | None = None) -> Role:
        """Start a process that the session keeps alive."""
        process = self.roles[role] = Role(self, role, command, name or role)
        process.start()
        return process

    def another(self, role: Role, command: Sequence[str]) -> Role:
        """A second process beside a role's, which is not started; the session ends it if it must."""
        copy = Role(self, "other", command, f"another-{role.name}")
        self.copies.append(copy)
        return copy

    def program(self, module: str, name: str) -> list[str]:
        """The command of a program of `tests.trials.hunts.programs`."""
        command = [
            sys.executable,
            "-m",
            f"tests.trials.hunts.programs.{module}",
            str(self.folder),
            name,
        ]
        return [*command, self.address, str(self.seed)]

    def command(self, *arguments: object) -> list[str]:
        """An `eosdb` command."""
        return [sys.executable, "-m", "eosdb.cli", *map(str, arguments)]

    def run(self, *arguments: object, role: str = "other") -> subprocess.Popen[bytes]:
        """An `eosdb` command beside the session; the session ends it if it must."""
        process = self.start(role, self.command(*arguments), subprocess.PIPE)
        self.others.append(process)
        return process

    def finish(self, *arguments: object) -> None:
        """Run an `eosdb` command to its end. Raises HuntError if it fails, or does not end."""
        process = self.run(*arguments)
        try:
            said, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise HuntError(f"not within {PATIENCE_S:g} s: the end of {arguments}") from None
        if process.returncode:
            status = process.returncode
            raise HuntError(f"{arguments} ended with {status}: {said[-2000:].decode()}")

    def serve(self, *options: str, file: Path | None = None) -> None:
        """Serve the file, with a proxy before it that clients are told of."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = [
            word for name in OF_SERVER for word in ("--config", f"{name}={getattr(CONFIG, name)}")
        ]
        command = self.command("serve", file or self.path, "--port", port, *settings)
        self.stand_before(port, [*command, *options])

    def stand_before(self, port: int, command: Sequence[str] | None = None) -> None:
        """Put a proxy before a server of this machine. The session keeps it alive if it has its command."""
        self.server = ("127.0.0.1", port)
        if command is not None:
            self.add("server", command)
        self.proxy = Proxy(port)
        if command is not None:
            self.until(self._server_is_up, "the server takes connections")

    @property
    def address(self) -> str:
        """HOST:PORT of the proxy, and "-" without a server."""
        return "-" if self.proxy is None else f"127.0.0.1:{self.proxy.port}"

    def _server_is_up(self) -> bool:
        if not self.roles["server"].is_up:
            self.revive()
        with socket.socket() as probe:
            return probe.connect_ex(self.server) == 0

    def revive(self) -> list[str]:
        """Start again what has ended. Returns the names, with their exit statuses."""
        ended = [role for role in self.roles.values() if not role.is_up]
        for role in ended:
            time.sleep(0.05)
            role.start()
        return [role.name for role in ended]

    def processes(self) -> Iterator[tuple[int, str]]:
        """Every process of the session, and what they have started, with their commands."""
        mark = f"{MARK}={self.folder}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                        yield int(entry.name), command.decode()
                except OSError:
                    continue  # It has ended, or is not ours.

    # -- waiting --------------------------------------------------------------------------------

    def until(self, is_so: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait. Raises HuntError when it takes too long."""
        deadline = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > deadline:
                tails = "\n".join(f"{role.name}: {role.tail()}" for role in self.roles.values())
                raise HuntError(f"not within {patience_s:g} s: {what}\n{tails}")
            time.sleep(_LOOK_S)


def names_of(folder: Path) -> frozenset[str]:
    """The names in a folder."""
    return frozenset(path.name for path in folder.iterdir())
