"""Signals: processes that are killed, stopped, interrupted, ended and forked."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import eosdb
from tests.trials.hunts.actors.actor import Actor, Need
from tests.trials.hunts.faults.fault import Fault
from tests.trials.hunts.world import HuntError, Role, World

_TAKING_OVER_S: Final = 60.0
"""Longer than any time-out of a transaction or session of the programs, and than Spark takes to begin."""


class Kill(Fault):
    def __init__(self, name: str, roles: tuple[str, ...]) -> None:
        self.name = name
        self.summary = f"SIGKILL of the {' and the '.join(roles)}"
        self.ends = frozenset(roles)
        self.needs = frozenset({Need.SERVER} if "server" in roles else ())
        self._roles = roles

    def strike(self, world: World, actor: Actor) -> bool:
        for role in self._roles:
            world.roles[role].kill()
        time.sleep(world.rng.random() * 0.2)
        return True


class Pause(Fault):
    def __init__(self, role: str) -> None:
        self.name = f"stop-{role}"
        self.summary = f"SIGSTOP of the {role} for up to 3 s, then SIGCONT"
        self.needs = frozenset({Need.SERVER} if role == "server" else ())
        self._role = role

    def strike(self, world: World, actor: Actor) -> bool:
        role = world.roles[self._role]
        role.signal(signal.SIGSTOP)
        time.sleep(world.rng.choice((0.05, 0.5, 3)))
        role.signal(signal.SIGCONT)
        return True


class Interrupt(Fault):
    name = "sigint"
    summary = "SIGINT (Ctrl-C) to the client, which may end by it"
    ends = frozenset({"client"})

    def strike(self, world: World, actor: Actor) -> bool:
        world.roles["client"].signal(signal.SIGINT)
        time.sleep(0.2)
        return True


class Terminate(Fault):
    def __init__(self, role: str) -> None:
        self.name = f"sigterm-{role}"
        self.summary = f"SIGTERM of the {role}, which ends with status 0 and begins again"
        self.ends = frozenset({role})
        self.needs = frozenset({Need.SERVER} if role == "server" else ())
        self._role = role

    def strike(self, world: World, actor: Actor) -> bool:
        role = world.roles[self._role]
        if not role.is_up:
            return False
        role.stop()
        if role.status not in (0, -signal.SIGTERM):  # The latter of one that has just begun.
            raise HuntError(f"the {self._role} ended with {role.status} by SIGTERM: {role.tail()}")
        return True


class Zombie(Fault):
    """The client is stopped while a copy of it takes over, and goes on: what it had in hand is refused, or
    is no harm, and what it was told of it is judged."""

    name = "zombie"
    summary = (
        "SIGSTOP of the client until a copy of it, of the same name and group, has made progress; then "
        "SIGCONT, and both work"
    )
    ends = frozenset({"client"})

    def strike(self, world: World, actor: Actor) -> bool:
        client = world.roles["client"]
        copy = world.another(client, actor.copy_of(world))
        while _holds_others_up(client, actor.files(world)):
            client.signal(signal.SIGCONT)
            time.sleep(world.rng.random() * 0.05)
        seen, deadline = {actor.progress(world)}, time.monotonic() + _TAKING_OVER_S
        copy.start()
        try:
            # What the client had under way may arrive once.
            while len(seen) < 3 and time.monotonic() < deadline:
                time.sleep(0.05)
                seen.add(actor.progress(world))
        finally:
            client.signal(signal.SIGCONT)
        time.sleep(world.rng.random())
        copy.stop()
        return len(seen) == 3


def _holds_others_up(client: Role, files: list[Path]) -> bool:
    """Stop it. Returns whether that keeps every other writer waiting."""
    client.signal(signal.SIGSTOP)
    config = eosdb.BrokerConfig(lock_timeout_ms=200)
    try:
        for path in files:
            with eosdb.connect(path, config=config) as db, db.begin():
                pass
    except eosdb.DatabaseLockedError:
        return True
    return False


class Fork(Fault):
    name = "fork"
    summary = "the client forks a child at any instant, which ends at once"
    needs = frozenset({Need.FORK})

    def strike(self, world: World, actor: Actor) -> bool:
        client = world.roles["client"]

        def has_begun() -> bool:
            world.revive()
            return _catches(client.pid, signal.SIGUSR1)

        world.until(has_begun, "the client has its handlers")
        for _ in range(3):
            # Not to its group: the child would fork, too, in the middle of its beginning. A fault that
            # strikes at the same time may have ended it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(client.pid, signal.SIGUSR1)
            time.sleep(world.rng.random() * 0.1)
        return True


def _catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = [line for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


class KillPart(Fault):
    """Of a client that is several processes."""

    needs = frozenset({Need.WORKERS})

    def __init__(self, name: str, summary: str, part: str, ends: frozenset[str]) -> None:
        self.name, self.summary, self.ends = name, summary, ends
        self._part = part

    def strike(self, world: World, actor: Actor) -> bool:
        pids = [pid for pid, command in world.processes() if self._part in command]
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(world.rng.choice(pids), signal.SIGKILL)
        return True


FAULTS: Final[list[Fault]] = [
    Kill("kill-client", ("client",)),
    Kill("kill-server", ("server",)),
    Kill("kill-both", ("client", "server")),
    Pause("client"),
    Pause("server"),
    Interrupt(),
    Terminate("client"),
    Terminate("server"),
    Zombie(),
    Fork(),
    KillPart("kill-worker", "SIGKILL of a worker of the client", "pyspark.daemon", frozenset()),
    KillPart("kill-jvm", "SIGKILL of the client's JVM alone", "java ", frozenset({"client"})),
]
