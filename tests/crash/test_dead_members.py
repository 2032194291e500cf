"""Members of a group in processes of their own: one that is killed is missed at once, one that is stopped
has its session.

Sessions are five minutes, far beyond any deadline here: what happens before does not wait for one. Nobody
but the members writes; the test only reads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eosdb
from eosdb.model.failpoints import Failpoint
from eosdb.model.protocol.consumer_protocol import decode_assignment
from eosdb.store.file.failures import describe_holders
from tests.crash.children import environment
from tests.tidy.tree import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.crash

PARTITIONS = 6
SESSION_MS = 300_000
PATIENCE_S = 90.0


class Group:
    """The members' processes, and the group as a reader sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with eosdb.connect(path) as db:
            db.admin.create_topic("t", PARTITIONS)
        self.db = eosdb.connect(path, read_only=True)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(
        self, name: str, *options: str, session_ms: int = SESSION_MS, failpoint: str = ""
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.crash.member_worker", str(self.path), name]
        extra = {"EOSDB_FAILPOINT": failpoint} if failpoint else {}
        self.processes[name] = process = subprocess.Popen(
            [*command, str(session_ms), *options],
            cwd=ROOT, env=environment(**extra), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return process

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def stop(self, name: str) -> None:
        """Not while it writes: that would be in everybody's way."""
        pid = self.processes[name].pid
        while True:
            self.signal(name, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            if f"process {pid} " not in describe_holders(f"{self.path}-lock", (0, 1)):
                return
            self.signal(name, signal.SIGCONT)

    def share(self) -> dict[str, int]:
        """How many partitions each member has; empty while that is being worked out."""
        if "g" not in self.db.broker.list_groups():
            return {}
        found = self.db.broker.describe_group("g")
        if found.state != "Stable":
            return {}
        return {m.client_id: len(decode_assignment(m.assignment)) for m in found.members}

    def members(self) -> dict[str, str]:
        """Their ids by name."""
        found = self.db.broker.describe_group("g").members
        return {m.client_id: m.member_id for m in found}

    def until(self, **share: int) -> None:
        eventually(lambda: self.share() == share, lambda: f"expected {share}, got {self.share()}")

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.db.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with contextlib.closing(Group(tmp_path / "group.db")) as made:
        yield made
        with eosdb.connect(made.path) as db:
            assert db.verify().ok


def test_the_partitions_of_one_that_is_killed_go_to_those_who_wait(group: Group) -> None:
    for name in ("a", "b", "c"):
        group.start(name)
    group.until(a=2, b=2, c=2)
    group.signal("b", signal.SIGKILL)
    group.until(a=3, c=3)
    group.signal("c", signal.SIGKILL)
    group.until(a=6)


def test_one_that_is_stopped_has_its_session_and_learns_that_it_has_ended(group: Group) -> None:
    for name, session_ms in (("long", SESSION_MS), ("short", 6_000), ("dies", SESSION_MS)):
        group.start(name, session_ms=session_ms)
    group.until(long=2, short=2, dies=2)
    group.stop("long")
    group.signal("dies", signal.SIGKILL)

    # It lives: the dead one is gone, and it is not, however often the other one has looked.
    eventually(lambda: "dies" not in group.members(), lambda: str(group.members()))
    before = group.members()
    assert set(before) == {"long", "short"}
    group.signal("long", signal.SIGCONT)
    group.until(long=3, short=3)
    group.stop("short")
    group.until(long=6)  # Once the session of the stopped one has ended.
    group.signal("short", signal.SIGCONT)
    group.until(long=3, short=3)
    after = group.members()
    assert after["long"] == before["long"]
    assert after["short"] != before["short"], "it has learnt that it was out, and joined again"


def test_a_forked_child_that_lives_on_does_not_keep_its_parent_alive(group: Group) -> None:
    group.start("a")
    process = group.start("forks", "forks")
    group.until(a=3, forks=3)
    assert process.stdout is not None
    child = next(int(line.split()[1]) for line in process.stdout if line.startswith("forked"))
    try:
        group.signal("forks", signal.SIGKILL)
        group.until(a=6)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_killed_while_joining_or_syncing_it_is_missed_by_nobody(group: Group) -> None:
    group.start("a")
    group.until(a=6)
    for commits in (0, 1, 2, 4):
        point = f"{Failpoint.UNIT_COMMITTED.value}:{commits}"
        dying = group.start(f"dies{commits}", failpoint=point)
        assert dying.wait(PATIENCE_S) == -signal.SIGKILL
        group.until(a=6)
    group.start("b")
    group.until(a=3, b=3)


def test_killed_while_it_gives_up_its_partitions_they_have_an_owner(group: Group) -> None:
    victim = group.start("dies", "dies-when-revoked")
    group.until(dies=6)
    group.start("b")
    assert victim.wait(PATIENCE_S) == -signal.SIGKILL
    group.until(b=6)
